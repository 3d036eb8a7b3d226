"""Configurations of topics, brokers, their loggers, groups and client-metrics subscriptions.

Described and altered by Kafka's rules.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kclient_telemetry.errors import TelemetryError
from kclient_telemetry.receiver.subscription import (
    INTERVAL_MS,
    INTERVAL_MS_DEFAULT,
    MATCH,
    METRICS,
    metrics_subscription,
)

from kclient_quota.broker.cluster_state import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    BrokerInfo,
    ClusterState,
)
from kclient_quota.broker.configs import eligible_replicas
from kclient_quota.broker.configs.broker_loggers import LEVELS, ROOT, level_of, logger_names, set_level
from kclient_quota.broker.configs.broker_properties import KAFKA_PROPERTIES
from kclient_quota.broker.configs.group_properties import (
    GROUP_BROKER_KEYS,
    GROUP_PROPERTIES,
    group_bound,
    group_word_problem,
)
from kclient_quota.broker.configs.kafka_properties import TOLD_WHEN_SET
from kclient_quota.broker.configs.property import INT, LIST, Property, is_true, value_problem
from kclient_quota.broker.configs.topic_properties import BROKER_KEY_OF, TOPIC_PROPERTIES
from kclient_quota.broker.request.node import PER_ADDRESS
from kclient_quota.wire.error_codes import ErrorCode

SET, DELETE, APPEND, SUBTRACT = range(4)
_WITHOUT_DEFAULT = {TOPIC: "topic", GROUP: "group"}
_NO_TIERS = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
)
_VERBS = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

FROM_TOPIC, FROM_BROKER, FROM_BROKER_DEFAULT, FROM_STATIC, FROM_DEFAULT = range(1, 6)
FROM_LOGGER, FROM_CLIENT_METRICS, FROM_GROUP = range(6, 9)
"""Kafka's `ConfigSource` ids."""

CLIENT_METRICS_PROPERTIES: Mapping[str, Property] = {
    INTERVAL_MS: Property(str(INTERVAL_MS_DEFAULT), INT),
    MATCH: Property("", LIST),
    METRICS: Property("", LIST),
}

Synonym = tuple[str, str, int]
"""Key, value and source."""


class ResourceError(Exception):
    """A resource cannot be described or altered.

    Attributes:
        error_code: Kafka's code for it.
    """

    def __init__(self, error_code: int, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """One key of a resource and its value.

    Attributes:
        name: Kafka's key.
        value: what holds; None where Kafka has no default.
        source: where the value comes from, a `ConfigSource` id.
        type: Kafka's `ConfigDef.Type` id.
        is_read_only: whether it cannot be altered while the broker runs.
        synonyms: every place that gives a value, the one that holds first.
    """

    name: str
    value: str | None
    source: int
    type: int
    is_read_only: bool
    synonyms: tuple[Synonym, ...]


# -- describing


def describe(cluster: ClusterState, resource_type: int, name: str) -> list[DescribedConfig]:
    """Every key of a resource.

    Raises:
        ResourceError: there is no such resource.
    """
    if resource_type == TOPIC:
        if name not in cluster.topics:
            raise ResourceError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"This server does not host this topic: {name}")
        return effective_topic_configs(cluster, name)
    if resource_type == BROKER:
        _check_broker(cluster, name)
        told = [key for key in KAFKA_PROPERTIES if (name and key not in TOLD_WHEN_SET) or _is_set(cluster, name, key)]
        return [_broker_config(cluster, name, key) for key in told]
    if resource_type == BROKER_LOGGER:
        _check_broker(cluster, name or "-")
        return [DescribedConfig(key, level_of(key), FROM_LOGGER, 0, False, ()) for key in logger_names()]
    if resource_type == GROUP:
        return [_group_config(cluster, name, key) for key in GROUP_PROPERTIES]
    if resource_type == CLIENT_METRICS:
        if not name:
            raise ResourceError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return [_client_metrics_config(cluster, name, key) for key in CLIENT_METRICS_PROPERTIES]
    raise ResourceError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")


def effective_topic_configs(cluster: ClusterState, topic: str) -> list[DescribedConfig]:
    """Every key of a topic, whether it exists already or not."""
    return [_topic_config(cluster, topic, key) for key in TOPIC_PROPERTIES]


def resource_names(cluster: ClusterState, resource_type: int) -> list[str]:
    """Names of the resources of a type."""
    if resource_type == TOPIC:
        return sorted(cluster.topics)
    if resource_type == BROKER:
        return [str(broker_id) for broker_id in cluster.brokers]
    if resource_type == BROKER_LOGGER:
        return [str(broker_id) for broker_id in cluster.brokers]
    return sorted(name for kind, name in cluster.configs if kind == resource_type)


def _is_set(cluster: ClusterState, name: str, key: str) -> bool:
    return cluster.config(BROKER, name, key) is not None


