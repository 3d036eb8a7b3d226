"""One producer with a send queue in virtual time: messages offered, grants, librdkafka's batches, a broker that mutes.

The application offers messages as fast as the queue takes them, or at a pace of its own. librdkafka makes a request of
each grant (one partition a request, after `linger.ms`, five on their way at most), a broker's managers record it and
mute the connection, and the answer reaches the pace half a round trip later. librdkafka's statistics tell once a second
what it has sent, of which what lingers is no part yet.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.batch_cost import BatchCost
from kclient_quota.pacing.sending.lanes import Lane
from kclient_quota.pacing.sending.lump_size import MAX_DELAY_MS
from kclient_quota.pacing.sending.send_pace import SendPace
from kclient_quota.pacing.sending.send_queue import Grant, SendQueue
from kclient_quota.pacing.sending.turns import ANY_PARTITION, Waiting
from kclient_quota.quota.entity import PRODUCER_BYTE_RATE
from kclient_quota.simulation.batching import Batching
from kclient_quota.simulation.model import Network
from kclient_quota.simulation.outcome import CLIENT_ID, PRINCIPAL, START_MS, Events, Randomness, Way, managers_of

STATISTICS_MS: Final = 1_000
TOPIC: Final = "orders"
MOST_IN_FLIGHT: Final = 5
"""Requests that an idempotent producer has on their way to one broker."""
IDLE_MS: Final = 50
"""An application that has nothing to send looks again after so long."""


def endless(_at_ms: int) -> float:
    """More messages than may go."""
    return inf


@dataclass(frozen=True, slots=True)
class Source:
    """A thread of the application that sends.

    Attributes:
        demand: messages per second that it has, at so many ms since the start.
        lane: of its messages.
        tenant: on whose behalf.
        batching: of a lane whose messages are of another kind than the others'.
    """

    demand: Callable[[int], float] = endless
    lane: str = ""
    tenant: str | None = None
    batching: Batching | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """What one producer sends, and how.

    Attributes:
        batching: data and compression.
        partitions: to which keys are spread; 0: without keys.
        quota: bytes per second.
        told: whether the producer knows it.
        max_delay_ms: `quota.max.delay.ms`.
        sources: threads that send.
        seconds: how long, in simulated time.
        warm_up_s: what the figures leave out.
        network: how long things take.
        lanes: as the queue has them.
        keys: how many there are, each of which has a partition: the fewer, the less even; 0: messages choose evenly.
        late_ms: how long the application's threads need to use the room that a grant leaves.
    """

    batching: Batching
    partitions: int
    quota: float
    told: bool = True
    max_delay_ms: int = MAX_DELAY_MS
    sources: tuple[Source, ...] = (Source(),)
    seconds: int = 75
    warm_up_s: int = 15
    network: Network = field(default_factory=lambda: Network(linger_ms=5))
    lanes: tuple[Lane, ...] = ()
    keys: int = 0
    late_ms: int = 0

    def batching_of(self, lane: str) -> Batching:
        """Data and compression of a lane's messages."""
        own = [source.batching for source in self.sources if source.lane == lane and source.batching is not None]
        return own[0] if own else self.batching


@dataclass(slots=True)
class Sent:
    """What came of it, after the warm-up; times since the start.

    Attributes:
        messages: delivered.
        wire_bytes: recorded by the broker.
        requests: recorded by the broker.
        payload_bytes: of values delivered.
        seconds: that these stand for.
        latencies_ms: of each message delivered, from being accepted to its report.
        blocked_ms: of each message, how long its caller waited to have it accepted.
        lane_latencies_ms: the same by lane.
        lane_bytes: recorded by the broker, by lane.
        tenant_messages: delivered, by tenant.
        throttles: of every response since the start that had one: when, and how long.
        records: of every request since the start: when it was recorded, and its bytes.
    """

    messages: int = 0
    wire_bytes: int = 0
    requests: int = 0
    payload_bytes: int = 0
    seconds: float = 0.0
    latencies_ms: list[int] = field(default_factory=list)
    blocked_ms: list[int] = field(default_factory=list)
    lane_latencies_ms: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    lane_bytes: Counter[str] = field(default_factory=Counter)
    tenant_messages: Counter[Hashable] = field(default_factory=Counter)
    throttles: list[tuple[int, int]] = field(default_factory=list)
    records: list[tuple[int, int]] = field(default_factory=list)

    @property
    def messages_per_s(self) -> float:
        """Delivered."""
        return self.messages / self.seconds

    def latency_ms(self, part: float = 0.99) -> int:
        """What so many of the messages took at most."""
        return quantile(self.latencies_ms, part)

    def wait_ms(self, part: float = 0.99) -> int:
        """What so many of the callers waited at most."""
        return quantile(self.blocked_ms, part)


