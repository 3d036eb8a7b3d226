"""What scenes set up beforehand."""

import socket
from collections.abc import Mapping
from typing import Any, Final

from kclient_quota.broker.server import EmbeddedBroker
from kclient_quota.certify.scene import Prepare
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.errors import ClusterError
from kclient_quota.wire.messages import AlterPartitionReassignmentsRequest, IncrementalAlterConfigsRequest

_CONNECTIONS_PER_S: Final = 2
_WINDOW_S: Final = 10
_GROUP_CONFIG, _SET = 32, 0


def quota(**limits: Any) -> Prepare:
    """A quota of the client's client-id, by Kafka's keys."""
    return lambda cluster, name: cluster.set_quota(client_id=name, **limits)


def throttle(api_key: int, throttle_ms: int, times: int = 1) -> Prepare:
    """The next answers of an API are throttled, whatever was sent."""

    def prepare(cluster: EmbeddedBroker, name: str) -> None:
        cluster.throttle_next(api_key, throttle_ms, times=times, client_id=name)

    return prepare


def configure_group(bootstrap_servers: str, group: str, configs: Mapping[str, object]) -> None:
    """Set a group's configuration, by Kafka's keys (`share.auto.offset.reset`).

    Raises:
        ClusterError: the cluster refuses.
    """
    entries = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=_SET, value=str(value))
        for key, value in configs.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=_GROUP_CONFIG, resource_name=group, configs=entries
    )
    with ClusterClient({"bootstrap.servers": bootstrap_servers}, SYSTEM_CLOCK) as client:
        (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
    if answer.error_code:
        raise ClusterError(f"the group's configuration was refused: {answer.error_message}")


def move_leader(cluster: EmbeddedBroker, topic: str) -> None:
    """Partition 0 goes to brokers 2 and 3; broker 1, which led it, stays up.

    Raises:
        ClusterError: the cluster refuses.
    """
    moved = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=[2, 3])
    wanted = AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[moved])
    with ClusterClient({"bootstrap.servers": cluster.bootstrap_servers}, SYSTEM_CLOCK) as client:
        (answer,) = client.ask(AlterPartitionReassignmentsRequest(topics=[wanted])).responses[0].partitions
    if answer.error_code:
        raise ClusterError(f"the partition was not moved: {answer.error_message}")


def lift_connections(cluster: EmbeddedBroker, _name: str) -> None:
    """Connections from this machine are served again."""
    cluster.set_quota(ip=cluster.bootstrap_servers.rpartition(":")[0])


def refuse_connections(cluster: EmbeddedBroker, _name: str) -> None:
    """Connections from this machine have used their quota up for ten seconds; later some are served."""
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    cluster.set_quota(ip=host, connection_creation_rate=_CONNECTIONS_PER_S)
    for _ in range(_CONNECTIONS_PER_S * _WINDOW_S):
        socket.create_connection((host, int(port))).close()
