"""Which broker a message goes to, and which partition those go to that may go anywhere. No clock, lock or client."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Final

from kclient_quota.clients.librdkafka.partitioner import Partitioner
from kclient_quota.pacing.sending.send_queue import Grant, SendQueue
from kclient_quota.pacing.sending.throttle_told import NEVER_MS
from kclient_quota.pacing.sending.turns import ANY_PARTITION, Line, Waiting

NO_BROKER: Final = -1
"""The leader of a partition that has none now, and of all as long as nobody knows."""
ROUTE_MS: Final = 30_000
"""How old a topic's leaders may be."""
ASK_AGAIN_MS: Final = 1_000
"""When to ask again who leads a topic, after nobody has answered."""
FADING_MS: Final = 10_000
"""After so long half of what a message took counts: about a broker's window, in which throttles come and go."""


class Route:
    """The partitions of one topic.

    Args:
        leaders: broker id of each partition's leader, by partition.
        found_at_ms: when the leaders were asked for.

    Attributes:
        brokers: those that lead a partition; NO_BROKER when none does.
        sent: bytes that went to each partition without having to.
    """

    __slots__ = ("brokers", "found_at_ms", "leaders", "sent")

    def __init__(self, leaders: Iterable[int], found_at_ms: int) -> None:
        self.leaders = tuple(leaders)
        self.brokers = [each for each in dict.fromkeys(self.leaders) if each != NO_BROKER] or [NO_BROKER]
        self.found_at_ms = found_at_ms
        self.sent = [0] * len(self.leaders)

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

    def old(self, now_ms: int) -> list[str]:
        """The topics whose leaders are to be asked for again."""
        return [topic for topic, route in self._routes.items() if now_ms - route.found_at_ms >= ROUTE_MS]

    def forget(self, topic: str) -> None:
        """There is no such topic now: librdkafka finds a place for what it is sent, when there is one."""
        if self._routes.pop(topic, None) is not None:
            del self.partitions[topic]

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
        if len(route.leaders) == 1:
            return 0  # with or without a key: there all messages keep their order among each other
        return self._partitioner.partition(key, len(route.leaders))


@dataclass(slots=True, eq=False)
class Broker:
    """What one broker is sent.

    Attributes:
        number: its id; NO_BROKER as long as only one is known.
        queue: messages that wait for the quota.
        before: messages that wait for room in the queue, by lane and tenant.
        wait_ms: after how long the next of them may go.
        served_ms: when the latest of those was handed over that are delivered.
        slowest_ms: what those delivered lately have taken at most; it fades.
    """

    number: int
    queue: SendQueue
    before: dict[tuple[str, Hashable], Line]
    wait_ms: float = inf
    served_ms: int = NEVER_MS
    slowest_ms: float = 0.0
    noted_ms: int = NEVER_MS

    def on_served(self, handed_ms: int, now_ms: int, *, is_waited_for: bool) -> None:
        """What was handed over then is delivered; what nobody has waited for says nothing of how long others take."""
        self.served_ms = max(self.served_ms, handed_ms)
        if not is_waited_for:
            return
        if now_ms > self.noted_ms:  # pow() is not for each of those that are reported together
            self.slowest_ms *= 0.5 ** ((now_ms - self.noted_ms) / FADING_MS)
            self.noted_ms = now_ms
        self.slowest_ms = max(self.slowest_ms, now_ms - handed_ms)

    def waiting(self) -> Iterator[Waiting]:
        """Messages that wait for room in its queue."""
        return chain.from_iterable(self.before.values())

    def busy(self, now_ms: int) -> tuple[int, int]:
        """How long a message would wait for it, to tell the least."""
        pace = self.queue.pace
        waiting = self.queue.raw_bytes + sum(line.raw_bytes for line in self.before.values())
        return max(pace.throttled_for_ms(now_ms), pace.time_of_ms(waiting)), pace.granted + waiting


