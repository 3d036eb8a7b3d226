"""Brokers and librdkafka's fetching in virtual time, by brute force: what a pacer must get along with.

The broker is Kafka's (KafkaApis.processResponseCallback): the first batch of a fetch whole, later ones cut at the byte
limit, an answer that would exceed the quota un-recorded, emptied and followed by a mute. librdkafka fetches from every
broker at once when its one queue holds less than `queued.max.messages.kbytes` (rd_kafka_toppar_fetch_decide).
"""

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from kclient_quota.pacing.fetching.fetch import RECORD_BYTES, FetchPacer
from kclient_quota.pacing.fetching.fetch_sizes import FetchSizes, sizes_for
from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics
from kclient_quota.pacing.neighbours import Neighbours
from kclient_quota.quota.rate import SampledRate
from kclient_quota.quota.throttle import java_round

ROUND_TRIP_MS = 3
FRAMING = 90
BATCH_HEADER = 61
STATISTICS_MS = 250


class Quota:
    """One broker's quota, shared by everybody who is given it."""

    def __init__(self, byte_rate: float) -> None:
        self.byte_rate = byte_rate
        self.rate = SampledRate()
        self.recorded: list[tuple[int, float]] = []

    def ask(self, nbytes: int, now_ms: int) -> int:
        """Record an answer, or say for how long to throttle."""
        self.rate.record(nbytes, now_ms)
        value = self.rate.measure(now_ms)
        if value > self.byte_rate:
            throttle_ms = java_round((value - self.byte_rate) / self.byte_rate * self.rate.window_size_ms(now_ms))
            if throttle_ms > 0:
                self.rate.record(-nbytes, now_ms)
                return throttle_ms
        self.recorded.append((now_ms, nbytes))
        return 0

    def utilisation(self, from_ms: int, to_ms: int) -> float:
        return sum(n for at, n in self.recorded if from_ms <= at < to_ms) * 1000 / self.byte_rate / (to_ms - from_ms)


@dataclass
class Broker:
    node_id: int
    quota: Quota
    batch: int
    message: int
    muted_until_ms: int = 0
    answer_at_ms: int | None = None
    received: int = 0
    responses: int = 0
    throttles: list[tuple[int, int]] = field(default_factory=list)

    def answer(self, fetch_bytes: int) -> tuple[int, int]:
        """What a fetch would yield: bytes on the wire, and whole batches among them."""
        whole = self.batch + BATCH_HEADER
        wire = max(whole, min(fetch_bytes, int(self.quota.byte_rate * 10)))
        return wire + FRAMING, wire // whole


