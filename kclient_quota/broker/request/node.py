"""One broker of the cluster at run time: what its dispatcher and its listeners share."""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kclient_quota.broker.cluster_state import BROKER, BrokerInfo, ClusterState
from kclient_quota.broker.request.complaints import Complaints, Refusals
from kclient_quota.broker.request.context import Scheduler, Services
from kclient_quota.broker.request.controls import Controls, SeenRequest
from kclient_quota.broker.request.enforcement import Enforcement
from kclient_quota.broker.request.faults import Faults
from kclient_quota.broker.request.registry import Registry
from kclient_quota.quota.connections import NO_CONNECTION_RATE

MAX_CONNECTIONS, PER_ADDRESS = "max.connections", "max.connections.per.ip"
REQUESTS_KEPT = 100_000


@dataclass(slots=True)
class Traffic:
    """What has gone through a broker since it was made; connections are those it has now, also by address."""

    requests: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    throttled_responses: int = 0
    connections: int = 0
    connections_made: int = 0
    by_address: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may cost a broker; Kafka's configurations and their defaults.

    Attributes:
        request_max_bytes: `socket.request.max.bytes`.
        stranger_max_bytes: `sasl.server.max.receive.size`: of a request before authentication.
        idle_ms: `connections.max.idle.ms`; 0 or less keeps idle connections.
    """

    request_max_bytes: int = 100 * 1024 * 1024
    stranger_max_bytes: int = 512 * 1024
    idle_ms: int = 600_000


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
        limits: what clients may cost it.
        faults: what is to go wrong; shared by all brokers.
        traffic: totals.
        complaints: about clients that send it nonsense.
        refusals: of requests that its disk is in the way of.
        on_room: called when one more connection may have room: one has ended, or a limit has been altered.
    """

    info: BrokerInfo
    cluster: ClusterState
    services: Services
    scheduler: Scheduler
    enforcement: Enforcement
    controls: Controls
    registry: Registry
    requests: deque[SeenRequest]
    limits: Limits = field(default_factory=Limits)
    faults: Faults | None = None
    traffic: Traffic = field(default_factory=Traffic)
    complaints: Complaints = field(default_factory=Complaints)
    refusals: Refusals = field(default_factory=Refusals)
    on_room: list[Callable[[], None]] = field(default_factory=list)

    def connection_limit(self, key: str) -> int:
        """What Kafka's `max.connection...` is just now; where nobody has set it, what Kafka has for none."""
        value = self.cluster.config(BROKER, str(self.info.id), key)
        return NO_CONNECTION_RATE if value is None else int(value)

    def look_for_room(self) -> None:
        """Let those who wait for room see whether there is some."""
        for look in self.on_room:
            look()

    def may_complain(self, address: str) -> bool:
        """Whether what a client does wrong is to be logged once more."""
        return self.complaints.may(self.info.id, address, self.scheduler.now_ms())

    def record(self, seen: SeenRequest) -> None:
        """Keep note of a request that was answered."""
        self.requests.append(seen)
        traffic = self.traffic
        traffic.requests += 1
        traffic.request_bytes += seen.size_bytes
        traffic.response_bytes += seen.response_bytes
        if seen.throttle_time_ms:
            traffic.throttled_responses += 1