def _topic_config(cluster: ClusterState, topic: str, key: str) -> DescribedConfig:
    known = TOPIC_PROPERTIES[key]
    own = cluster.configs.get((TOPIC, topic), {}).get(key)
    synonyms: list[Synonym] = [] if own is None else [(key, own, FROM_TOPIC)]
    broker_key = BROKER_KEY_OF.get(key, key)
    if broker_key in KAFKA_PROPERTIES:
        synonyms += _broker_synonyms(cluster, "", broker_key)
    if not synonyms:  # no key of a broker's gives a default
        return DescribedConfig(key, known.default, FROM_DEFAULT, known.type, is_read_only=False, synonyms=())
    return _described(key, known, synonyms, is_read_only=False)


def _broker_config(cluster: ClusterState, name: str, key: str) -> DescribedConfig:
    known = KAFKA_PROPERTIES[key]
    return _described(key, known, _broker_synonyms(cluster, name, key), is_read_only=not known.is_dynamic)


def _broker_synonyms(cluster: ClusterState, name: str, key: str) -> list[Synonym]:
    found: list[Synonym] = []
    if name and (own := cluster.configs.get((BROKER, name), {}).get(key)) is not None:
        found.append((key, own, FROM_BROKER))
    if (default := cluster.configs.get((BROKER, ""), {}).get(key)) is not None:
        found.append((key, default, FROM_BROKER_DEFAULT))
    if name and key in _STATIC:
        found.append((key, _STATIC[key](cluster.brokers[int(name)]), FROM_STATIC))
    known = KAFKA_PROPERTIES[key]
    return [*found, (key, known.default, FROM_DEFAULT)] if known.has_default else found


def _addresses(broker: BrokerInfo) -> str:
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    return ",".join(f"{name}://{host}:{port}" for name, port in broker.ports.items())


_STATIC: Mapping[str, Callable[[BrokerInfo], str]] = {
    "advertised.listeners": _addresses,
    "broker.id": lambda broker: str(broker.id),
    "node.id": lambda broker: str(broker.id),
}
"""What a broker is started with, by key."""


def _group_config(cluster: ClusterState, name: str, key: str) -> DescribedConfig:
    known = GROUP_PROPERTIES[key]
    own = cluster.configs.get((GROUP, name), {}).get(key)
    synonyms: list[Synonym] = [] if own is None else [(key, own, FROM_GROUP)]
    broker_key = GROUP_BROKER_KEYS.get(key)
    default = known.default if broker_key is None else cluster.config(BROKER, "", broker_key) or known.default
    return _described(key, known, [*synonyms, (key, default, FROM_DEFAULT)], is_read_only=False)


def _client_metrics_config(cluster: ClusterState, name: str, key: str) -> DescribedConfig:
    known = CLIENT_METRICS_PROPERTIES[key]
    own = cluster.configs.get((CLIENT_METRICS, name), {}).get(key)
    if own is not None:
        return _described(key, known, [(key, own, FROM_CLIENT_METRICS)], is_read_only=False)
    return DescribedConfig(key, known.default, FROM_DEFAULT, known.type, is_read_only=False, synonyms=())


def _described(key: str, known: Property, synonyms: list[Synonym], *, is_read_only: bool) -> DescribedConfig:
    if not synonyms:
        return DescribedConfig(key, None, FROM_DEFAULT, known.type, is_read_only, ())
    return DescribedConfig(key, synonyms[0][1], synonyms[0][2], known.type, is_read_only, tuple(synonyms))


# -- altering


def alter(
    cluster: ClusterState,
    resource_type: int,
    name: str,
    operations: Iterable[tuple[str, int, str | None]],
    *,
    validate_only: bool,
) -> None:
    """Set, delete, append to or subtract from keys of one resource; all of it or nothing.

    Args:
        cluster: the cluster.
        resource_type: Kafka's id.
        name: of the resource.
        operations: key, `SET` and so on, value.
        validate_only: change nothing.

    Raises:
        ResourceError: it cannot be done.
    """
    operations = list(operations)
    keys = [key for key, _, _ in operations]
    if len(set(keys)) < len(keys):
        raise ResourceError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if not name and resource_type in _WITHOUT_DEFAULT:
        words = f"Default {_WITHOUT_DEFAULT[resource_type]} resources are not allowed."
        raise ResourceError(ErrorCode.INVALID_REQUEST, words)
    if resource_type == BROKER_LOGGER:
        _check_broker(cluster, name or "-")
        _alter_loggers(operations, validate_only=validate_only)
        return
    properties = _properties(cluster, resource_type, name)
    present = cluster.configs.get((resource_type, name), {})
    changes = {key: _changed(properties.get(key), key, op, value, present) for key, op, value in operations}
    _validate(cluster, resource_type, name, present, changes)
    if not validate_only:
        for key, new in changes.items():
            cluster.set_config(resource_type, name, key, new)


def topic_config_problem(key: str, value: str | None) -> str | None:
    """What is wrong with setting a topic's key, or None."""
    known = TOPIC_PROPERTIES.get(key)
    if known is None:
        return f"Unknown topic config name: {key}"
    if value is None:
        return f"Null value not supported for topic configs: {key}"
    if key == "remote.storage.enable" and is_true(value):
        return _NO_TIERS
    return value_problem(key, value, known)


