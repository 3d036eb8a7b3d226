"""What a producer's queue has done: messages lost by lane, how long they waited, what a byte of the quota was worth."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from confluent_kafka import KafkaError
from kclient_telemetry.locks import reentrant_lock

from kclient_quota.clients.calls import briefly
from kclient_quota.clients.producer.core import Lost, Sent
from kclient_quota.clients.producer.outbox import RECORD_BYTES
from kclient_quota.metrics import MetricName, Times
from kclient_quota.pacing.sending.lanes import DEFAULT_LANE
from kclient_quota.quota.rate import STAT_SAMPLES, STAT_WINDOW_MS, SampledRate

GROUP: Final = "producer-metrics"
LOST: Final = {
    Lost.EXPIRED: KafkaError._MSG_TIMED_OUT,  # noqa: SLF001 - confluent_kafka's names
    Lost.DROPPED: KafkaError._QUEUE_FULL,  # noqa: SLF001
    Lost.REPLACED: KafkaError._PURGE_QUEUE,  # noqa: SLF001
}
"""How those are reported that leave the queue without being sent."""


class QueueMetrics:
    """Of one producer; written by its sender, read by anybody.

    Args:
        client_id: the value of the `client-id` tag.
        lanes: their names; where there are others than DEFAULT_LANE, each has figures with the tag `lane`.

    Attributes:
        lanes: their names.
    """

    def __init__(self, client_id: str, lanes: Iterable[str]) -> None:
        self._tags = (("client-id", client_id),)
        self.lanes = sorted(set(lanes))
        self._names = self.lanes if self.lanes != [DEFAULT_LANE] else []
        self._lock = reentrant_lock()
        self._expired: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._all = Times()
        self._times = {name: Times() for name in self._names}
        self._sums = {
            name: SampledRate(STAT_SAMPLES, STAT_WINDOW_MS) for name in ("messages", "raw", "wire", "fill", "grants")
        }

    def on_sent(self, sent: Sent, now_ms: int) -> None:
        """Messages have left together."""
        lane = sent.messages[0].lane
        waits_ms = [max(0, now_ms - message.queued_at_ms) for message in sent.messages]
        waited = (len(waits_ms), sum(waits_ms), max(waits_ms))
        raw_bytes = sum(message.raw_bytes for message in sent.messages)
        with briefly(self._lock):
            self._all.record(*waited, now_ms)
            if lane in self._times:
                self._times[lane].record(*waited, now_ms)
            values = (len(waits_ms), raw_bytes, sent.wire_bytes, sent.fill, 1)
            for summed, value in zip(self._sums.values(), values, strict=True):
                summed.record(value, now_ms)

    def on_lost(self, lane: str, why: Lost) -> None:
        """A message has left without being sent."""
        with briefly(self._lock):
            (self._expired if why is Lost.EXPIRED else self._dropped)[lane] += 1

    def collect(self, now_ms: int) -> dict[MetricName, float]:
        """All figures at `now_ms`: those of the client first, then by lane."""
        with briefly(self._lock):
            found = {MetricName(name, GROUP, self._tags): value for name, value in self._totals(now_ms)}
            for lane in self._names:
                tags = (*self._tags, ("lane", lane))
                figures = [
                    *self._lost(self._expired[lane], self._dropped[lane]),
                    *self._waited(self._times[lane], now_ms),
                ]
                found.update({MetricName(name, GROUP, tags): value for name, value in figures})
        return found

    def _totals(self, now_ms: int) -> Iterator[tuple[str, float]]:
        yield from self._lost(self._expired.total(), self._dropped.total())
        yield from self._waited(self._all, now_ms)
        messages, raw, wire, fill, grants = (summed.total(now_ms) for summed in self._sums.values())
        yield "quota-messages-per-byte-avg", messages / wire if wire else 0.0
        yield "quota-payload-per-byte-avg", (raw - RECORD_BYTES * messages) / wire if wire else 0.0
        yield "quota-compression-rate-avg", wire / raw if raw else 0.0
        yield "quota-batch-size-avg", raw / grants if grants else 0.0
        yield "quota-batch-fill-avg", fill / grants if grants else 0.0

    @staticmethod
    def _lost(expired: int, dropped: int) -> Iterator[tuple[str, float]]:
        yield "quota-messages-expired-total", float(expired)
        yield "quota-messages-dropped-total", float(dropped)

    @staticmethod
    def _waited(times: Times, now_ms: int) -> Iterator[tuple[str, float]]:
        average, longest = times.figures(now_ms)
        yield "quota-queue-time-avg", average
        yield "quota-queue-time-max", longest
        yield "quota-queue-time-total", times.total_ms
