r"""Kafka's TelemetryMetricNamingConvention: how a Kafka metric is called in a push.

`org.apache.kafka.` + group + `.` + name; both lower-cased with `-` as `.`, and every `.metrics` taken out of the group.
Tag keys are lower-cased with `-` as `_`; their values stay as they are.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from kclient_telemetry.metric import Attributes, MetricKind, MetricName, Point, PointKey, PointValue

NAME_PREFIX = "org.apache.kafka"

# Kafka's KafkaMetricsCollector leaves this tag to the receiver, who knows it from the request header.
EXCLUDED_LABELS = frozenset({"client_id"})


@lru_cache(maxsize=4096)
def telemetry_name(group: str, name: str) -> str:
    """The name under which the metric `name` of `group` is pushed."""
    clean_group = group.lower().replace("-", ".").replace(".metrics", "")
    return f"{NAME_PREFIX}.{clean_group}.{name.lower().replace('-', '.')}"


def tag_key(key: str) -> str:
    """A tag's key as a push writes it."""
    return key.lower().replace("-", "_")


def telemetry_attributes(tags: Iterable[tuple[str, str]]) -> Attributes:
    """Tags as attributes of a data point, sorted; the client id is left out."""
    named = ((tag_key(key), value) for key, value in tags)
    return tuple(sorted((key, value) for key, value in named if key not in EXCLUDED_LABELS))


def point_of(
    metric: MetricName,
    value: PointValue,
    kind: MetricKind = MetricKind.GAUGE,
    *,
    start_unix_ms: int | None = None,
) -> Point:
    """A Kafka metric's value as a point of a push."""
    key = PointKey(telemetry_name(metric.group, metric.name), telemetry_attributes(metric.tags))
    return Point(key, kind, value, start_unix_ms)


# Kafka's ClientTelemetryProvider: which of the client's own settings go with every push, by namespace.
_RESOURCE_LABELS = {
    "kafka.producer": ("transactional.id",),
    "kafka.consumer": ("group.id", "group.instance.id"),
}


def resource_labels(namespace: str, config: Mapping[str, object]) -> dict[str, str]:
    """The attributes that a client of `namespace` (`kafka.producer`, `kafka.consumer`, …) adds to its pushes.

    Only what the user has configured; everything else about the client is for the receiver to add.
    """
    keys = ("client.rack", *_RESOURCE_LABELS.get(namespace, ()))
    return {key.replace(".", "_"): str(config[key]) for key in keys if key in config}
