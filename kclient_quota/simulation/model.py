"""What is simulated: brokers with one quota, clients that share it, and the network between them."""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from kclient_quota.errors import ConfigError


class Kind(StrEnum):
    """Sorts of clients: kclient-quota's that know the quota or learn it, and plain ones."""

    KNOWN = "known"
    LEARNING = "learning"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Network:
    """How long things take on the way, in ms.

    Attributes:
        round_trip_ms: to the broker and back.
        jitter_ms: added to each way, up to so much, evenly.
        linger_ms: how long librdkafka keeps a batch open; what a kclient-quota producer sets.
        wake_ms: how late a waiting client wakes up at most.
        socket_bytes: a plain producer sends as long as less than this waits in the sockets, unread by a muted broker;
            measured with Apache Kafka, on loopback.
        received_bytes: what of it waits on the broker's side; Kafka's `socket.receive.buffer.bytes`.
    """

    round_trip_ms: int = 2
    jitter_ms: int = 1
    linger_ms: int = 10
    wake_ms: int = 1
    socket_bytes: int = 2_900_000
    received_bytes: int = 102_400


@dataclass(frozen=True, slots=True)
class Change:
    """Clients come or go.

    Attributes:
        at_ms: when, from the start.
        clients: how many come; below zero, how many of those that came first go.
    """

    at_ms: int
    clients: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """One simulation.

    Attributes:
        brokers: how many.
        clients: how many of kclient-quota's clients at the start; all under one quota, unknown to each other.
        learning: how many of `clients`, the last ones, learn the quota while all others know it; with `told` false all
            learn anyway.
        plain: how many plain clients (librdkafka's, which send or fetch as fast as they are let) there are beside them,
            all of the time and under the same quota; their numbers come after all others.
        consume: whether they are consumers, all with a backlog to read; otherwise they are producers.
        quota: bytes per second on each broker, for all clients together.
        message_bytes: length of each value.
        batch_messages: messages in each batch of the log that consumers read.
        seconds: how long, in simulated time.
        told: whether clients know the quota (by hand or from the cluster), those that come later too; otherwise they
            learn.
        demands: bytes of values per second that clients have to send (or that come for consumers), inf for more than
            they may; client i has demand i modulo their number.
        leaders: the leaders of the partitions of each topic, brokers counted from 0; client i uses topic i modulo
            their number. Empty: client i uses one partition, on broker i modulo `brokers`.
        keyed: messages go round the partitions in order, and each waits for its leader; otherwise they are steered.
        changes: who comes and goes.
        network: how long things take.
        warm_up_ms: what the figures leave out at the start.
        ramp_ms: the first clients start within so long.
        socket_timeout_ms: plain producers' `socket.timeout.ms`.
        message_timeout_ms: plain producers' `message.timeout.ms`.
    """

    brokers: int = 1
    clients: int = 1
    learning: int = 0
    plain: int = 0
    consume: bool = False
    quota: float = 1_048_576.0
    message_bytes: int = 1_000
    batch_messages: int = 4
    seconds: int = 120
    told: bool = True
    demands: tuple[float, ...] = (inf,)
    leaders: tuple[tuple[int, ...], ...] = ()
    keyed: bool = False
    changes: tuple[Change, ...] = ()
    network: Network = field(default_factory=Network)
    warm_up_ms: int = 30_000
    ramp_ms: int = 1_000
    socket_timeout_ms: int = 60_000
    message_timeout_ms: int = 300_000

    def __post_init__(self) -> None:
        for name in (
            "brokers",
            "message_bytes",
            "batch_messages",
            "seconds",
            "socket_timeout_ms",
            "message_timeout_ms",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not self.quota > 0:
            raise ConfigError(f"quota must be above 0 bytes per second, not {self.quota}")
        if not self.demands or not all(demand > 0 for demand in self.demands):
            raise ConfigError(f"demands must be above 0 bytes per second, at least one, not {self.demands}")
        if not 0 <= self.warm_up_ms < self.end_ms:
            raise ConfigError(f"warm_up_ms must be from 0 to below {self.end_ms}, not {self.warm_up_ms}")
        if any(not 0 <= broker < self.brokers for topic in self.leaders for broker in topic) or not all(self.leaders):
            raise ConfigError(f"leaders must name at least one broker a topic, each from 0 to {self.brokers - 1}")
        self._check_presence()

    def _check_presence(self) -> None:
        present = self.clients
        for change in sorted(self.changes, key=lambda change: change.at_ms):
            if not 0 <= change.at_ms < self.end_ms:
                raise ConfigError(f"a change must happen from 0 to below {self.end_ms} ms, not at {change.at_ms}")
            present += change.clients
            if present < 0:
                raise ConfigError(f"at {change.at_ms} ms more clients depart than there are; let fewer depart")
        if self.plain < 0:
            raise ConfigError(f"plain must be at least 0, not {self.plain}")
        if not 0 <= self.learning <= max(self.clients, 0):
            raise ConfigError(f"learning must be from 0 to clients, {self.clients}, not {self.learning}")
        if self.clients < 0 or self.total_clients < 1:
            raise ConfigError(f"clients must be at least 1 (0 if some arrive or are plain), not {self.clients}")

    @property
    def end_ms(self) -> int:
        """How long, in ms."""
        return self.seconds * 1000

    @property
    def total_clients(self) -> int:
        """How many clients there are at any time."""
        return self.clients + sum(change.clients for change in self.changes if change.clients > 0) + self.plain

    def is_plain(self, client: int) -> bool:
        """Whether a client is a plain one."""
        return client >= self.total_clients - self.plain

    def learns(self, client: int) -> bool:
        """Whether a client of kclient-quota's learns the quota."""
        return not self.told or self.clients - self.learning <= client < self.clients

    def kind(self, client: int) -> Kind:
        """What sort of client it is."""
        if self.is_plain(client):
            return Kind.PLAIN
        return Kind.LEARNING if self.learns(client) else Kind.KNOWN

    def partitions(self, client: int) -> tuple[int, ...]:
        """The leaders of the partitions that a client uses."""
        if self.leaders:
            return self.leaders[client % len(self.leaders)]
        return (client % self.brokers,)

    def demand(self, client: int) -> float:
        """Bytes of values per second that a client has to send, or that come for it."""
        return self.demands[client % len(self.demands)]

    def presence(self) -> list[tuple[int, int]]:
        """From when to when each client is there, in ms; those of the start come within `ramp_ms` after 0."""
        spans = [[0, self.end_ms] for _ in range(self.clients)]
        gone = 0
        for change in sorted(self.changes, key=lambda change: change.at_ms):
            if change.clients > 0:
                spans.extend([change.at_ms, self.end_ms] for _ in range(change.clients))
                continue
            for span in spans[gone : gone - change.clients]:
                span[1] = change.at_ms
            gone -= change.clients
        spans.extend([0, self.end_ms] for _ in range(self.plain))
        return [(begin_ms, end_ms) for begin_ms, end_ms in spans]