class World:
    """One consumer that takes whatever it may, as soon as it may."""

    def __init__(
        self,
        brokers: list[Broker],
        limit: float | None,
        *,
        sizes: FetchSizes | None = None,
        start_ms: int = 5_000,
        neighbours: Neighbours | None = None,
        most_unpolled_ms: int = 5_000,
    ) -> None:
        self.brokers = brokers
        self.sizes = sizes or sizes_for(limit, ROUND_TRIP_MS, max(broker.batch + BATCH_HEADER for broker in brokers))
        self.now_ms = start_ms
        self.most_unpolled_ms = most_unpolled_ms
        self.pacer = FetchPacer(limit, self.sizes, start_ms, neighbours=neighbours, most_unpolled_ms=most_unpolled_ms)
        self.queue: deque[tuple[int, int]] = deque()
        self.queued_bytes = 0
        self.came_at_ms: list[int] = []
        self.taken_at_ms: list[int] = []
        self._left = 0.0
        self._taken: dict[int, int] = {}
        self._events: list[tuple[Broker, int]] = []
        self._statistics: list[FetchStatistics] = []
        self._wait_until_ms = 0

    def run(self, duration_ms: int) -> None:
        run_together([self], duration_ms)

    def tick(self) -> None:
        for broker in self.brokers:
            self._fetch(broker)
        if self.now_ms % STATISTICS_MS == 0:
            self._statistics.append(self._seen())
        self._take()
        self.now_ms += 1

    def next_ms(self) -> int:
        """When something happens again: until then a tick changes nothing."""
        if self.now_ms >= self._wait_until_ms and not self._takes_nothing():
            return self.now_ms
        nexts = [-(-self.now_ms // STATISTICS_MS) * STATISTICS_MS]
        if self.now_ms < self._wait_until_ms:
            nexts.append(self._wait_until_ms)
        for broker in self.brokers:
            if broker.answer_at_ms is not None:
                nexts.append(broker.answer_at_ms)
            elif self.queued_bytes < self.sizes.queue_bytes:
                return self.now_ms
        return min(nexts)

    def _takes_nothing(self) -> bool:
        """Whether `_take` neither asks the pacer nor has anything to tell it or to hand over."""
        if self.queue or self._events or self._statistics or (self._left == float("inf") and self.pacer.paced):
            return False
        return not (self.pacer.fits and (self._left <= 0.0 or self.pacer.big_batches))

    def longest_gap_ms(self, from_ms: int) -> int:
        times = [at for at in self.taken_at_ms if at >= from_ms]
        return max((b - a for a, b in itertools.pairwise(times)), default=1_000_000)

    def _fetch(self, broker: Broker) -> None:
        if broker.answer_at_ms is None:
            if self.queued_bytes < self.sizes.queue_bytes:
                broker.answer_at_ms = max(self.now_ms + ROUND_TRIP_MS, broker.muted_until_ms)
            return
        if self.now_ms < broker.answer_at_ms:
            return
        broker.answer_at_ms = None
        wire, batches = broker.answer(self.sizes.fetch_bytes)
        throttle_ms = broker.quota.ask(wire, self.now_ms)
        if throttle_ms:
            broker.muted_until_ms = self.now_ms + throttle_ms
            broker.received += 21
            broker.throttles.append((self.now_ms, throttle_ms))
            self._events.append((broker, throttle_ms))
            return
        broker.received += wire
        broker.responses += 1
        messages = batches * (broker.batch // broker.message)
        self.queue.extend([(broker.node_id, broker.message)] * messages)
        self.came_at_ms += [self.now_ms] * messages
        self.queued_bytes += messages * broker.message

    def _seen(self) -> FetchStatistics:
        return FetchStatistics(
            at_ms=self.now_ms,
            queued_bytes=self.queued_bytes,
            queued_count=len(self.queue),
            received={broker.node_id: (broker.received, broker.responses) for broker in self.brokers},
            leaders={("t", broker.node_id): broker.node_id for broker in self.brokers},
        )

    def _take(self) -> None:
        """What `Consumer.poll` does, again and again; callbacks are served by real polls only."""
        while True:
            if self.now_ms < self._wait_until_ms:
                return
            # the gate steps aside where sizes do not fit
            if self.pacer.fits and (self._left <= 0.0 or self.pacer.big_batches):
                self._left, wait_ms = self.pacer.grant(self.now_ms, self._taken)
                self._taken = {}
                if wait_ms:
                    self._wait_until_ms = self.now_ms + min(wait_ms, 100)
                    return
            self._serve()
            if not self.queue:
                return
            self._left -= self._take_one() + RECORD_BYTES

    def _take_one(self) -> int:
        """The size of the next message, or 0 where there is none."""
        if not self.queue:
            return 0
        node, size = self.queue.popleft()
        self.queued_bytes -= size
        self.taken_at_ms.append(self.now_ms)
        self.pacer.on_messages(size + RECORD_BYTES, 1)
        self._taken[node] = self._taken.get(node, 0) + size + RECORD_BYTES
        return size

    def _serve(self) -> None:
        events, self._events = self._events, []
        for broker, throttle_ms in events:
            self.pacer.on_throttle(broker.node_id, throttle_ms, self.now_ms)
        statistics, self._statistics = self._statistics, []
        for seen in statistics:
            self.pacer.on_statistics(seen)
        if self._left == float("inf") and self.pacer.paced:
            self._left = 0.0


def run_together(worlds: Sequence[World], duration_ms: int) -> None:
    """Consumers of one quota, side by side; time in which nothing happens to any of them is passed over."""
    left_ms = duration_ms
    while left_ms > 0:
        for each in worlds:
            each.tick()
        idle_ms = min(left_ms - 1, *(max(0, each.next_ms() - each.now_ms) for each in worlds))
        for each in worlds:
            each.now_ms += idle_ms
        left_ms -= 1 + idle_ms
