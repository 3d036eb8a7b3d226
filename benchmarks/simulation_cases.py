"""What is played for real and in virtual time."""

from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Final

from kclient_quota.simulation import Network, Scenario

WARM_UP: Final = 0.5
"""Part of each run that is left out at the start."""
EMBEDDED: Final = Network(socket_bytes=8_500_000, received_bytes=5_000_000)
"""As `Network`, measured on the embedded broker, which leaves its sockets' buffers to the system."""
KAFKA: Final = Network()


@dataclass(frozen=True, slots=True)
class Case:
    """One scenario, played for real and in virtual time.

    Attributes:
        name: also the client-id and the topic.
        clients: producers that share the quota, or consumers, with more to read than they may.
        quota: bytes per second on each broker.
        told: whether clients ask the cluster for the quota; else they learn.
        learning: how many of them learn it though the others ask.
        partitions: of the topic, one leader each; 1, or as many as there are brokers.
        keyed: messages go round the partitions, and each waits for its leader.
        message_bytes: length of each value.
        consume: whether they are consumers.
        plain: plain clients beside them.
        batch_messages: messages in each batch that is read.
        demand: bytes of values per second that each producer has to send.
        socket_timeout_ms: plain producers' `socket.timeout.ms`.
        seconds: how long; 0: as long as the command is told.
        warm_up: part of it that is left out at the start.
    """

    name: str
    clients: int
    quota: int
    told: bool = True
    learning: int = 0
    partitions: int = 1
    keyed: bool = False
    message_bytes: int = 1_000
    consume: bool = False
    plain: int = 0
    batch_messages: int = 4
    demand: float = inf
    socket_timeout_ms: int = 60_000
    seconds: int = 0
    warm_up: float = WARM_UP

    @property
    def quota_type(self) -> str:
        """Kafka's name of the quota."""
        return "Fetch" if self.consume else "Produce"

    def lasts_s(self, seconds: int) -> int:
        """How long it is played, where others are played for `seconds`."""
        return self.seconds or seconds

    def scenario(self, seconds: int, network: Network = EMBEDDED) -> Scenario:
        """The same in virtual time."""
        seconds = self.lasts_s(seconds)
        return Scenario(
            brokers=self.partitions,
            clients=self.clients,
            learning=self.learning,
            plain=self.plain,
            consume=self.consume,
            quota=self.quota,
            message_bytes=self.message_bytes,
            batch_messages=self.batch_messages,
            seconds=seconds,
            told=self.told,
            demands=(self.demand,),
            keyed=self.keyed,
            leaders=(tuple(range(self.partitions)),),
            network=network,
            socket_timeout_ms=self.socket_timeout_ms,
            warm_up_ms=int(self.warm_up * seconds * 1000),
        )


_QUOTAS: Final = {"51k": 51_200, "204k": 204_800, "1M": 1_048_576}


def _grid() -> list[Case]:
    return [
        Case(
            f"{clients}-{'known' if told else 'learnt'}-{short}{'-reads' if consume else ''}",
            clients,
            quota,
            told=told,
            consume=consume,
        )
        for consume, told, (short, quota), clients in product((False, True), (True, False), _QUOTAS.items(), (1, 2, 8))
    ]


CASES: Final = (
    *_grid(),
    Case("three-brokers", 1, 51_200, partitions=3),
    Case("three-brokers-keyed", 1, 51_200, partitions=3, keyed=True),
    Case("two-on-three-brokers", 2, 51_200, partitions=3),
    Case("two-on-three-brokers-keyed", 2, 51_200, partitions=3, keyed=True),
    Case("reads-three-brokers", 1, 51_200, partitions=3, consume=True),
    Case("two-of-four-learn-204k", 4, 204_800, learning=2),
    Case("two-of-four-learn-204k-reads", 4, 204_800, learning=2, consume=True),
    Case("one-of-two-plain-204k", 1, 204_800, plain=1, demand=5e6, seconds=200, warm_up=0.1),
    Case("plain-51k", 0, 51_200, plain=1, seconds=300, warm_up=0.0),
    Case("plain-204k", 0, 204_800, plain=1, seconds=300, warm_up=0.0),
    Case("two-plain-51k", 0, 51_200, plain=2, demand=5e6, seconds=300, warm_up=0.0),
    Case("plain-51k-expires", 0, 51_200, plain=1, demand=5e6, seconds=400, warm_up=0.0),
    Case("plain-reads-51k", 0, 51_200, consume=True, plain=1, seconds=300, warm_up=0.0),
    Case("plain-reads-1M", 0, 1_048_576, consume=True, plain=1, seconds=200, warm_up=0.1),
    Case("one-of-two-plain-reads-1M", 1, 1_048_576, consume=True, plain=1, seconds=200, warm_up=0.1),
    Case("two-start-to-read-204k", 2, 204_800, consume=True, seconds=30, warm_up=0.0),
    Case("eight-start-to-read-1M", 8, 1_048_576, consume=True, seconds=30, warm_up=0.0),
)
