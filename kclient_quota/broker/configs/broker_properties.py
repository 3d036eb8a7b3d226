"""Kafka's broker configuration as far as the embedded broker obeys it, by Kafka's own keys."""

import difflib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kclient_quota.broker.cluster_state import BROKER, ClusterState
from kclient_quota.broker.request.enforcement import FETCH_MAX_BYTES, QuotaSettings
from kclient_quota.broker.request.node import Limits
from kclient_quota.errors import ConfigError
from kclient_quota.quota.callback import ClientQuotaCallback
from kclient_quota.quota.throttle import ThrottleRule

_LOG = logging.getLogger(__name__)
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
"""Kafka's `ConfigDef.Type` ids as DescribeConfigs gives them."""
_NUMBERS: Mapping[int, tuple[str, Callable[[str], float]]] = {
    INT: ("INT", int),
    LONG: ("LONG", int),
    DOUBLE: ("DOUBLE", float),
}


@dataclass(frozen=True, slots=True)
class Property:
    """One key of Kafka's broker configuration.

    Attributes:
        default: Kafka's, or ours where the card of the embedded broker says so.
        type: `BOOLEAN`, `INT`, ...
        least: smallest value of a number.
        is_dynamic: whether it may be altered while the broker runs.
    """

    default: str
    type: int
    least: int = 0
    is_dynamic: bool = False


BROKER_PROPERTIES: Mapping[str, Property] = {
    "auto.create.topics.enable": Property("true", BOOLEAN),
    "connections.max.idle.ms": Property("600000", LONG, -1),
    "connections.max.reauth.ms": Property("0", LONG),
    "fetch.max.bytes": Property(str(FETCH_MAX_BYTES), INT, 1024),
    "group.consumer.heartbeat.interval.ms": Property("5000", INT, 1),
    "group.consumer.max.size": Property("2147483647", INT, 1),
    "group.consumer.session.timeout.ms": Property("45000", INT, 1),
    "group.initial.rebalance.delay.ms": Property("0", INT),
    "group.max.session.timeout.ms": Property("1800000", INT),
    "group.max.size": Property("2147483647", INT, 1),
    "group.min.session.timeout.ms": Property("6000", INT),
    "log.cleanup.policy": Property("delete", LIST, is_dynamic=True),
    "log.message.timestamp.after.max.ms": Property("3600000", LONG, is_dynamic=True),
    "log.message.timestamp.before.max.ms": Property("9223372036854775807", LONG, is_dynamic=True),
    "log.message.timestamp.type": Property("CreateTime", STRING, is_dynamic=True),
    "log.retention.bytes": Property("-1", LONG, -1, is_dynamic=True),
    "log.retention.ms": Property("-1", LONG, -1, is_dynamic=True),
    "log.segment.bytes": Property("1073741824", INT, 1024 * 1024, is_dynamic=True),
    "max.connections": Property("2147483647", INT),
    "max.connections.per.ip": Property("2147483647", INT),
    "message.max.bytes": Property("1048588", INT, is_dynamic=True),
    "min.insync.replicas": Property("1", INT, 1, is_dynamic=True),
    "num.partitions": Property("1", INT, 1),
    "producer.id.expiration.ms": Property("86400000", INT, 1, is_dynamic=True),
    "quota.window.num": Property("11", INT, 1),
    "quota.window.size.seconds": Property("1", INT, 1),
    "sasl.server.max.receive.size": Property("524288", INT),
    "socket.request.max.bytes": Property("104857600", INT, 1),
    "transaction.max.timeout.ms": Property("900000", INT, 1),
}


