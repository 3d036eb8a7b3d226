"""Which broker a message will go to, and where to send those that may go anywhere. No clock, no lock, no client.

A keyed message goes where librdkafka's partitioner sends it. One without a key is steered: it stays with a partition
for the length of a grant, so that batches fill, and then moves to the partition that has had least, among those whose
broker may take it soonest.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kclient_quota.clients.admission import Gate
from kclient_quota.clients.librdkafka.partitioner import Partitioner

NO_LEADER: Final = -1


class Route:
    """The partitions of one topic.

    Args:
        leaders: broker id of each partition's leader, by partition; NO_LEADER where there is none now.
        gate_of: the gate of a broker.

    Attributes:
        gates: the gate of each partition's leader.
        partition: where messages without a key go now.
        found_at_ms: when the leaders were asked for.
        sent: bytes granted to each partition.
    """

    __slots__ = ("found_at_ms", "gates", "leaders", "partition", "sent")

    def __init__(self, leaders: Sequence[int], gate_of: Callable[[int], Gate], found_at_ms: int) -> None:
        self.leaders = list(leaders)
        self.gates = [gate_of(leader) for leader in leaders]
        self.found_at_ms = found_at_ms
        self.partition = 0
        self.sent = [0] * len(leaders)

    def steer(self, cost: int, now_ms: int) -> int:
        """Choose the partition for the next messages without a key; returns how long its broker makes them wait.

        Args:
            cost: bytes of the first of them.
            now_ms: now.
        """
        open_to = [p for p, leader in enumerate(self.leaders) if leader != NO_LEADER] or range(len(self.leaders))
        waits = {id(gate): gate.wait_ms(cost, now_ms) for gate in map(self.gates.__getitem__, open_to)}
        self.partition = min(open_to, key=lambda p: (waits[id(self.gates[p])], self.sent[p]))
        return waits[id(self.gates[self.partition])]

    def count(self, nbytes: int) -> None:
        """`nbytes` have been granted to the partition chosen last."""
        self.sent[self.partition] += nbytes

    def keep(self, older: "Route | None") -> "Route":
        """Go on where an older route of the same topic was, as far as it still fits."""
        if older is not None and len(older.leaders) == len(self.leaders):
            self.partition = older.partition
            self.sent = older.sent
        return self


class Router:
    """The routes of every topic that has been produced to.

    Args:
        partitioner: librdkafka's, in Python.
    """

    def __init__(self, partitioner: Partitioner) -> None:
        self._partitioner = partitioner
        self._routes: dict[str, Route] = {}

    def route(self, topic: str) -> Route | None:
        """The route of a topic, or None before its leaders were asked for."""
        return self._routes.get(topic)

    def learn(self, topic: str, leaders: Mapping[int, int], gate_of: Callable[[int], Gate], now_ms: int) -> Route:
        """The leaders of a topic's partitions as the cluster has them now.

        Args:
            topic: its name.
            leaders: partition to broker id.
            gate_of: the gate of a broker.
            now_ms: now.
        """
        in_order = [leaders.get(partition, NO_LEADER) for partition in range(max(leaders) + 1)]
        route = Route(in_order, gate_of, now_ms).keep(self._routes.get(topic))
        self._routes[topic] = route
        return route

    def target(self, route: Route, key: str | bytes | None, partition: int) -> int | None:
        """The partition of a message, or None when it may be steered."""
        if partition >= 0:
            return partition if partition < len(route.gates) else 0
        return self._partitioner.partition(key, len(route.gates))
