"""Which broker a message goes to, and which partition those go to that may go anywhere. No clock, lock or client."""

from collections.abc import Iterable, Mapping
from typing import Final

from kclient_quota.clients.librdkafka.partitioner import Partitioner

NO_BROKER: Final = -1
"""The leader of a partition that has none now, and of all as long as nobody knows."""


class Route:
    """The partitions of one topic.

    Args:
        leaders: broker id of each partition's leader, by partition.
        found_at_ms: when the leaders were asked for.

    Attributes:
        sent: bytes that went to each partition without having to.
    """

    __slots__ = ("found_at_ms", "leaders", "sent")

    def __init__(self, leaders: Iterable[int], found_at_ms: int) -> None:
        self.leaders = list(leaders)
        self.found_at_ms = found_at_ms
        self.sent = [0] * len(self.leaders)

    @property
    def brokers(self) -> list[int]:
        """The brokers that lead a partition; NO_BROKER when none does."""
        return [each for each in dict.fromkeys(self.leaders) if each != NO_BROKER] or [NO_BROKER]

    def pick(self, broker: int, nbytes: int) -> int:
        """The partition for messages that go together to any one of `broker`'s: the one that has had least so far."""
        led = [number for number, leader in enumerate(self.leaders) if leader == broker]
        chosen = min(led or range(len(self.leaders)), key=self.sent.__getitem__)
        self.sent[chosen] += nbytes
        return chosen


class Routes:
    """The routes of every topic that has been produced to.

    Args:
        partitioner: librdkafka's, in Python.

    Attributes:
        partitions: how many each topic has; read by other threads.
    """

    def __init__(self, partitioner: Partitioner) -> None:
        self._partitioner = partitioner
        self._routes: dict[str, Route] = {}
        self.partitions: dict[str, int] = {}

    def get(self, topic: str) -> Route | None:
        """The route of a topic, or None before its leaders are known."""
        return self._routes.get(topic)

    def learn(self, topic: str, leaders: Mapping[int, int], now_ms: int) -> None:
        """The leaders of a topic's partitions as the cluster has them now: broker ids by partition."""
        route = Route((leaders.get(number, NO_BROKER) for number in range(max(leaders) + 1)), now_ms)
        before = self._routes.get(topic)
        if before is not None and len(before.sent) == len(route.sent):
            route.sent = before.sent
        self._routes[topic] = route
        self.partitions[topic] = len(route.leaders)

    def partition(self, route: Route, key: str | bytes | None, partition: int) -> int | None:
        """The partition of a message, or None when it may go to any."""
        if partition >= 0:
            return partition
        return self._partitioner.partition(key, len(route.leaders))
