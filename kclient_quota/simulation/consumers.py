"""Consumers in virtual time: kclient-quota's and plain ones, librdkafka's fetching, and brokers that throttle it.

A consumer takes messages out of librdkafka's queue as its pacer (`pacing.fetching.fetch`) grants them. librdkafka asks
every leader when the queue has room; the broker returns the first batch whole and cuts later ones at the byte limit
(`KafkaApis.processResponseCallback`); what would exceed the quota is un-recorded, answered empty, and the connection
is muted. A plain consumer takes everything at once and asks for more.
"""

from collections import deque
from collections.abc import MutableSequence
from math import ceil, inf
from typing import Final

from kclient_quota.pacing.fetching.fetch import RECORD_BYTES, FetchPacer
from kclient_quota.pacing.fetching.fetch_sizes import DEFAULT_FETCH_BYTES, sizes_for
from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics
from kclient_quota.quota.entity import CONSUMER_BYTE_RATE
from kclient_quota.quota.managers import QuotaManagers
from kclient_quota.simulation.model import Scenario
from kclient_quota.simulation.outcome import (
    BIN_MS,
    CLIENT_ID,
    PRINCIPAL,
    RECORD_WIRE_BYTES,
    START_MS,
    Events,
    Gap,
    Outcome,
    Randomness,
    Throttles,
    Way,
    bins_for,
    managers_of,
)
from kclient_quota.simulation.parts import Part

BATCH_WIRE_BYTES: Final = 61
"""The header of a record batch."""
RESPONSE_WIRE_BYTES: Final = 90
"""What a fetch response holds beside its records."""
EMPTY_WIRE_BYTES: Final = 21
"""What a throttled fetch is answered with."""
STATISTICS_MS: Final = 250
SLICE_MS: Final = 100
"""A waiting call asks again after this long."""


class _Source:
    """One consumer's connection to one broker, and its partition there."""

    __slots__ = (
        "bins",
        "consumer",
        "fetching",
        "managers",
        "muted_until_ms",
        "node",
        "read",
        "received",
        "responses",
        "waiting",
    )

    def __init__(self, consumer: "_Consumer", node: int, managers: QuotaManagers, bins: MutableSequence[int]) -> None:
        self.consumer = consumer
        self.node = node
        self.managers = managers
        self.bins = bins
        self.fetching = False
        self.waiting = False  # is going to look whether the queue has room
        self.muted_until_ms = 0
        self.read = 0  # batches
        self.received = 0  # bytes, empty answers included
        self.responses = 0  # that were not throttled


class _Consumer:
    """A consumer and its librdkafka; without a pacer it is a plain one."""

    __slots__ = (
        "backoff_ms",
        "begin_ms",
        "end_ms",
        "events",
        "fetch_bytes",
        "gap",
        "leaders",
        "left",
        "pacer",
        "per_batch_ms",
        "polling",
        "queue",
        "queue_bytes",
        "queued",
        "sources",
        "taken",
        "throttles",
    )

    def __init__(self, begin_ms: int, end_ms: int, per_batch_ms: float, gap: Gap, throttles: Throttles) -> None:
        self.begin_ms = begin_ms
        self.end_ms = end_ms
        self.per_batch_ms = per_batch_ms
        self.gap = gap
        self.throttles = throttles
        self.sources: list[_Source] = []
        self.leaders: dict[tuple[str, int], int] = {}
        self.pacer: FetchPacer | None = None
        self.backoff_ms = 0
        self.fetch_bytes = DEFAULT_FETCH_BYTES
        self.queue_bytes: float = inf
        self.queue: deque[list[int]] = deque()  # broker and messages
        self.queued = 0  # messages
        self.events: list[FetchStatistics | tuple[int, int]] = []  # told, but not heard yet; the latter are throttles
        self.left = 0.0
        self.taken: dict[int, int] = {}
        self.polling = False  # waits for librdkafka, not for the pacer