class Brokers:
    """The brokers of one producer; one for all as long as the cluster has only one, or is not known.

    Args:
        new_queue: makes a broker's queue, by its id.
        routes: where messages go.

    Attributes:
        routes: as above.
        is_split: whether there are several.
        lost: topics that librdkafka has lost all brokers of, which nobody has asked for since.
    """

    def __init__(self, new_queue: Callable[[int], SendQueue], routes: Routes) -> None:
        self._new_queue = new_queue
        self._brokers: dict[int, Broker] = {}
        self._asked: dict[str, int] = {}
        self.routes = routes
        self.is_split = False
        self.lost: set[str] = set()

    def __iter__(self) -> Iterator[Broker]:
        return iter(self._brokers.values())

    def __len__(self) -> int:
        return len(self._brokers)

    def get(self, number: int) -> Broker:
        """A broker by its id; the only one, whatever its id, while one is known."""
        if not self.is_split:
            number = NO_BROKER
        found = self._brokers.get(number)
        if found is None:
            found = self._brokers[number] = Broker(number, self._new_queue(number), {})
        return found

    def known(self, number: int) -> Broker | None:
        """The same, where anything has been sent to it."""
        return None if self.is_split and number not in self._brokers else self.get(number)

    def of(self, message: Waiting, now_ms: int, waits_for: Broker | None = None) -> Broker:
        """Whoever leads a message's partition; for one that may go anywhere, whoever would take it first.

        If it `waits_for` one who leads a partition of its topic it goes on to.
        """
        broker, message.partition = self._place_of(message, waits_for, now_ms)
        return broker

    def _place_of(self, message: Waiting, waits_for: Broker | None, now_ms: int) -> tuple[Broker, int]:
        """Whoever is to have a message, which may wait for somebody already, and its partition."""
        route = self.routes.get(message.topic)
        if route is None:
            # Those that came before it was forgotten as well: librdkafka chooses for all of a key, in their order.
            return self.get(NO_BROKER), message.payload.partition
        partition = self.routes.partition(route, message.payload.key, message.partition)
        if partition is None:
            if waits_for is not None and (not self.is_split or waits_for.number in route.brokers):
                return waits_for, ANY_PARTITION
            return self._first_of(route, now_ms), ANY_PARTITION
        if partition >= len(route.leaders):
            return self.get(NO_BROKER), message.partition
        return self.get(route.leaders[partition]), partition

    def _first_of(self, route: Route, now_ms: int) -> Broker:
        """Of the brokers that lead a partition, the one that would take a message first."""
        numbers = route.brokers
        if len(numbers) == 1:
            return self.get(numbers[0])
        return min(map(self.get, numbers), key=lambda broker: broker.busy(now_ms))

    def partition_of(self, broker: Broker, grant: Grant) -> int:
        """Where what leaves together goes."""
        route = self.routes.get(grant.topic)
        if grant.partition != ANY_PARTITION or route is None:
            return grant.partition
        return route.pick(broker.number, grant.raw_bytes)

    def wants_route(self, topic: str, now_ms: int) -> bool:
        """Whether to ask now who leads a topic, supposing that it will be: a muted connection would not answer."""
        route = self.routes.get(topic)
        is_lost = topic in self.lost
        if route is not None and now_ms - route.found_at_ms < ROUTE_MS and not is_lost:
            return False
        asked_ms = self._asked.get(topic)
        if asked_ms is not None and now_ms - asked_ms < ASK_AGAIN_MS:
            return False
        self.lost.discard(topic)
        # No connection is left that could be muted of those that were lost.
        if not is_lost and any(broker.queue.pace.throttled_for_ms(now_ms) for broker in self):
            return False
        self._asked[topic] = now_ms
        return True

    def learn_routes(self, found: Mapping[str, Mapping[int, int]], brokers: int, now_ms: int) -> None:
        """The cluster has so many brokers, and these lead topics' partitions; looks through what waits, once."""
        self.is_split = self.is_split or brokers > 1
        for topic, leaders in found.items():
            if leaders:
                self.routes.learn(topic, leaders, now_ms)
            else:
                self.routes.forget(topic)
        self._move(now_ms)

    def count(self, brokers: int, now_ms: int) -> None:
        """The cluster has so many brokers: what each was sent is told apart, also before who leads what is known."""
        if brokers > 1 and not self.is_split:
            self.is_split = True
            self._move(now_ms)

    def meet(self, number: int) -> None:
        """A broker is sent messages: one that nothing was meant for leads something by now.

        Its pace is to know of them before it throttles: a limit that must be learnt would be taken for next to nothing.
        """
        if self.known(number) is None:
            self.get(number)
            for topic in self.routes.partitions:
                self.doubt(topic)

    def doubt(self, topic: str) -> None:
        """A topic's leaders may be others, or its partitions: ask before long."""
        route = self.routes.get(topic)
        if route is not None:
            route.found_at_ms = NEVER_MS

    def doubt_leader(self, number: int) -> None:
        """A broker leads other partitions than is known."""
        for topic in list(self.routes.partitions):
            route = self.routes.get(topic)
            if route is not None and number in route.brokers:
                self.doubt(topic)

    def lose(self) -> None:
        """All connections are lost, and with them, often, all that librdkafka knew of the cluster.

        It begins anew from the bootstrap servers then, and does so once a second and in two steps, as long as nobody
        asks it for anything.
        """
        self.lost = set(self.routes.partitions)

    def _move(self, now_ms: int) -> None:
        """Let messages wait for who leads their partitions now: later ones, which go there, would overtake them."""
        for broker in list(self):
            moved = [
                (message, *found)
                for message in broker.queue
                if (found := self._place_of(message, broker, now_ms)) != (broker, message.partition)
            ]
            broker.queue.take_out([message for message, _, _ in moved])
            for message, goal, partition in moved:
                goal.queue.adopt(message, partition)
        for broker in list(self):
            for line, before in list(broker.before.items()):
                for _ in range(len(before)):
                    message = before.pop()
                    goal, message.partition = self._place_of(message, broker, now_ms)
                    goal.before.setdefault(line, Line()).append(message)
                if not before:
                    broker.before.pop(line, None)
