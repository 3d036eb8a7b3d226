"""What a cluster keeps in its journal beside topics and offsets: one entry here for each kind of change."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kclient_quota.broker.cluster_state import Change, ClusterState, quota_entity


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of change.

    Attributes:
        read: the state of a key (without the kind's name) as JSON, None when there is nothing.
        write: let the cluster's state be this again.
    """

    read: Callable[[ClusterState, Change], Any]
    write: Callable[[ClusterState, Change, Any], None]


def _read_config(cluster: ClusterState, key: Change) -> Any:
    return dict(cluster.configs.get((int(key[0] or 0), str(key[1])), {})) or None


def _write_config(cluster: ClusterState, key: Change, value: Any) -> None:
    resource_type, name = int(key[0] or 0), str(key[1])
    wanted = value or {}
    for config in {**cluster.configs.get((resource_type, name), {}), **wanted}:
        cluster.set_config(resource_type, name, config, wanted.get(config))


def _read_quota(cluster: ClusterState, key: Change) -> Any:
    return dict(cluster.quotas.get(quota_entity(key), {})) or None


def _write_quota(cluster: ClusterState, key: Change, value: Any) -> None:
    entity, wanted = quota_entity(key), value or {}
    for quota in {**cluster.quotas.get(entity, {}), **wanted}:
        cluster.set_quota(entity, quota, wanted.get(quota))


KINDS: Mapping[str, Kind] = {
    "config": Kind(_read_config, _write_config),
    "quota": Kind(_read_quota, _write_quota),
}
"""By the first part of `ClusterState.changes`; topics are more than a value and are kept by `ClusterStorage` itself."""
