"""What single groups may be set to (KIP-848, KIP-932, KIP-1071): keys and defaults of Kafka 4.3's `GroupConfig`."""

import re
from collections.abc import Mapping
from typing import Final

from kclient_quota.broker.configs.property import BOOLEAN, INT, STRING, Property

SESSION_TIMEOUT, HEARTBEAT_INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

GROUP_PROPERTIES: Final[Mapping[str, Property]] = {
    "consumer.assignment.interval.ms": Property("1000", INT),
    HEARTBEAT_INTERVAL: Property("5000", INT, 1),
    SESSION_TIMEOUT: Property("45000", INT, 1),
    "share.assignment.interval.ms": Property("1000", INT),
    "share.auto.offset.reset": Property("latest", STRING),
    "share.delivery.count.limit": Property("5", INT, 2),
    "share.heartbeat.interval.ms": Property("5000", INT, 1),
    "share.isolation.level": Property("read_uncommitted", STRING),
    "share.partition.max.record.locks": Property("2000", INT, 100),
    "share.record.lock.duration.ms": Property("30000", INT, 1000),
    "share.renew.acknowledge.enable": Property("true", BOOLEAN),
    "share.session.timeout.ms": Property("45000", INT, 1),
    "streams.assignment.interval.ms": Property("1000", INT),
    "streams.heartbeat.interval.ms": Property("5000", INT, 1),
    "streams.initial.rebalance.delay.ms": Property("3000", INT),
    "streams.num.standby.replicas": Property("0", INT),
    "streams.session.timeout.ms": Property("45000", INT, 1),
}

_BOUNDS: Final[Mapping[str, tuple[str, int, int]]] = {
    SESSION_TIMEOUT: ("group.consumer.{}.session.timeout.ms", 45_000, 60_000),
    HEARTBEAT_INTERVAL: ("group.consumer.{}.heartbeat.interval.ms", 5_000, 15_000),
    "share.delivery.count.limit": ("group.share.{}.delivery.count.limit", 2, 10),
    "share.heartbeat.interval.ms": ("group.share.{}.heartbeat.interval.ms", 5_000, 15_000),
    "share.partition.max.record.locks": ("group.share.{}.partition.max.record.locks", 100, 4_000),
    "share.record.lock.duration.ms": ("group.share.{}.record.lock.duration.ms", 15_000, 60_000),
    "share.session.timeout.ms": ("group.share.{}.session.timeout.ms", 45_000, 60_000),
}
"""Broker keys ("min" and "max" in their middle) that bound what a group may be given, and their defaults."""

_WITHOUT_BROKER_KEY: Final = frozenset(
    {"share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable"}
)
GROUP_BROKER_KEYS: Final[Mapping[str, str]] = {
    key: f"group.{key}" for key in GROUP_PROPERTIES if key.startswith("share.") and key not in _WITHOUT_BROKER_KEY
} | {
    SESSION_TIMEOUT: "group.consumer.session.timeout.ms",
    HEARTBEAT_INTERVAL: "group.consumer.heartbeat.interval.ms",
}
"""Broker keys that give the default of a group's."""
_ISOLATION_LEVELS: Final = ("read_committed", "read_uncommitted")
_RESET: Final = re.compile(r"latest|earliest|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")


def group_word_problem(key: str, value: str) -> str | None:
    """What is wrong with a group's value that is a word, in Kafka's words, or None."""
    if key == "share.isolation.level" and value not in _ISOLATION_LEVELS:
        known = ", ".join(_ISOLATION_LEVELS)
        return f"Invalid value {value} for configuration {key}: String must be one of: {known}"
    if key == "share.auto.offset.reset" and not _RESET.fullmatch(value):
        wrong = f"Invalid value `{value}` for configuration {key}. The value must be either 'earliest', 'latest' or"
        return f"Invalid value {value} for configuration {key}: {wrong} of the format 'by_duration:<PnDTnHnMn.nS>'."
    return None


def group_bound(key: str, brokers_values: Mapping[str, str]) -> tuple[str, int, str, int] | None:
    """Least and most of a group's key, each with the broker key that says so; None where there is no such limit."""
    if key not in _BOUNDS:
        return None
    name, least, most = _BOUNDS[key]
    least_key, most_key = name.format("min"), name.format("max")
    return (
        least_key,
        int(brokers_values.get(least_key) or least),
        most_key,
        int(brokers_values.get(most_key) or most),
    )