class ConsumerWorld:
    """One part of a scenario.

    Args:
        scenario: what to simulate.
        part: which part of it.
        randomness: a seeded generator.
    """

    def __init__(self, scenario: Scenario, part: Part, randomness: Randomness) -> None:
        network = scenario.network
        self._random = randomness.random
        self._message = scenario.message_bytes
        self._cost = scenario.message_bytes + RECORD_BYTES
        self._per_batch = scenario.batch_messages
        self._batch = BATCH_WIRE_BYTES + scenario.batch_messages * (scenario.message_bytes + RECORD_WIRE_BYTES)
        self._travel = Way(network, randomness).arrival
        self._late_ms = network.wake_ms + 1
        self._warm_ms = START_MS + scenario.warm_up_ms
        self._end_ms = START_MS + scenario.end_ms
        self._events = Events()
        rows = [bins_for(scenario.end_ms) for _ in part.clients]
        self._outcome = Outcome(part, rows)
        managers = {broker: managers_of(scenario.quota, CONSUMER_BYTE_RATE) for broker in part.brokers}
        spans = scenario.presence()
        self._consumers = [
            self._consumer(scenario, number, spans[number], managers, bins)
            for number, bins in zip(part.clients, rows, strict=True)
        ]

    def _consumer(
        self,
        scenario: Scenario,
        number: int,
        span: tuple[int, int],
        managers: dict[int, QuotaManagers],
        bins: MutableSequence[int],
    ) -> _Consumer:
        came_ms, went_ms = span
        begin_ms = START_MS + came_ms + (0 if came_ms else int(self._random() * scenario.ramp_ms))
        plain = scenario.is_plain(number)
        nodes = list(dict.fromkeys(scenario.partitions(number)))
        consumer = _Consumer(
            begin_ms,
            START_MS + went_ms,
            scenario.message_bytes * scenario.batch_messages * 1000 * len(nodes) / scenario.demand(number),
            Gap(max(begin_ms, self._warm_ms)),
            self._outcome.throttles[scenario.kind(number)],
        )
        consumer.sources = [_Source(consumer, node, managers[node], bins) for node in nodes]
        if not plain:
            limit = None if scenario.learns(number) else scenario.quota
            sizes = sizes_for(limit, scenario.network.round_trip_ms, self._batch)
            consumer.backoff_ms = sizes.conf["fetch.queue.backoff.ms"]
            consumer.fetch_bytes, consumer.queue_bytes = sizes.fetch_bytes, sizes.queue_bytes
            consumer.pacer = FetchPacer(limit, sizes, begin_ms)
            consumer.leaders = {("t", node): node for node in nodes}
            self._events.push(begin_ms + STATISTICS_MS, self._tell_statistics, consumer)
        self._events.push(begin_ms, self._begin, consumer)
        return consumer

    def run(self) -> Outcome:
        """Let all the time pass."""
        self._events.run(self._end_ms)
        for consumer in self._consumers:
            consumer.gap.note(min(self._end_ms, consumer.end_ms))
        self._outcome.longest_gap_ms = [consumer.gap.longest_ms for consumer in self._consumers]
        return self._outcome

    # The application

    def _begin(self, consumer: _Consumer, now_ms: int) -> None:
        for source in consumer.sources:
            self._fetch(source, now_ms)
        self._take(consumer, now_ms)

    def _take(self, consumer: _Consumer, now_ms: int) -> None:
        """Poll again and again: take whatever may be taken, as soon as it may."""
        if now_ms >= consumer.end_ms:
            return
        consumer.polling = False
        while True:
            wait_ms = self._ask(consumer, now_ms)
            if wait_ms:
                wake_ms = now_ms + min(wait_ms, SLICE_MS) + int(self._random() * self._late_ms)
                self._events.push(wake_ms, self._take, consumer)
                return
            self._hear(consumer, now_ms)
            if not consumer.queued:
                consumer.polling = True
                return
            self._hand_over(consumer, now_ms)

    def _ask(self, consumer: _Consumer, now_ms: int) -> int:
        """As `ConsumerGate.ask`: 0 when something may be taken, else how long to wait."""
        pacer = consumer.pacer
        if pacer is None:
            consumer.left = inf
            return 0
        if consumer.left > 0.0 and not pacer.big_batches:
            return 0
        taken, consumer.taken = consumer.taken, {}
        if len(pacer.paces) == 1:
            # Until statistics have told the broker's id, its account has another one.
            taken = {next(iter(pacer.paces)): sum(taken.values())}
        if not (pacer.paced and pacer.fits):
            consumer.left = inf
            return 0
        consumer.left, wait_ms = pacer.grant(now_ms, taken)
        return wait_ms

    def _hear(self, consumer: _Consumer, now_ms: int) -> None:
        """Callbacks are served by a real poll, before any message."""
        pacer = consumer.pacer
        if pacer is None or not consumer.events:
            return
        events, consumer.events = consumer.events, []
        for event in events:
            if isinstance(event, FetchStatistics):
                pacer.on_statistics(event)
            else:
                pacer.on_throttle(event[0], event[1], now_ms)
        if consumer.left == inf and pacer.paced and pacer.fits:
            consumer.left = 0.0

    def _hand_over(self, consumer: _Consumer, now_ms: int) -> None:
        """As many messages as were granted, as far as the oldest fetch has any."""
        head = consumer.queue[0]
        node, there = head
        pacer = consumer.pacer
        count = there
        if pacer is not None:
            most = 1 if pacer.big_batches else there
            count = min(most, max(1, ceil(consumer.left / self._cost))) if consumer.left < inf else there
            nbytes = count * self._cost
            consumer.left -= nbytes
            consumer.taken[node] = consumer.taken.get(node, 0) + nbytes
            pacer.on_messages(nbytes, count)
        head[1] -= count
        if not head[1]:
            consumer.queue.popleft()
        was_full = consumer.queued * self._message >= consumer.queue_bytes
        consumer.queued -= count
        consumer.gap.note(now_ms)
        if was_full:
            self._back_off(consumer, now_ms)

    # librdkafka

    def _back_off(self, consumer: _Consumer, now_ms: int) -> None:
        """The queue may have room again: every leader's thread notices by itself."""
        for source in consumer.sources:
            if not (source.fetching or source.waiting):
                source.waiting = True
                self._events.push(now_ms + int(self._random() * consumer.backoff_ms), self._fetch, source)

    def _fetch(self, source: _Source, now_ms: int) -> None:
        """Ask a leader that is not being asked, if the queue has room."""
        consumer = source.consumer
        source.waiting = False
        if source.fetching or now_ms >= consumer.end_ms or consumer.queued * self._message >= consumer.queue_bytes:
            return
        source.fetching = True
        self._events.push(self._travel(now_ms), self._arrive, source)

    def _answered(self, answer: tuple[_Source, int, int], now_ms: int) -> None:
        """A response has come, with so many bytes and messages."""
        source, nbytes, messages = answer
        consumer = source.consumer
        source.fetching = False
        source.received += nbytes
        source.responses += 1
        if messages:
            consumer.queue.append([source.node, messages])
            consumer.queued += messages
        self._fetch(source, now_ms)
        self._wake(consumer, now_ms)

    def _refused(self, answer: tuple[_Source, int], now_ms: int) -> None:
        """An empty response has come, with a throttle time."""
        source, throttle_ms = answer
        source.fetching = False
        source.received += EMPTY_WIRE_BYTES
        source.consumer.events.append((source.node, throttle_ms))
        self._fetch(source, now_ms)
        self._wake(source.consumer, now_ms)

    def _tell_statistics(self, consumer: _Consumer, now_ms: int) -> None:
        if now_ms >= consumer.end_ms:
            return
        self._events.push(now_ms + STATISTICS_MS, self._tell_statistics, consumer)
        consumer.events.append(
            FetchStatistics(
                at_ms=now_ms,
                queued_bytes=consumer.queued * self._message,
                queued_count=consumer.queued,
                received={source.node: (source.received, source.responses) for source in consumer.sources},
                leaders=consumer.leaders,
            )
        )
        self._wake(consumer, now_ms)

    def _wake(self, consumer: _Consumer, now_ms: int) -> None:
        if consumer.polling:
            self._take(consumer, now_ms)

    # The broker

    def _arrive(self, source: _Source, now_ms: int) -> None:
        """A fetch is read, unless its connection is muted."""
        if now_ms < source.muted_until_ms:
            self._events.push(source.muted_until_ms, self._arrive, source)
            return
        consumer = source.consumer
        batches, nbytes = self._read(source, now_ms)
        if not batches:
            # It waits for an append.
            due_ms = consumer.begin_ms + (source.read + 1) * consumer.per_batch_ms
            self._events.push(max(now_ms, int(due_ms)) + 1, self._arrive, source)
            return
        throttle_ms = source.managers.on_fetch(PRINCIPAL, CLIENT_ID, nbytes, 0, now_ms).time_ms
        self._outcome.requests += 1
        consumer.throttles.note(throttle_ms, warm=now_ms >= self._warm_ms)
        answered_ms = self._travel(now_ms)
        if throttle_ms:
            source.muted_until_ms = now_ms + throttle_ms
            self._events.push(answered_ms, self._refused, (source, throttle_ms))
            return
        source.read += batches
        source.bins[(now_ms - START_MS) // BIN_MS] += nbytes
        self._events.push(answered_ms, self._answered, (source, nbytes, batches * self._per_batch))

    def _read(self, source: _Source, now_ms: int) -> tuple[int, int]:
        """Whole batches that a fetch yields, and bytes of the response."""
        consumer = source.consumer
        most = source.managers.fetch.max_value_in_quota_window(PRINCIPAL, CLIENT_ID)
        limit = int(min(consumer.fetch_bytes, most))
        there = inf
        if consumer.per_batch_ms:
            there = (now_ms - consumer.begin_ms) // consumer.per_batch_ms - source.read
            if there < 1:
                return 0, 0
        nbytes = max(self._batch, int(min(limit, there * self._batch)))
        return nbytes // self._batch, nbytes + RESPONSE_WIRE_BYTES
