"""Opt-in: everything an application's OpenTelemetry MeterProvider collects, as points of KIP-714 pushes.

    reader = KafkaMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    collector.add_source(reader.points)

The names stay OpenTelemetry's, so a subscription needs `*` or their own prefixes to get them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kclient_telemetry import logger_of
from kclient_telemetry.errors import MissingExtraError

try:
    from opentelemetry.sdk.metrics import (
        Counter,
        Histogram,
        ObservableCounter,
        ObservableGauge,
        ObservableUpDownCounter,
        UpDownCounter,
    )
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        HistogramDataPoint,
        Metric,
        MetricReader,
        MetricsData,
        NumberDataPoint,
        Sum,
    )
    from opentelemetry.sdk.metrics.export import Histogram as HistogramData
except ModuleNotFoundError as error:
    raise MissingExtraError("metrics of OpenTelemetry need its SDK: pip install 'kclient-quota[otel]'") from error

from kclient_telemetry.metric import (
    Attributes,
    AttributeValue,
    HistogramValue,
    MetricKind,
    Point,
    PointKey,
    attributes_of,
)

log = logger_of(__name__)

_NANOS_PER_MS = 1_000_000

# Deltas are made by the reporter, against the last push that a broker has taken.
_CUMULATIVE: dict[type, AggregationTemporality] = dict.fromkeys(
    (Counter, UpDownCounter, Histogram, ObservableCounter, ObservableUpDownCounter, ObservableGauge),
    AggregationTemporality.CUMULATIVE,
)


class KafkaMetricReader(MetricReader):
    """Collects when telemetry is pushed, no sooner; an up-down counter becomes a gauge, since KIP-714 has none.

    Attributes:
        unsupported_points: points of exponential histograms, which are not pushed; use explicit buckets for them.
    """

    def __init__(self) -> None:
        super().__init__(preferred_temporality=_CUMULATIVE)
        self.unsupported_points = 0
        self._batches: list[MetricsData] = []
        self._is_shut_down = False

    def points(self) -> list[Point]:
        """The current value of every instrument; none before a MeterProvider has the reader and after its shutdown."""
        if self._is_shut_down:
            return []
        self._batches.clear()
        self.collect()
        return [point for batch in self._batches for point in self._points_of(batch)]

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:  # noqa: ARG002 # the SDK's signature
        self._batches.append(metrics_data)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:  # noqa: ARG002 # the SDK's signature
        """No more points from now on."""
        self._is_shut_down = True

    def _points_of(self, data: MetricsData) -> Iterator[Point]:
        for resource_metrics in data.resource_metrics:
            resource = _attributes(resource_metrics.resource.attributes)
            for scope_metrics in resource_metrics.scope_metrics:
                for metric in scope_metrics.metrics:
                    yield from self._points_of_metric(metric, scope_metrics.scope.name, resource)

    def _points_of_metric(self, metric: Metric, scope: str, resource: Attributes) -> Iterator[Point]:
        data = metric.data
        if not isinstance(data, Gauge | Sum | HistogramData):
            self.unsupported_points += len(data.data_points)
            if self.unsupported_points == len(data.data_points):
                log.warning("metric %s is an exponential histogram and is not pushed", metric.name)
            return
        is_sum = isinstance(data, Sum) and data.is_monotonic
        for point in data.data_points:
            key = PointKey(metric.name, _attributes(point.attributes), scope, resource)
            yield _point(key, point, metric.unit or "", is_sum=is_sum)


def _point(key: PointKey, point: NumberDataPoint | HistogramDataPoint, unit: str, *, is_sum: bool) -> Point:
    start_ms = (point.start_time_unix_nano or 0) // _NANOS_PER_MS or None
    if isinstance(point, HistogramDataPoint):
        value = HistogramValue(tuple(point.explicit_bounds), tuple(point.bucket_counts), point.sum)
        return Point(key, MetricKind.HISTOGRAM, value, start_ms, unit)
    return Point(key, MetricKind.SUM if is_sum else MetricKind.GAUGE, point.value, start_ms, unit)


def _attributes(attributes: Mapping[str, Any] | None) -> Attributes:
    return attributes_of({key: _attribute(value) for key, value in (attributes or {}).items()})


def _attribute(value: AttributeValue | Sequence[Any]) -> AttributeValue:
    """Lists become text: a data point of KIP-714 is told from another by single values."""
    return value if isinstance(value, str | bool | int | float) else ",".join(map(str, value))
