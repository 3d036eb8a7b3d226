"""What KIP-966 does to `min.insync.replicas`: while the feature is on, the cluster has one value, and always has one.

Eligible leaders are counted by the cluster's value, so Apache Kafka (`ConfigurationControlManager`) writes it down when
the feature is finalized, takes brokers' own values away, and lets nobody set one or remove the cluster's. Every new
cluster since 4.1 has the feature: DescribeConfigs shows the key with the source DYNAMIC_DEFAULT_BROKER_CONFIG.
"""

from collections.abc import Mapping
from typing import Final

from kclient_quota.broker.cluster_state import BROKER, ClusterState
from kclient_quota.broker.configs.broker_properties import KAFKA_PROPERTIES
from kclient_quota.broker.configs.features import ELIGIBLE_REPLICAS, level

MIN_IN_SYNC: Final = "min.insync.replicas"


def is_on(cluster: ClusterState) -> bool:
    """Whether the feature is finalized."""
    return not cluster.manner.absent and level(cluster.features, ELIGIBLE_REPLICAS) > 0


def settle(cluster: ClusterState) -> None:
    """Give a cluster whose feature is on one value of the key, and brokers none of their own.

    The value is not among what `data_dir` keeps until somebody sets it: a restart with another property obeys that.
    """
    if not is_on(cluster):
        return
    for broker_id in cluster.brokers:
        if MIN_IN_SYNC in cluster.configs.get((BROKER, str(broker_id)), {}):
            cluster.set_config(BROKER, str(broker_id), MIN_IN_SYNC, None)
    cluster.configs.setdefault((BROKER, ""), {}).setdefault(MIN_IN_SYNC, KAFKA_PROPERTIES[MIN_IN_SYNC].default)


def problem(cluster: ClusterState, broker: str, changes: Mapping[str, str | None]) -> str | None:
    """Why a broker's keys, or with an empty name the cluster's, cannot be changed like this; in Kafka's words."""
    if MIN_IN_SYNC not in changes or not is_on(cluster):
        return None
    if broker:
        return f"Broker-level {MIN_IN_SYNC} cannot be altered while ELR is enabled."
    if changes[MIN_IN_SYNC] is None:
        return f"Cluster-level {MIN_IN_SYNC} cannot be removed while ELR is enabled."
    return None