def quantile(found: list[int], part: float) -> int:
    """What so large a part of them is no more than."""
    ordered = sorted(found)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else 0


class _Thread:
    """Where one source stands."""

    __slots__ = ("due_ms", "free_ms", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.due_ms = float(START_MS)  # when it has its next message
        self.free_ms = START_MS  # since when it waits to have it accepted


class SendingWorld:
    """One producer, one broker.

    Args:
        cell: what to play.
        randomness: a seeded generator.
    """

    def __init__(self, cell: Cell, randomness: Randomness) -> None:
        self._cell = cell
        self._random = randomness.random
        self._places = [int(self._random() * cell.partitions) for _ in range(cell.keys)]
        network = cell.network
        limit = cell.quota if cell.told else None
        compressed = cell.batching.compression != "none"
        self.pacer = Pacer(limit)
        self.pace = SendPace(
            self.pacer,
            BatchCost(compressed=compressed),
            limit,
            linger_ms=network.linger_ms,
            max_delay_ms=cell.max_delay_ms,
            client_bytes=cell.batching.names_bytes - len(TOPIC),
        )
        self.queue = SendQueue(self.pace, cell.lanes)
        self._managers = managers_of(cell.quota, PRODUCER_BYTE_RATE)
        self._travel = Way(network, randomness).arrival
        self._linger_ms = network.linger_ms
        self._late_ms = network.wake_ms + 1
        self._events = Events()
        self._push = self._events.push
        self._end_ms = START_MS + cell.seconds * 1000
        self._warm_ms = START_MS + cell.warm_up_s * 1000
        self._batchings = {name: cell.batching_of(name) for name in {"", *(source.lane for source in cell.sources)}}
        self._raw_bytes = {name: batching.raw_bytes for name, batching in self._batchings.items()}
        self._threads = [_Thread(source) for source in cell.sources]
        self._arrived_ms = self._muted_until_ms = START_MS
        self._unsent: deque[tuple[Grant, int]] = deque()
        self._flying: deque[tuple[Grant, int]] = deque()
        self._in_flight = 0
        self._wire = 0
        self._wake_at_ms = self._comes_ms = START_MS
        self.sent = Sent(seconds=cell.seconds - cell.warm_up_s)

    def run(self) -> Sent:
        """Let all the time pass."""
        self._push(START_MS, self._wake, None)
        self._push(START_MS + STATISTICS_MS, self._tell_statistics, None)
        self._events.run(self._end_ms)
        return self.sent

    # The application and its sender

    def _wake(self, _: None, now_ms: int) -> None:
        if now_ms < self._wake_at_ms:
            return
        wait_ms: float = 0
        while True:
            idle_ms = self._offer_all(now_ms)
            grant = self.queue.next_grant(now_ms)
            if not isinstance(grant, Grant):
                wait_ms = min(grant, idle_ms)
                break
            self._hand(grant, now_ms)
            self._comes_ms = now_ms + self._cell.late_ms
        self._wake_soon(now_ms, max(1, wait_ms if wait_ms < inf else IDLE_MS) + int(self._random() * self._late_ms))

    def _wake_soon(self, now_ms: int, wait_ms: float) -> None:
        self._wake_at_ms = now_ms + int(wait_ms)
        self._push(self._wake_at_ms, self._wake, None)

    def _offer_all(self, now_ms: int) -> float:
        """Offer what there is; returns after how long to look again at the latest."""
        if now_ms < self._comes_ms:
            return self._comes_ms - now_ms
        return min(self._offer(thread, now_ms) for thread in self._threads)

    def _offer(self, thread: _Thread, now_ms: int) -> float:
        while True:
            demand = thread.source.demand(now_ms - START_MS)
            if demand <= 0:
                thread.due_ms = thread.free_ms = now_ms
                return IDLE_MS
            if thread.due_ms > now_ms:
                return thread.due_ms - now_ms
            if not self.queue.offer(self._message(thread.source, now_ms)).accepted:
                return inf
            if now_ms >= self._warm_ms:
                self.sent.blocked_ms.append(now_ms - max(thread.free_ms, int(thread.due_ms)))
            thread.free_ms = now_ms
            thread.due_ms += 1000 / demand

    def _message(self, source: Source, now_ms: int) -> Waiting:
        partitions = self._cell.partitions
        partition = int(self._random() * partitions) if partitions else ANY_PARTITION
        if self._places:
            partition = self._places[int(self._random() * len(self._places))]
        return Waiting(TOPIC, partition, self._raw_bytes[source.lane], now_ms, None, None, source.lane, source.tenant)

    def _hand(self, grant: Grant, now_ms: int) -> None:
        """Librdkafka makes one request of it."""
        size = self._batchings[grant.lane].request_bytes(len(grant.messages))
        self._push(now_ms + self._linger_ms, self._ship, (grant, size))

    def _ship(self, request: tuple[Grant, int] | None, now_ms: int) -> None:
        """What librdkafka has lingered over goes as soon as there is room for it on the way."""
        if request is not None:
            self._unsent.append(request)
        while self._unsent and self._in_flight < MOST_IN_FLIGHT:
            self._in_flight += 1
            self._wire += self._unsent[0][1]
            self._flying.append(self._unsent.popleft())
            self._arrived_ms = max(self._travel(now_ms), self._arrived_ms)
            self._push(self._arrived_ms, self._arrive, None)

    # The broker

    def _arrive(self, _: None, now_ms: int) -> None:
        if now_ms < self._muted_until_ms:
            self._push(self._muted_until_ms, self._arrive, None)
            return
        grant, size = self._flying.popleft()
        throttle_ms = self._managers.on_produce(PRINCIPAL, CLIENT_ID, size, 0, now_ms, acks=-1).time_ms
        self._muted_until_ms = now_ms + throttle_ms
        sent = self.sent
        sent.records.append((now_ms - START_MS, size))
        if throttle_ms:
            sent.throttles.append((now_ms - START_MS, throttle_ms))
        if now_ms >= self._warm_ms:
            sent.messages += len(grant.messages)
            sent.wire_bytes += size
            sent.requests += 1
            sent.payload_bytes += len(grant.messages) * self._batchings[grant.lane].value_bytes
            sent.lane_bytes[grant.lane] += size
            sent.tenant_messages.update(message.tenant for message in grant.messages)
        self._push(self._travel(now_ms), self._answer, (grant, throttle_ms))

    def _answer(self, answer: tuple[Grant, int], now_ms: int) -> None:
        grant, throttle_ms = answer
        self._in_flight -= 1
        self._ship(None, now_ms)
        if throttle_ms:
            self.pace.on_throttle(throttle_ms, now_ms)
        self.pace.on_delivered(grant.raw_bytes, now_ms)
        if now_ms >= self._warm_ms:
            latencies_ms = [now_ms - message.queued_at_ms for message in grant.messages]
            self.sent.latencies_ms += latencies_ms
            self.sent.lane_latencies_ms[grant.lane] += latencies_ms
        if self.pace.waits_for_deliveries:
            self._wake_soon(now_ms, 0)

    def _tell_statistics(self, _: None, now_ms: int) -> None:
        self.pace.on_wire(self._wire, now_ms)
        self._wire = 0
        self._push(now_ms + STATISTICS_MS, self._tell_statistics, None)
