"""Metrics as Kafka names them, and points as they are pushed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kclient_telemetry.kind import MetricKind as MetricKind  # noqa: PLC0414 - everybody else's place to find it

AttributeValue = str | bool | int | float
Attributes = tuple[tuple[str, AttributeValue], ...]
Tags = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MetricName:
    """Kafka's MetricName: equal when name, group and tags are; the description does not count.

    Attributes:
        name: such as "produce-throttle-time-avg".
        group: such as "producer-metrics".
        tags: pairs of key and value, sorted by key; of a client ("client-id", ...) always, ("node-id", "node-1") per
            broker.
        description: for people.
    """

    name: str
    group: str
    tags: Tags = ()
    description: str = field(default="", compare=False)

    def tag(self, key: str) -> str | None:
        """The value of one tag, or None."""
        return dict(self.tags).get(key)


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """A distribution: `bucket_counts` has one more entry than `bounds`, whose last bucket is unbounded.

    Attributes:
        bounds: upper bounds (inclusive), ascending.
        bucket_counts: observations per bucket.
        total: sum of all observations.
    """

    bounds: tuple[float, ...]
    bucket_counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.bucket_counts)


PointValue = int | float | HistogramValue


@dataclass(frozen=True, slots=True)
class PointKey:
    """What tells one series from another."""

    name: str
    attributes: Attributes = ()
    scope: str = ""
    resource: Attributes = ()


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one series, as its source knows it: sums and histograms count since `start_unix_ms`.

    Attributes:
        key: the series; its name is the telemetry name (`org.apache.kafka.…` for Kafka's own metrics).
        kind: shape of `value`.
        value: number for gauges and sums, `HistogramValue` for histograms.
        start_unix_ms: since when a sum or histogram counts; None: since the collector first saw it.
        unit: UCUM unit, or empty (Kafka's Java client sends none).
    """

    key: PointKey
    kind: MetricKind
    value: PointValue
    start_unix_ms: int | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class PushPoint:
    """A `Point` made ready for a push: value and start follow the subscription's temporality.

    Attributes:
        point: as collected; its value is always cumulative.
        value: what is sent.
        start_unix_ms: start of the interval that `value` covers; None for gauges.
        time_unix_ms: when it was collected.
        delta: True when `value` is the change since the last acknowledged push.
    """

    point: Point
    value: PointValue
    start_unix_ms: int | None
    time_unix_ms: int
    delta: bool


def attributes_of(values: Mapping[str, AttributeValue]) -> Attributes:
    """`values` sorted by key, so that equal attributes give equal keys."""
    return tuple(sorted(values.items()))


def subtract(value: PointValue, earlier: PointValue) -> PointValue | None:
    """What was added to a growing `value` since `earlier`; None when it began anew in between."""
    if isinstance(value, HistogramValue) and isinstance(earlier, HistogramValue):
        return _subtract_histogram(value, earlier)
    if isinstance(value, HistogramValue) or isinstance(earlier, HistogramValue):
        return None
    return value - earlier if value >= earlier else None


def _subtract_histogram(value: HistogramValue, earlier: HistogramValue) -> HistogramValue | None:
    if value.bounds != earlier.bounds:
        return None
    counts = tuple(now - then for now, then in zip(value.bucket_counts, earlier.bucket_counts, strict=True))
    if any(count < 0 for count in counts):
        return None
    return HistogramValue(value.bounds, counts, value.total - earlier.total)
