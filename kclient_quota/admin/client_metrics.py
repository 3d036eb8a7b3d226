"""Client-metrics subscriptions (KIP-714): which metrics the brokers want of which clients, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kclient_quota.cluster.configs import (
    AlterOp,
    ConfigOp,
    ResourceType,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from kclient_quota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kclient_quota.cluster.client import ClusterClient

INTERVAL_MS = "interval.ms"
MATCH = "match"
METRICS = "metrics"
DEFAULT_INTERVAL_MS = 300_000
_KEYS = (INTERVAL_MS, MATCH, METRICS)


@dataclass(frozen=True, slots=True)
class ClientMetricsSubscription:
    """One subscription, defaults filled in.

    Attributes:
        name: its own.
        interval_ms: milliseconds between pushes.
        match: selectors such as "client_id=app-.*", all of which a client must match; empty is every client.
        metrics: beginnings of the metrics' names; `("*",)` is every metric, empty is none.
    """

    name: str
    interval_ms: int = DEFAULT_INTERVAL_MS
    match: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()


def list_subscriptions(client: ClusterClient, *, timeout_ms: int) -> list[str]:
    """Names of all subscriptions.

    Raises:
        ClusterError: the cluster refused or did not answer.
    """
    found = list_config_resources(client, [ResourceType.CLIENT_METRICS], timeout_ms=timeout_ms)
    return [name for kind, name in found if kind == ResourceType.CLIENT_METRICS]


def describe_subscription(client: ClusterClient, name: str, *, timeout_ms: int) -> ClientMetricsSubscription | None:
    """One subscription, or None when there is none of this name. Brokers describe, with defaults, also what is not.

    Raises:
        ConfigError: the name is empty.
        ClusterError: the cluster refused or did not answer.
    """
    _check_name(name)
    if name not in list_subscriptions(client, timeout_ms=timeout_ms):
        return None
    entries = describe_configs(client, ResourceType.CLIENT_METRICS, name, timeout_ms=timeout_ms)
    values = {key: entries[key].value or "" for key in _KEYS if key in entries}
    return ClientMetricsSubscription(
        name,
        int(values.get(INTERVAL_MS) or DEFAULT_INTERVAL_MS),
        _parts(values.get(MATCH, "")),
        _parts(values.get(METRICS, "")),
    )


def alter_subscription(
    client: ClusterClient,
    name: str,
    values: Mapping[str, str | None],
    *,
    validate_only: bool = False,
    timeout_ms: int,
) -> None:
    """Set some of `interval.ms`, `match` and `metrics`; None puts a key back to its default.

    Raises:
        ConfigError: the name is empty, or nothing is to be altered.
        ClusterError: the cluster refused, in its words, or did not answer.
    """
    _check_name(name)
    if not values:
        raise ConfigError(f"client-metrics subscription {name!r}: give interval_ms, match or metrics to alter")
    ops = [
        ConfigOp(key, None, AlterOp.DELETE) if value is None else ConfigOp(key, value, AlterOp.SET)
        for key, value in values.items()
    ]
    incremental_alter_configs(
        client, ResourceType.CLIENT_METRICS, name, ops, validate_only=validate_only, timeout_ms=timeout_ms
    )


def delete_subscription(client: ClusterClient, name: str, *, timeout_ms: int) -> None:
    """Delete a subscription: all of its keys. One that is not there is no error, as in Kafka's own tool.

    Raises:
        ConfigError: the name is empty.
        ClusterError: the cluster refused or did not answer.
    """
    alter_subscription(client, name, dict.fromkeys(_KEYS), timeout_ms=timeout_ms)


def _check_name(name: str) -> None:
    if not name:
        raise ConfigError("name: a client-metrics subscription needs one")


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
