"""One broker of the cluster at run time: what its dispatcher and its listeners share."""

from collections import deque
from dataclasses import dataclass, field

from kclient_quota.broker.cluster_state import BrokerInfo, ClusterState
from kclient_quota.broker.request.context import Scheduler, Services
from kclient_quota.broker.request.enforcement import Enforcement
from kclient_quota.broker.request.faults import Controls, SeenRequest
from kclient_quota.broker.request.registry import Registry

REQUESTS_KEPT = 100_000


@dataclass(slots=True)
class Traffic:
    """What has gone through a broker since it was made."""

    requests: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    throttled_responses: int = 0
    connections: int = 0
    connections_made: int = 0


@dataclass(slots=True, eq=False)
class Node:
    """A broker.

    Attributes:
        info: its id and addresses.
        cluster: state shared by all brokers.
        services: the cluster's other objects.
        scheduler: time and timers.
        enforcement: its quotas.
        controls: what tests have asked for; shared by all brokers.
        registry: which APIs it answers.
        requests: the last requests that were answered; shared by all brokers.
        traffic: totals.
    """

    info: BrokerInfo
    cluster: ClusterState
    services: Services
    scheduler: Scheduler
    enforcement: Enforcement
    controls: Controls
    registry: Registry
    requests: deque[SeenRequest]
    traffic: Traffic = field(default_factory=Traffic)

    def record(self, seen: SeenRequest) -> None:
        """Keep note of a request that was answered."""
        self.requests.append(seen)
        traffic = self.traffic
        traffic.requests += 1
        traffic.request_bytes += seen.size_bytes
        traffic.response_bytes += seen.response_bytes
        if seen.throttle_time_ms:
            traffic.throttled_responses += 1
