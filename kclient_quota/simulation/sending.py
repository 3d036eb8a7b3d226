"""One producer with a send queue in virtual time: messages offered, grants, librdkafka's batches, a broker that mutes.

The application offers messages as fast as the queue takes them, or at a pace of its own. librdkafka makes a request of
each grant (one partition a request, after `linger.ms`), a broker's managers record it and mute the connection, and the
answer reaches the pace half a round trip later. librdkafka's statistics tell once a second what went over the wire.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from kclient_quota.pacing.batch_cost import BatchCost
from kclient_quota.pacing.lanes import Lane
from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.send_pace import MAX_DELAY_MS, SendPace
from kclient_quota.pacing.send_queue import Grant, SendQueue
from kclient_quota.pacing.turns import ANY_PARTITION, Waiting
from kclient_quota.quota.entity import PRODUCER_BYTE_RATE
from kclient_quota.simulation.batching import Batching
from kclient_quota.simulation.model import Network
from kclient_quota.simulation.outcome import CLIENT_ID, PRINCIPAL, START_MS, Events, Randomness, Way, managers_of

STATISTICS_MS: Final = 1_000
IDLE_MS: Final = 50
"""An application that has nothing to send looks again after so long."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one producer sends, and how.

    Attributes:
        batching: data and compression.
        partitions: to which keys are spread evenly; 0: without keys.
        quota: bytes per second; a function of the time since the start for one that changes.
        told: whether the producer knows it.
        max_delay_ms: `quota.max.delay.ms`.
        demand: messages per second that the application has, at so many ms since the start.
        seconds: how long, in simulated time.
        warm_up_s: what the figures leave out.
        network: how long things take.
        lanes: as the queue has them.
        message_of: lane and tenant of a message, by its number; None: neither.
    """

    batching: Batching
    partitions: int
    quota: float
    told: bool = True
    max_delay_ms: int = MAX_DELAY_MS
    demand: Callable[[int], float] = lambda _: inf
    seconds: int = 75
    warm_up_s: int = 15
    network: Network = field(default_factory=lambda: Network(linger_ms=5))
    lanes: tuple[Lane, ...] = ()
    limit_changes: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class Sent:
    """What came of it, after the warm-up; times since the start.

    Attributes:
        messages: delivered.
        wire_bytes: recorded by the broker.
        requests: recorded by the broker.
        payload_bytes: of values delivered.
        seconds: that these stand for.
        latencies_ms: of each message delivered, from being accepted to its report, sorted.
        blocked_ms: of each message, how long its caller waited to have it accepted, sorted.
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
    throttles: list[tuple[int, int]] = field(default_factory=list)
    records: list[tuple[int, int]] = field(default_factory=list)

    @property
    def messages_per_s(self) -> float:
        """Delivered."""
        return self.messages / self.seconds

    def latency_ms(self, part: float = 0.99) -> int:
        """What so many of the messages took at most."""
        return _quantile(self.latencies_ms, part)

    def wait_ms(self, part: float = 0.99) -> int:
        """What so many of the callers waited at most."""
        return _quantile(self.blocked_ms, part)


def _quantile(ordered: list[int], part: float) -> int:
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else 0


class SendingWorld:
    """One producer, one broker.

    Args:
        cell: what to play.
        randomness: a seeded generator.
    """

    def __init__(self, cell: Cell, randomness: Randomness) -> None:
        self._cell = cell
        self._random = randomness.random
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
        self._offered = 0
        self._due_ms = float(START_MS)
        self._asked_ms = START_MS  # since when the next message's caller waits
        self._arrived_ms = self._muted_until_ms = START_MS
        self._flying: deque[tuple[Grant, int]] = deque()
        self._wire = 0
        self._wake_at_ms = START_MS
        self.sent = Sent(seconds=cell.seconds - cell.warm_up_s)

    def run(self) -> Sent:
        """Let all the time pass."""
        self._push(START_MS, self._wake, None)
        self._push(START_MS + STATISTICS_MS, self._tell_statistics, None)
        for at_ms, limit in self._cell.limit_changes:
            self._push(START_MS + at_ms, self._change_limit, limit)
        self._events.run(self._end_ms)
        self.sent.latencies_ms.sort()
        self.sent.blocked_ms.sort()
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
        self._wake_soon(now_ms, max(1, wait_ms if wait_ms < inf else IDLE_MS) + int(self._random() * self._late_ms))

    def _wake_soon(self, now_ms: int, wait_ms: float) -> None:
        self._wake_at_ms = now_ms + int(wait_ms)
        self._push(self._wake_at_ms, self._wake, None)

    def _offer_all(self, now_ms: int) -> float:
        """Offer what there is; returns after how long to look again at the latest."""
        cell = self._cell
        while True:
            demand = cell.demand(now_ms - START_MS)
            if demand <= 0:
                self._due_ms = now_ms
                self._asked_ms = now_ms
                return IDLE_MS
            if self._due_ms > now_ms:
                return self._due_ms - now_ms
            if not self.queue.offer(self._message(now_ms)).accepted:
                return inf
            if now_ms >= self._warm_ms:
                self.sent.blocked_ms.append(now_ms - max(self._asked_ms, int(self._due_ms)))
            self._offered += 1
            self._asked_ms = now_ms
            self._due_ms += 1000 / demand

    def _message(self, now_ms: int) -> Waiting:
        partitions = self._cell.partitions
        partition = int(self._random() * partitions) if partitions else ANY_PARTITION
        return Waiting("orders", partition, self._cell.batching.raw_bytes, now_ms)

    def _hand(self, grant: Grant, now_ms: int) -> None:
        """Librdkafka makes one request of it."""
        size = self._cell.batching.request_bytes(len(grant.messages))
        self._flying.append((grant, size))
        self._arrived_ms = max(self._travel(now_ms + self._linger_ms), self._arrived_ms)
        self._wire += size
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
            sent.payload_bytes += len(grant.messages) * self._cell.batching.value_bytes
        self._push(self._travel(now_ms), self._answer, (grant, throttle_ms))

    def _answer(self, answer: tuple[Grant, int], now_ms: int) -> None:
        grant, throttle_ms = answer
        if throttle_ms:
            self.pace.on_throttle(throttle_ms, now_ms)
        self.pace.on_delivered(grant.raw_bytes, now_ms)
        if now_ms >= self._warm_ms:
            self.sent.latencies_ms += [now_ms - message.queued_at_ms for message in grant.messages]
        if self.pace.waits_for_deliveries:
            self._wake_soon(now_ms, 0)

    def _tell_statistics(self, _: None, now_ms: int) -> None:
        self.pace.on_wire(self._wire, now_ms)
        self._wire = 0
        self._push(now_ms + STATISTICS_MS, self._tell_statistics, None)

    def _change_limit(self, limit: float, now_ms: int) -> None:
        self._managers = self._managers
        self.pace.set_limit(limit, now_ms)
