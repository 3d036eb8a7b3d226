"""What scenes set up beforehand."""

import socket
from typing import Any, Final

from kclient_quota.broker.server import EmbeddedBroker
from kclient_quota.certify.scene import Prepare

_CONNECTIONS_PER_S: Final = 2
_WINDOW_S: Final = 10


def quota(**limits: Any) -> Prepare:
    """A quota of the client's client-id, by Kafka's keys."""
    return lambda cluster, name: cluster.set_quota(client_id=name, **limits)


def throttle(api_key: int, throttle_ms: int, times: int = 1) -> Prepare:
    """The next answers of an API are throttled, whatever was sent."""

    def prepare(cluster: EmbeddedBroker, name: str) -> None:
        cluster.throttle_next(api_key, throttle_ms, times=times, client_id=name)

    return prepare


def lift_connections(cluster: EmbeddedBroker, _name: str) -> None:
    """Connections from this machine are served again."""
    cluster.set_quota(ip=cluster.bootstrap_servers.rpartition(":")[0])


def refuse_connections(cluster: EmbeddedBroker, _name: str) -> None:
    """Connections from this machine have used their quota up for ten seconds; later some are served."""
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    cluster.set_quota(ip=host, connection_creation_rate=_CONNECTIONS_PER_S)
    for _ in range(_CONNECTIONS_PER_S * _WINDOW_S):
        socket.create_connection((host, int(port))).close()