def _properties(cluster: ClusterState, resource_type: int, name: str) -> Mapping[str, Property]:
    if resource_type == TOPIC:
        if name not in cluster.topics:
            raise ResourceError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return TOPIC_PROPERTIES
    if resource_type == BROKER:
        _check_broker(cluster, name)
        return KAFKA_PROPERTIES
    if resource_type == GROUP:
        return GROUP_PROPERTIES
    if resource_type == CLIENT_METRICS:
        return CLIENT_METRICS_PROPERTIES
    raise ResourceError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource_type}.")


def _check_broker(cluster: ClusterState, name: str) -> None:
    if name and not (name.isdecimal() and int(name) in cluster.brokers):
        raise ResourceError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected one of {sorted(cluster.brokers)}, but received {name}",
        )


def _changed(
    known: Property | None, key: str, operation: int, value: str | None, present: Mapping[str, str]
) -> str | None:
    """The key's new value; None for its default."""
    if operation == DELETE:
        return None
    if value is None:
        raise ResourceError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {key}")
    if operation == SET:
        return value
    if operation not in _VERBS:
        raise ResourceError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation}.")
    if known is None or known.type != LIST or known in CLIENT_METRICS_PROPERTIES.values():
        raise ResourceError(
            ErrorCode.INVALID_CONFIG, f"Can't {_VERBS[operation]} to key {key} because its type is not LIST."
        )
    items = [item for item in present.get(key, known.default).split(",") if item]
    named = [item for item in value.split(",") if item]
    if operation == APPEND:
        return ",".join(items + [item for item in named if item not in items])
    return ",".join(item for item in items if item not in named)


def _alter_loggers(operations: list[tuple[str, int, str | None]], *, validate_only: bool) -> None:
    """Kafka's `LoggingController` and `BrokerConfigHandler.validateLogLevelConfigs`, in their words."""
    names = set(logger_names())
    for key, operation, level in operations:
        if operation in _VERBS:
            raise ResourceError(
                ErrorCode.INVALID_REQUEST,
                f"{_VERBS[operation]} operation is not allowed for the BROKER_LOGGER resource",
            )
        if key not in names:
            raise ResourceError(ErrorCode.INVALID_CONFIG, f"Logger {key} does not exist!")
        if operation == DELETE and key == ROOT:
            raise ResourceError(
                ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed"
            )
        if operation == SET and level not in LEVELS:
            raise ResourceError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {key} to {level} as it is not a supported log level. "
                f"Valid log levels are {', '.join(LEVELS)}",
            )
    if not validate_only:
        for key, operation, level in operations:
            set_level(key, level if operation == SET else None)


def _validate(
    cluster: ClusterState,
    resource_type: int,
    name: str,
    present: Mapping[str, str],
    changes: Mapping[str, str | None],
) -> None:
    if resource_type == CLIENT_METRICS:
        merged = {key: value for key, value in {**present, **changes}.items() if value is not None}
        try:
            metrics_subscription(name, merged)
        except TelemetryError as error:
            raise ResourceError(error.error_code, str(error)) from error
        return
    if resource_type == BROKER and (problem := eligible_replicas.problem(cluster, name, changes)):
        raise ResourceError(ErrorCode.INVALID_CONFIG, problem)
    for key, value in changes.items():
        if resource_type == TOPIC:
            problem = None if value is None else topic_config_problem(key, value)
        elif resource_type == GROUP:
            problem = _group_problem(cluster, key, value)
        else:
            problem = _broker_problem(cluster, name, key, value)
        if problem:
            raise ResourceError(ErrorCode.INVALID_CONFIG, problem)


def _group_problem(cluster: ClusterState, key: str, value: str | None) -> str | None:
    known = GROUP_PROPERTIES.get(key)
    if known is None:
        return f"Unknown group config name: {key}"
    if value is None:
        return None
    problem = value_problem(key, value, known) or group_word_problem(key, value)
    bound = group_bound(key, cluster.configs.get((BROKER, ""), {}))
    if problem or bound is None:
        return problem
    least_key, least, most_key, most = bound
    if int(value) < least:
        return f"{key} must be greater than or equal to {least_key}"
    return f"{key} must be less than or equal to {most_key}" if int(value) > most else None


def _broker_problem(cluster: ClusterState, name: str, key: str, value: str | None) -> str | None:
    known = KAFKA_PROPERTIES.get(key)
    if known is None:
        return f"Unknown broker config name: {key}"
    if not known.is_dynamic:
        raise ResourceError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: Set({key})")
    problem = None if value is None else value_problem(key, value, known)
    if (key, value) == (PER_ADDRESS, "0") and not cluster.config(BROKER, name, f"{PER_ADDRESS}.overrides"):
        problem = f"requirement failed: {key} can be set to zero only if {key}.overrides property is set."
    if problem:  # a broker's own objection, unlike the controller's
        raise ResourceError(ErrorCode.INVALID_REQUEST, problem)
    return None
