"""What a cluster keeps in its journal beside topics and offsets: one entry here for each kind of change."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kclient_quota.broker.authorizer import Acl
from kclient_quota.broker.cluster_state import ClusterState
from kclient_quota.broker.quota_key import Change, quota_entity
from kclient_quota.broker.security.scram_credentials import ScramCredential


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


def _acl(key: Change) -> Acl:
    kind, name, pattern, principal, host, operation, permission = key
    numbers = [int(number or 0) for number in (kind, pattern, operation, permission)]
    return Acl(numbers[0], str(name), numbers[1], str(principal), str(host), numbers[2], numbers[3])


def _read_acl(cluster: ClusterState, key: Change) -> Any:
    return True if _acl(key) in cluster.authorizer else None


def _write_acl(cluster: ClusterState, key: Change, value: Any) -> None:
    (cluster.authorizer.add if value else cluster.authorizer.remove)(_acl(key))


def _read_scram(cluster: ClusterState, key: Change) -> Any:
    user, mechanism = str(key[0]), int(key[1] or 0)
    if (user, mechanism) not in cluster.scram:
        return None
    kept = cluster.scram[user, mechanism]
    return [] if kept is None else [*(part.hex() for part in kept[:3]), kept.iterations]


def _write_scram(cluster: ClusterState, key: Change, value: Any) -> None:
    place = str(key[0]), int(key[1] or 0)
    if value is None:
        cluster.scram.pop(place, None)
    else:
        salt, stored_key, server_key, iterations = value or ("", "", "", 0)
        made = ScramCredential(bytes.fromhex(salt), bytes.fromhex(stored_key), bytes.fromhex(server_key), iterations)
        cluster.scram[place] = made if value else None


def _write_feature(cluster: ClusterState, key: Change, value: Any) -> None:
    if value is None:
        cluster.features.pop(str(key[0]), None)
    else:
        cluster.features[str(key[0])] = int(value)


KINDS: Mapping[str, Kind] = {
    "acl": Kind(_read_acl, _write_acl),
    "config": Kind(_read_config, _write_config),
    "feature": Kind(lambda cluster, key: cluster.features.get(str(key[0])), _write_feature),
    "quota": Kind(_read_quota, _write_quota),
    "scram": Kind(_read_scram, _write_scram),
}
"""By the first part of `ClusterState.changes`; topics are more than a value and are kept by `ClusterStorage` itself."""
