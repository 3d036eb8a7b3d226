"""Kafka's broker configuration as far as the embedded broker obeys it, by Kafka's own keys."""

import difflib
from collections.abc import Mapping

from kclient_telemetry import logger_of

from kclient_quota.broker.cluster_state import BROKER, ClusterState
from kclient_quota.broker.configs.kafka_properties import KEPT_PROPERTIES
from kclient_quota.broker.configs.property import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    STRING,
    Property,
    is_true,
    value_problem,
)
from kclient_quota.broker.request.enforcement import FETCH_MAX_BYTES, QuotaSettings
from kclient_quota.broker.request.node import Limits
from kclient_quota.errors import ConfigError
from kclient_quota.quota.callback import ClientQuotaCallback
from kclient_quota.quota.throttle import ThrottleRule

_LOG = logger_of(__name__)
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
BROKER_PROPERTIES: Mapping[str, Property] = {
    "allow.everyone.if.no.acl.found": Property("false", BOOLEAN),
    "authorizer.class.name": Property("", STRING),
    "auto.create.topics.enable": Property("true", BOOLEAN),
    "connections.max.idle.ms": Property("600000", LONG, -1),
    "connections.max.reauth.ms": Property("0", LONG),
    "fetch.max.bytes": Property(str(FETCH_MAX_BYTES), INT, 1024),
    "group.consumer.heartbeat.interval.ms": Property("5000", INT, 1),
    "group.consumer.max.size": Property("2147483647", INT, 1),
    "group.consumer.migration.policy": Property("bidirectional", STRING),
    "group.consumer.session.timeout.ms": Property("45000", INT, 1),
    "group.initial.rebalance.delay.ms": Property("0", INT),
    "group.max.session.timeout.ms": Property("1800000", INT),
    "group.max.size": Property("2147483647", INT, 1),
    "group.min.session.timeout.ms": Property("6000", INT),
    "group.share.max.size": Property("200", INT, 1),
    "log.cleaner.backoff.ms": Property("15000", LONG, is_dynamic=True),
    "log.cleaner.delete.retention.ms": Property("86400000", LONG, is_dynamic=True),
    "log.cleaner.max.compaction.lag.ms": Property("9223372036854775807", LONG, 1, is_dynamic=True),
    "log.cleaner.min.cleanable.ratio": Property("0.5", DOUBLE, is_dynamic=True),
    "log.cleaner.min.compaction.lag.ms": Property("0", LONG, is_dynamic=True),
    "log.cleanup.policy": Property("delete", LIST, is_dynamic=True),
    "log.message.timestamp.after.max.ms": Property("3600000", LONG, is_dynamic=True),
    "log.message.timestamp.before.max.ms": Property("9223372036854775807", LONG, is_dynamic=True),
    "log.message.timestamp.type": Property("CreateTime", STRING, is_dynamic=True),
    "log.retention.bytes": Property("-1", LONG, -1, is_dynamic=True),
    "log.retention.ms": Property("-1", LONG, -1, is_dynamic=True),
    "log.roll.ms": Property("", LONG, 1, is_dynamic=True, has_default=False),
    "log.segment.bytes": Property("1073741824", INT, 1024 * 1024, is_dynamic=True),
    "max.connection.creation.rate": Property("2147483647", INT, 1, is_dynamic=True),
    "max.connections": Property("2147483647", INT, is_dynamic=True),
    "max.connections.per.ip": Property("2147483647", INT, is_dynamic=True),
    "message.max.bytes": Property("1048588", INT, is_dynamic=True),
    "min.insync.replicas": Property("1", INT, 1, is_dynamic=True),
    "num.partitions": Property("1", INT, 1),
    "producer.id.expiration.ms": Property("86400000", INT, 1, is_dynamic=True),
    "quota.window.num": Property("11", INT, 1),
    "quota.window.size.seconds": Property("1", INT, 1),
    "sasl.server.max.receive.size": Property("524288", INT),
    "socket.request.max.bytes": Property("104857600", INT, 1),
    "super.users": Property("", STRING),
    "transaction.max.timeout.ms": Property("900000", INT, 1),
    "transaction.remove.expired.transaction.cleanup.interval.ms": Property("3600000", INT, 1),
    "transactional.id.expiration.ms": Property("604800000", INT, 1),
}


KAFKA_PROPERTIES: Mapping[str, Property] = {**BROKER_PROPERTIES, **KEPT_PROPERTIES}
"""Every key of Kafka's: those that are obeyed here, and those that change nothing."""


class BrokerProperties:
    """What was set by hand when the brokers were made.

    Args:
        values: by Kafka's key.

    Raises:
        ConfigError: a key is not known here, or a value is not of its type.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        for key, value in values.items():
            problem = property_problem(key, str(value))
            if problem:
                raise ConfigError(problem)
            if key in KEPT_PROPERTIES:
                _LOG.info("%s is one of Kafka's properties that change nothing here", key)
        self._values = {key: str(value) for key, value in values.items()}

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
        )

    def apply(self, cluster: ClusterState) -> None:
        """Let a cluster obey, but for what has been altered dynamically since."""
        present = cluster.configs.pop((BROKER, ""), {})
        altered = {key: value for key, value in present.items() if KAFKA_PROPERTIES[key].is_dynamic}
        merged = {**self._values, **altered}
        if merged:
            cluster.configs[BROKER, ""] = merged
        cluster.is_auto_create_enabled = is_true(self.value("auto.create.topics.enable"))
        cluster.default_partitions = int(self.value("num.partitions"))
        cluster.authorizer.configure(
            is_enabled=bool(self.value("authorizer.class.name")),
            super_users=(name.strip() for name in self.value("super.users").split(";")),
            allows_unlisted=is_true(self.value("allow.everyone.if.no.acl.found")),
        )
        cluster.refresh_log_configs()


def property_problem(key: str, value: str) -> str | None:
    """What is wrong with setting a broker's property, or None."""
    known = KAFKA_PROPERTIES.get(key)
    if known is None:
        near = difflib.get_close_matches(key, BROKER_PROPERTIES, 1)
        meant = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(BROKER_PROPERTIES)}"
        return f"the embedded broker does not know the property {key}{meant}"
    if key == "authorizer.class.name" and value not in {"", STANDARD_AUTHORIZER}:
        return f"{key}={value}: use {STANDARD_AUTHORIZER}, whose rules the embedded broker knows, or leave it empty"
    return value_problem(key, value, known)
