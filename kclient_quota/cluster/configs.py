"""Configuration of brokers, topics and client-metrics subscriptions on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from kclient_quota.errors import ClusterError
from kclient_quota.wire.endpoint import DEFAULT_TIMEOUT_MS
from kclient_quota.wire.error_codes import ErrorCode, error_name
from kclient_quota.wire.messages import (
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kclient_quota.cluster.client import ClusterClient
    from kclient_quota.wire.schema import Request

QUOTA_WINDOW_NUM = "quota.window.num"
QUOTA_WINDOW_SIZE_SECONDS = "quota.window.size.seconds"
_DENIED = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "group",
}


class ResourceType(IntEnum):
    """Kafka's `ConfigResource.Type`."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterOp(IntEnum):
    """Kafka's `AlterConfigOp.OpType`."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One configuration value.

    Attributes:
        name: the key.
        value: None when it is sensitive or has none.
        source: Kafka's ConfigSource: 5 is a default, 7 a client-metrics subscription's own.
        is_sensitive: whether the broker withholds the value.
        read_only: whether it cannot be altered.
    """

    name: str
    value: str | None
    source: int
    is_sensitive: bool
    read_only: bool


@dataclass(frozen=True, slots=True)
class ConfigOp:
    """One change of a configuration; `value` is None for DELETE."""

    name: str
    value: str | None
    op: AlterOp = AlterOp.SET


def describe_request(
    resource_type: int, names: Iterable[str], keys: Sequence[str] | None = None
) -> DescribeConfigsRequest:
    """The request for some resources' configuration, all of it unless keys are named."""
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=resource_type,
            resource_name=name,
            configuration_keys=None if keys is None else list(keys),
        )
        for name in names
    ]
    return DescribeConfigsRequest(resources=resources)


def describe_configs(
    client: ClusterClient,
    resource_type: int,
    name: str,
    keys: Sequence[str] | None = None,
    *,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> dict[str, ConfigEntry]:
    """Configuration of one resource by key; a broker is asked for its own.

    Args:
        client: whom to ask.
        resource_type: a `ResourceType`.
        name: topic, node id or subscription.
        keys: those wanted, all by default.
        timeout_ms: for the whole.

    Raises:
        ClusterError: the broker refused or did not answer.
    """
    request = describe_request(resource_type, [name], keys)
    result = _ask_for(client, resource_type, name, request, timeout_ms).results[0]
    if result.error_code:
        raise _refusal("described", resource_type, name, result)
    return {
        found.name: ConfigEntry(found.name, found.value, found.config_source, found.is_sensitive, found.read_only)
        for found in result.configs
    }


def incremental_alter_configs(
    client: ClusterClient,
    resource_type: int,
    name: str,
    ops: Sequence[ConfigOp],
    *,
    validate_only: bool = False,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
) -> None:
    """Change some keys of one resource, leaving the others alone.

    Args:
        client: whom to ask.
        resource_type: a `ResourceType`.
        name: topic, node id or subscription.
        ops: what to change.
        validate_only: only check.
        timeout_ms: for the whole.

    Raises:
        ClusterError: the broker refused, in its words, or did not answer.
    """
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name=op.name, config_operation=op.op, value=op.value)
            for op in ops
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    result = _ask_for(client, resource_type, name, request, timeout_ms).responses[0]
    if result.error_code:
        raise _refusal("altered", resource_type, name, result)


def list_config_resources(
    client: ClusterClient, resource_types: Iterable[int] = (), *, timeout_ms: int = DEFAULT_TIMEOUT_MS
) -> list[tuple[int, str]]:
    """Types and names of the resources that have a configuration.

    Args:
        client: whom to ask.
        resource_types: those wanted, all by default. Brokers before 4.1 list client-metrics subscriptions only.
        timeout_ms: for the whole.

    Raises:
        ClusterError: the broker refused or did not answer.
    """
    wanted = [int(kind) for kind in resource_types]
    response = client.ask(ListConfigResourcesRequest(resource_types=wanted), timeout_ms=timeout_ms)
    if response.error_code:
        denied = response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        remedy = "; DESCRIBE_CONFIGS on the cluster is needed" if denied else ""
        raise ClusterError(
            f"config resources were not listed: {error_name(response.error_code)}{remedy}",
            error_code=response.error_code,
        )
    return [(found.resource_type, found.resource_name) for found in response.config_resources]


def window_of(entries: Mapping[str, str | None]) -> tuple[int, int] | None:
    """Samples and milliseconds a sample of a quota window, from a broker's configuration; None if it is not there."""
    samples, seconds = entries.get(QUOTA_WINDOW_NUM), entries.get(QUOTA_WINDOW_SIZE_SECONDS)
    if samples is None or seconds is None:
        return None
    return int(samples), int(seconds) * 1000


def _ask_for(client: ClusterClient, resource_type: int, name: str, request: Request, timeout_ms: int) -> Any:
    if resource_type in {ResourceType.BROKER, ResourceType.BROKER_LOGGER} and name:
        if not name.isdecimal():
            raise ClusterError(f"broker {name!r} is no node id; use a number", error_code=ErrorCode.INVALID_REQUEST)
        return client.ask_broker(int(name), request, timeout_ms=timeout_ms)
    return client.ask(request, timeout_ms=timeout_ms)


def _refusal(verb: str, resource_type: int, name: str, result: Any) -> ClusterError:
    known = resource_type in set(ResourceType)
    kind = ResourceType(resource_type).name.lower().replace("_", "-") if known else f"resource of type {resource_type}"
    said = f"{error_name(result.error_code)} {result.error_message or ''}".strip()
    where = _DENIED.get(result.error_code)
    remedy = f"; {'ALTER' if verb == 'altered' else 'DESCRIBE'}_CONFIGS on the {where} is needed" if where else ""
    if remedy:
        said = said.rstrip(".")
    return ClusterError(f"{kind} {name!r} was not {verb}: {said}{remedy}", error_code=result.error_code)
