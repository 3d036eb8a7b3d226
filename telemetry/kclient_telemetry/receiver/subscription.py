"""Client-metrics resources: validation, matching, and the subscription id that all brokers agree on.

Sources: Kafka's ClientMetricsConfigs, ClientMetricsInstanceMetadata and ClientMetricsManager.computeSubscriptionId.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

import crc32c

from kclient_telemetry.errors import InvalidConfigurationError, InvalidRequestError
from kclient_telemetry.java import java_hash, spread
from kclient_telemetry.messages import uuid_text
from kclient_telemetry.receiver.plugin import AuthorizableRequestContext

METRICS = "metrics"
INTERVAL_MS = "interval.ms"
MATCH = "match"

INTERVAL_MS_DEFAULT = 300_000
INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 3_600_000
ALL_METRICS = "*"

MATCH_KEYS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

ConfigValue = str | int | Iterable[str]


@dataclass(frozen=True, slots=True)
class MetricsSubscription:
    """One client-metrics resource.

    Attributes:
        metrics: name prefixes; `*` alone for everything.
        interval_ms: between two pushes.
        match: attribute of the client → pattern that must match the whole of it; empty matches every client.
    """

    name: str
    metrics: tuple[str, ...] = ()
    interval_ms: int = INTERVAL_MS_DEFAULT
    match: Mapping[str, re.Pattern[str]] = field(default_factory=dict)

    def matches(self, client: Mapping[str, str | None]) -> bool:
        """Whether every pattern matches; what is not known about a client matches nothing."""
        for key, pattern in self.match.items():
            value = client.get(key)
            if value is None or pattern.fullmatch(value) is None:
                return False
        return True


@dataclass(frozen=True, slots=True)
class Demand:
    """What all matching subscriptions together ask of one client; `metrics` in the order in which Kafka lists them."""

    metrics: tuple[str, ...]
    push_interval_ms: int
    subscription_id: int


def metrics_subscription(name: str, config: Mapping[str, ConfigValue]) -> MetricsSubscription:
    """Validate a resource's configuration as Kafka does, keys as in `kafka-client-metrics.sh`.

    Args:
        name: of the resource.
        config: `metrics` and `match` as lists or comma-separated, `interval.ms` as a number or digits.

    Raises:
        InvalidRequestError: no name, an unknown key, an interval outside 100 ms to 1 h.
        InvalidConfigurationError: an interval that is no number, an illegal pattern, an empty item.
    """
    if not name:
        raise InvalidRequestError("Subscription name can't be empty")
    for key in config:
        if key not in {METRICS, INTERVAL_MS, MATCH}:
            raise InvalidRequestError(f"Unknown client metrics configuration: {key}")
    return MetricsSubscription(
        name,
        tuple(dict.fromkeys(_items(METRICS, config.get(METRICS, "")))),
        _interval(config.get(INTERVAL_MS, INTERVAL_MS_DEFAULT)),
        _patterns(_items(MATCH, config.get(MATCH, ""))),
    )


def client_attributes(client_instance_id: UUID, context: AuthorizableRequestContext) -> dict[str, str | None]:
    """What subscriptions may match a client by."""
    port = context.client_port
    return {
        "client_instance_id": uuid_text(client_instance_id),
        "client_id": context.client_id,
        "client_software_name": context.client_software_name,
        "client_software_version": context.client_software_version,
        "client_source_address": context.client_address,
        "client_source_port": None if port is None else str(port),
    }


def demand_on(
    client_instance_id: UUID, client: Mapping[str, str | None], subscriptions: Iterable[MetricsSubscription]
) -> Demand:
    """The union of the matching subscriptions; the shortest interval counts, never more than five minutes."""
    interval_ms = INTERVAL_MS_DEFAULT
    metrics: dict[str, None] = {}
    for subscription in subscriptions:
        if subscription.matches(client):
            metrics.update(dict.fromkeys(subscription.metrics))
            interval_ms = min(interval_ms, subscription.interval_ms)
    ordered = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(java_hash_set_order(metrics))
    return Demand(ordered, interval_ms, subscription_id(ordered, interval_ms, client_instance_id))


def subscription_id(ordered_metrics: Iterable[str], push_interval_ms: int, client_instance_id: UUID) -> int:
    """Kafka's computeSubscriptionId: CRC32C over Java's `Set.toString()` and the interval, XOR the id's hash code.

    Args:
        ordered_metrics: in the order of a Java HashSet, see `java_hash_set_order`.
        push_interval_ms: of the client.
        client_instance_id: of the client.
    """
    text = f"[{', '.join(ordered_metrics)}]{push_interval_ms}"
    return _int32(crc32c.crc32c(text.encode()) ^ uuid_hash_code(client_instance_id))


def uuid_hash_code(value: UUID) -> int:
    """Java's hash code of a Kafka Uuid, as an unsigned number of 32 bits."""
    mixed = (value.int >> 64) ^ (value.int & 0xFFFFFFFFFFFFFFFF)
    return (mixed >> 32) ^ (mixed & 0xFFFFFFFF)


def java_hash_set_order(strings: Iterable[str]) -> list[str]:
    """`strings` (no duplicates, in order of insertion) as a Java HashSet iterates over them."""
    items = list(strings)
    capacity = 16
    while len(items) > capacity * 3 // 4:
        capacity *= 2
    return sorted(items, key=lambda item: spread(java_hash(item)) & (capacity - 1))


def _int32(value: int) -> int:
    return (value & 0xFFFFFFFF) - ((value & 0x80000000) << 1)


def _items(key: str, value: ConfigValue) -> list[str]:
    """A list as Kafka's ConfigDef parses one: commas separate, blanks around items go, the empty text is no item."""
    if isinstance(value, int):
        raise InvalidConfigurationError(
            f"Invalid value {value} for configuration {key}: Expected a comma separated list."
        )
    if not isinstance(value, str):
        items = [str(item).strip() for item in value]
    elif not value.strip():
        items = []
    else:
        items = [item.strip() for item in value.split(",")]
    if "" in items:
        raise InvalidConfigurationError(f"Configuration '{key}' values must not be empty.")
    return items


def _interval(value: ConfigValue) -> int:
    try:
        interval_ms = int(value) if isinstance(value, str | int) else int(str(value))
    except ValueError as error:
        raise InvalidConfigurationError(
            f"Invalid value {value} for configuration {INTERVAL_MS}: Not a number of type INT"
        ) from error
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise InvalidRequestError(
            f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between {INTERVAL_MS_MIN} and "
            f"{INTERVAL_MS_MAX} (1 hour)"
        )
    return interval_ms


def _patterns(items: Iterable[str]) -> dict[str, re.Pattern[str]]:
    """`key=regular expression` each, split as Java's `split("=")` does; of two for one key the later counts."""
    patterns: dict[str, re.Pattern[str]] = {}
    for item in items:
        key, *rest = (part.strip() for part in item.rstrip("=").split("="))
        if len(rest) != 1 or key not in MATCH_KEYS:
            raise InvalidConfigurationError(f"Illegal client matching pattern: {item}")
        try:
            patterns[key] = re.compile(rest[0])
        except re.error as error:
            raise InvalidConfigurationError(f"Illegal client matching pattern: {item}") from error
    return patterns
