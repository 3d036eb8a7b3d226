"""Pushes as flat rows, one a data point: the schema of the files that the receiver writes.

| column | type | meaning |
| --- | --- | --- |
| received_unix_ms | long | when the broker got the push |
| client_instance_id, client_id, principal, client_software_name, client_software_version, client_source_address, \
broker_id, cluster_id | string | who pushed, where to; null when unknown or not wanted |
| terminating | boolean | the client's last push |
| push_interval_ms | long | how often that client pushes |
| metric, unit | string | as pushed |
| kind | string | gauge, sum or histogram |
| temporality | string | delta or cumulative; null for gauges |
| monotonic | boolean | of sums; else null |
| start_unix_nano, time_unix_nano | long | as pushed; null when not given, or after the year 2262 |
| value | double | of gauges and sums; null when NaN or infinite |
| count, sum, bounds, bucket_counts | long, double, list of double, list of long | of histograms; null if no numbers |
| attributes | map of string to string | of the data point |
| resource | map of string to string | what the client says about itself |
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_DELTA,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
)

from kclient_telemetry.receiver.fanout import ReceivedPush


@dataclass(frozen=True, slots=True)
class PointRow:
    """One data point; see the module's table."""

    received_unix_ms: int
    client_instance_id: str | None
    client_id: str | None
    principal: str | None
    client_software_name: str | None
    client_software_version: str | None
    client_source_address: str | None
    broker_id: str | None
    cluster_id: str | None
    terminating: bool
    push_interval_ms: int
    metric: str
    unit: str
    kind: str
    temporality: str | None
    monotonic: bool | None
    start_unix_nano: int | None
    time_unix_nano: int | None
    value: float | None
    count: int | None
    sum: float | None
    bounds: list[float] | None
    bucket_counts: list[int] | None
    attributes: dict[str, str]
    resource: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """The columns by name."""
        return {name: getattr(self, name) for name in COLUMNS}


T = TypeVar("T")
_LONGS = range(2**63)

COLUMNS = tuple(field.name for field in fields(PointRow))
_ENRICHED = (
    "client_instance_id",
    "client_id",
    "principal",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "broker_id",
    "cluster_id",
)


@dataclass(frozen=True, slots=True)
class Series:
    """One data point as OTLP gives it, with what stands above it.

    Attributes:
        kind: gauge, sum or histogram.
        delta: the point is the change since the last one.
    """

    metric: Metric
    kind: str
    point: NumberDataPoint | HistogramDataPoint
    resource: dict[str, str]
    delta: bool

    @property
    def value(self) -> float:
        """Number of a gauge or sum; NaN when the point has none."""
        point = self.point
        if isinstance(point, HistogramDataPoint):
            return math.nan
        which = point.WhichOneof("value")
        return math.nan if which is None else float(getattr(point, which))


def series_of(push: ReceivedPush, request: ExportMetricsServiceRequest | None = None) -> Iterator[Series]:
    """Every data point of a push; OTLP's exponential histograms and summaries, which KIP-714 has not, are left out.

    Args:
        push: what was pushed.
        request: the same parsed, for who has that already.
    """
    for resource_metrics in (request or push.request).resource_metrics:
        resource = text_attributes(resource_metrics.resource.attributes)
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                yield from _series_of_metric(metric, resource)


def _series_of_metric(metric: Metric, resource: dict[str, str]) -> Iterator[Series]:
    kind = metric.WhichOneof("data")
    if kind not in {"gauge", "sum", "histogram"}:
        return
    data = getattr(metric, kind)
    delta = kind != "gauge" and data.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA
    for point in data.data_points:
        yield Series(metric, kind, point, resource, delta)


def rows_of(push: ReceivedPush) -> Iterator[PointRow]:
    """A push as rows."""
    who = {name: push.attributes.get(name) for name in _ENRICHED}
    for series in series_of(push):
        point = series.point
        histogram = point if isinstance(point, HistogramDataPoint) else None
        yield PointRow(
            received_unix_ms=push.received_unix_ms,
            **who,
            terminating=push.payload.is_terminating,
            push_interval_ms=push.context.push_interval_ms,
            metric=series.metric.name,
            unit=series.metric.unit,
            kind=series.kind,
            temporality=None if series.kind == "gauge" else "delta" if series.delta else "cumulative",
            monotonic=series.metric.sum.is_monotonic if series.kind == "sum" else None,
            start_unix_nano=_long(point.start_time_unix_nano) or None,
            time_unix_nano=_long(point.time_unix_nano) or None,
            value=series.value if math.isfinite(series.value) else None,
            count=_long(histogram.count) if histogram else None,
            sum=histogram.sum if histogram and math.isfinite(histogram.sum) else None,
            bounds=_all_or_none(histogram.explicit_bounds, math.isfinite) if histogram else None,
            bucket_counts=_all_or_none(histogram.bucket_counts, _LONGS.__contains__) if histogram else None,
            attributes=text_attributes(point.attributes),
            resource=series.resource,
        )


def _long(number: int) -> int | None:
    """OTLP's numbers have 64 bits without a sign, those of files have one."""
    return number if number in _LONGS else None


def _all_or_none(numbers: Iterable[T], is_good: Callable[[T], bool]) -> list[T] | None:
    found = list(numbers)
    return found if all(map(is_good, found)) else None


def text_attributes(pairs: Iterable[KeyValue]) -> dict[str, str]:
    """Attributes with their values as text."""
    return {pair.key: _text(pair.value) for pair in pairs}


def _text(value: AnyValue) -> str:
    which = value.WhichOneof("value")
    if which is None:
        return ""
    content = getattr(value, which)
    if which == "bool_value":
        return "true" if content else "false"
    return str(content)
