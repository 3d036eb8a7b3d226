"""What scenes set up beforehand."""

from typing import Any

from kclient_quota.broker.server import EmbeddedBroker
from kclient_quota.certify.scene import Prepare


def quota(**limits: Any) -> Prepare:
    """A quota of the client's client-id, by Kafka's keys."""
    return lambda cluster, name: cluster.set_quota(client_id=name, **limits)


def throttle(api_key: int, throttle_ms: int, times: int = 1) -> Prepare:
    """The next answers of an API are throttled, whatever was sent."""

    def prepare(cluster: EmbeddedBroker, name: str) -> None:
        cluster.throttle_next(api_key, throttle_ms, times=times, client_id=name)

    return prepare
