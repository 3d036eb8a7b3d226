"""What single groups may be set to (KIP-848, KIP-932, KIP-1071): keys and defaults of Kafka 4.3's `GroupConfig`."""

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
    "share.partition.max.record.locks": Property("2000", INT, 1),
    "share.record.lock.duration.ms": Property("30000", INT, 1000),
    "share.renew.acknowledge.enable": Property("true", BOOLEAN),
    "share.session.timeout.ms": Property("45000", INT, 1),
    "streams.assignment.interval.ms": Property("1000", INT),
    "streams.heartbeat.interval.ms": Property("5000", INT, 1),
    "streams.initial.rebalance.delay.ms": Property("3000", INT),
    "streams.num.standby.replicas": Property("0", INT),
    "streams.session.timeout.ms": Property("45000", INT, 1),
}

GROUP_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    SESSION_TIMEOUT: (45_000, 60_000),
    HEARTBEAT_INTERVAL: (5_000, 15_000),
}
"""Least and most of what a group may be given: the defaults of `group.consumer.min.session.timeout.ms` and its like."""

GROUP_BROKER_KEYS: Final[Mapping[str, str]] = {
    SESSION_TIMEOUT: "group.consumer.session.timeout.ms",
    HEARTBEAT_INTERVAL: "group.consumer.heartbeat.interval.ms",
}
"""Broker keys that give the default of a group's."""


def group_bound(key: str, brokers_values: Mapping[str, str]) -> tuple[str, int, str, int] | None:
    """Least and most of a group's key, each with the broker key that says so; None where there is no such limit."""
    if key not in GROUP_BOUNDS:
        return None
    least, most = GROUP_BOUNDS[key]
    kind = key.removeprefix("consumer.")
    least_key, most_key = f"group.consumer.min.{kind}", f"group.consumer.max.{kind}"
    return (
        least_key,
        int(brokers_values.get(least_key) or least),
        most_key,
        int(brokers_values.get(most_key) or most),
    )