KEPT_PROPERTIES: Mapping[str, Property] = {
    "advertised.listeners": Property("", STRING),
    "background.threads": Property("10", INT, 1),
    "broker.rack": Property("", STRING),
    "compression.type": Property("producer", STRING),
    "default.replication.factor": Property("1", INT, 1),
    "delete.topic.enable": Property("true", BOOLEAN),
    "group.coordinator.rebalance.protocols": Property("classic,consumer,streams", LIST),
    "inter.broker.listener.name": Property("", STRING),
    "listener.security.protocol.map": Property("", STRING),
    "log.cleaner.enable": Property("true", BOOLEAN),
    "log.dirs": Property("", STRING),
    "log.flush.interval.messages": Property("9223372036854775807", LONG, 1),
    "log.flush.interval.ms": Property("9223372036854775807", LONG),
    "log.retention.check.interval.ms": Property("300000", LONG, 1),
    "log.retention.hours": Property("168", INT, -1),
    "log.retention.minutes": Property("10080", INT, -1),
    "num.io.threads": Property("8", INT, 1),
    "num.network.threads": Property("3", INT, 1),
    "num.replica.fetchers": Property("1", INT, 1),
    "offsets.retention.minutes": Property("10080", INT, 1),
    "offsets.topic.num.partitions": Property("50", INT, 1),
    "offsets.topic.replication.factor": Property("3", INT, 1),
    "process.roles": Property("", STRING),
    "replica.fetch.max.bytes": Property("1048576", INT),
    "socket.receive.buffer.bytes": Property("102400", INT, -1),
    "socket.send.buffer.bytes": Property("102400", INT, -1),
    "transaction.state.log.min.isr": Property("2", INT, 1),
    "transaction.state.log.replication.factor": Property("3", INT, 1),
    "transactional.id.expiration.ms": Property("604800000", INT, 1),
}
"""Keys of Kafka's that a broker of this kind may be given, and that change nothing here."""


class BrokerProperties:
    """What was set by hand when the brokers were made.

    Args:
        values: by Kafka's key.

    Raises:
        ConfigError: a key is not known here, or a value is not of its type.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        for key, value in values.items():
            if key in KEPT_PROPERTIES and not value_problem(key, str(value), KEPT_PROPERTIES[key]):
                _LOG.info("%s is one of Kafka's properties that change nothing here", key)
                continue
            problem = property_problem(key, str(value))
            if problem:
                raise ConfigError(problem)
        self._values = {key: str(value) for key, value in values.items() if key in BROKER_PROPERTIES}

    def value(self, key: str) -> str:
        """What was set, or the default."""
        return self._values.get(key, BROKER_PROPERTIES[key].default)

    def quota_settings(self, callback: ClientQuotaCallback | None, rule: ThrottleRule) -> QuotaSettings:
        """How brokers measure."""
        return QuotaSettings(
            samples=int(self.value("quota.window.num")),
            window_ms=int(self.value("quota.window.size.seconds")) * 1000,
            rule=rule,
            callback=callback,
            fetch_max_bytes=int(self.value("fetch.max.bytes")),
        )

    def limits(self) -> Limits:
        """What clients may cost."""
        return Limits(
            request_max_bytes=int(self.value("socket.request.max.bytes")),
            stranger_max_bytes=int(self.value("sasl.server.max.receive.size")),
            idle_ms=int(self.value("connections.max.idle.ms")),
            connections=int(self.value("max.connections")),
            connections_per_ip=int(self.value("max.connections.per.ip")),
        )

    def apply(self, cluster: ClusterState) -> None:
        """Let a cluster obey, but for what has been altered dynamically since."""
        present = cluster.configs.pop((BROKER, ""), {})
        altered = {key: value for key, value in present.items() if BROKER_PROPERTIES[key].is_dynamic}
        merged = {**self._values, **altered}
        if merged:
            cluster.configs[BROKER, ""] = merged
        cluster.is_auto_create_enabled = self.value("auto.create.topics.enable") == "true"
        cluster.default_partitions = int(self.value("num.partitions"))
        cluster.refresh_log_configs()


def property_problem(key: str, value: str) -> str | None:
    """What is wrong with setting a broker's property, or None."""
    known = BROKER_PROPERTIES.get(key) or KEPT_PROPERTIES.get(key)
    if known is None:
        near = difflib.get_close_matches(key, BROKER_PROPERTIES, 1)
        meant = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(BROKER_PROPERTIES)}"
        return f"the embedded broker does not know the property {key}{meant}"
    return value_problem(key, value, known)


def value_problem(key: str, value: str, known: Property) -> str | None:
    """What is wrong with a value, in Kafka's words, or None."""
    if known.type == BOOLEAN and value not in {"true", "false"}:
        return f"Invalid value {value} for configuration {key}: Expected value to be either true or false"
    if known.type in _NUMBERS:
        name, parse = _NUMBERS[known.type]
        try:
            number = parse(value)
        except ValueError:
            return f"Invalid value {value} for configuration {key}: Not a number of type {name}"
        if number < known.least:
            return f"Invalid value {value} for configuration {key}: Value must be at least {known.least}"
    return None
