"""What KIP-714 requires of every client, as far as librdkafka tells, and bytes: its statistics as Kafka's metrics.

| Kafka's metric | from |
|---|---|
| `connection-creation-rate/-total` | `brokers[].connects` (attempts, not successes) |
| `node-request-latency-avg/-max`, `request-latency-avg/-max` | `brokers[].rtt` |
| `record-queue-time-avg/-max` | `brokers[].int_latency`, in librdkafka's queue, and the wait in ours before it |
| `outgoing-byte-*`, `incoming-byte-*`, `request-*`: `-rate`, `-total` | `brokers[].txbytes`, `rxbytes`, `tx` |
| `produce-throttle-time-*`, `fetch-throttle-time-*`, `poll-idle-ratio-avg` | the client's own `metrics()` |
| `assigned-partitions`, `rebalance-total` | `cgrp.assignment_size`, `cgrp.rebalance_cnt` |
| `records-lag-max` | `topics[].partitions[].consumer_lag` |
| `commit-latency-avg/-max`, `rebalance-latency-avg/-max/-total` | timed at `commit()` and at rebalance callbacks |

Left out is a consumer's `fetch-latency-avg/-max`: librdkafka's round trips are of all requests together. Windows are
Java's: two samples of 30 s. An average or maximum over nothing is left out as well, where Java sends NaN. A broker's
figures include those of the coordinator's connection to it, which Java tells apart, and of the connection it was found
by; quotas hold per broker, not per connection.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from kclient_quota.clients.librdkafka.statistics import BrokerDelta, StatisticsReader
from kclient_quota.metrics import CONSUMER, PRODUCER, MetricName, Times
from kclient_quota.quota.rate import STAT_SAMPLES, STAT_WINDOW_MS, SampledRate

_US_PER_MS: Final = 1_000

Sample = tuple[MetricName, float]
Tags = tuple[tuple[str, str], ...]


class Traffic:
    """Bytes and requests of one connection or of all: Kafka's Meters, a rate and a total each."""

    __slots__ = ("_rates", "_totals")

    NAMES: Final = ("outgoing-byte", "incoming-byte", "request")

    def __init__(self) -> None:
        self._rates = tuple(SampledRate(STAT_SAMPLES, STAT_WINDOW_MS) for _ in self.NAMES)
        self._totals = [0, 0, 0]

    def record(self, delta: BrokerDelta, now_ms: int, *, recent: bool) -> None:
        """Add what a statistics event tells; to the rates only if it is `recent`."""
        for index, value in enumerate((delta.request_bytes, delta.response_bytes, delta.requests)):
            self._totals[index] += value
            if recent:
                self._rates[index].record(value, now_ms)

    def rates(self, group: str, tags: Tags, now_ms: int) -> Iterator[Sample]:
        """Per second, over the window."""
        for name, rate in zip(self.NAMES, self._rates, strict=True):
            yield MetricName(f"{name}-rate", group, tags), rate.measure(now_ms)

    def totals(self, group: str, tags: Tags) -> Iterator[Sample]:
        """Since the client was made."""
        for name, total in zip(self.NAMES, self._totals, strict=True):
            yield MetricName(f"{name}-total", group, tags), total


class _Waits:
    """How long messages have waited in our queue, out of the client's own metrics.

    Attributes:
        max_ms: the longest of the last minute. Which message that was librdkafka's figures do not say: the longest of
            both queues together is at most the sum, which is what is pushed.
    """

    def __init__(self, client_id: str) -> None:
        self._total, self._max = (
            MetricName(f"quota-queue-time-{name}", f"{PRODUCER}-metrics", (("client-id", client_id),))
            for name in ("total", "max")
        )
        self._total_ms: float | None = None
        self._waited_ms = 0.0
        self.max_ms = 0.0

    def told(self, own: Mapping[MetricName, float], *, ends: bool, recent: bool) -> float:
        """What has been waited since messages last got into batches, which they do again if it `ends`.

        Before the first statistics, and when they are not `recent`, it belongs to batches that nobody has counted.
        """
        before_ms, self._total_ms = self._total_ms, own.get(self._total, 0.0)
        self.max_ms = own.get(self._max, 0.0)
        waited_ms = 0.0
        if recent and before_ms is not None:
            waited_ms = self._waited_ms + self._total_ms - before_ms
        self._waited_ms = 0.0 if ends else waited_ms
        return waited_ms


class RequiredMetrics:
    """One client's required metrics; not thread-safe.

    Args:
        kind: PRODUCER or CONSUMER of `kclient_quota.metrics`.
        client_id: the value of the `client-id` tag.
    """

    def __init__(self, kind: str, client_id: str) -> None:
        self._kind = kind
        self._tags: Tags = (("client-id", client_id),)
        self._connects: dict[str, int] = {}
        self._created = 0
        self._creation_rate = SampledRate(STAT_SAMPLES, STAT_WINDOW_MS)
        self._request = Times()
        self._queue = Times()
        self._waits = _Waits(client_id)
        self._nodes: dict[int, Times] = {}
        self._reader = StatisticsReader()
        self._event_at_ms: int | None = None
        self._traffic = Traffic()
        self._node_traffic: dict[int, Traffic] = {}
        self._commit = Times()
        self._rebalance = Times()
        self._assigned: int | None = None
        self._rebalances = 0
        self._lag: int | None = None

    def on_statistics(
        self, statistics: Mapping[str, Any], now_ms: int, own: Mapping[MetricName, float] = MappingProxyType({})
    ) -> None:
        """Take one statistics event of librdkafka's, and the client's own `metrics()` of the same moment."""
        recent = self._recent(statistics, now_ms)
        brokers = statistics.get("brokers", {}).values()
        for broker in brokers:
            self._on_broker(broker, now_ms, recent=recent)
        self._on_queues(brokers, own, now_ms, recent=recent)
        for delta in self._reader.differences(statistics):
            self._traffic.record(delta, now_ms, recent=recent)
            self._node_traffic.setdefault(delta.node_id, Traffic()).record(delta, now_ms, recent=recent)
        group = statistics.get("cgrp")
        if group is not None:
            self._assigned = int(group["assignment_size"])
            self._rebalances = int(group["rebalance_cnt"])
        if self._kind == CONSUMER:
            self._lag = _largest_lag(statistics.get("topics", {}))

    def on_commit(self, took_ms: int, now_ms: int) -> None:
        """A commit was answered."""
        self._commit.record(1, took_ms, took_ms, now_ms)

    def on_rebalance(self, took_ms: int, now_ms: int) -> None:
        """Partitions are assigned, `took_ms` after they were taken away or asked for."""
        self._rebalance.record(1, took_ms, took_ms, now_ms)

    def gauges(self, now_ms: int) -> Iterator[Sample]:
        """What goes up and down."""
        group = f"{self._kind}-metrics"
        yield MetricName("connection-creation-rate", group, self._tags), self._creation_rate.measure(now_ms)
        yield from self._traffic.rates(group, self._tags, now_ms)
        yield from _samples(self._request, "request-latency", group, self._tags, now_ms)
        for node_id, latencies in self._nodes.items():
            yield from _samples(latencies, "request-latency", *self._of_node(node_id), now_ms)
        for node_id, traffic in self._node_traffic.items():
            yield from traffic.rates(*self._of_node(node_id), now_ms)
        if self._kind == CONSUMER:
            yield from self._consumer_gauges(now_ms)
        elif self._kind == PRODUCER:
            yield from _samples(self._queue, "record-queue-time", group, self._tags, now_ms, self._waits.max_ms)

    def sums(self) -> Iterator[Sample]:
        """What only grows."""
        yield MetricName("connection-creation-total", f"{self._kind}-metrics", self._tags), self._created
        yield from self._traffic.totals(f"{self._kind}-metrics", self._tags)
        for node_id, traffic in self._node_traffic.items():
            yield from traffic.totals(*self._of_node(node_id))
        if self._kind == CONSUMER:
            group = "consumer-coordinator-metrics"
            yield MetricName("rebalance-latency-total", group, self._tags), self._rebalance.total_ms
            yield MetricName("rebalance-total", group, self._tags), self._rebalances

    def _consumer_gauges(self, now_ms: int) -> Iterator[Sample]:
        group = "consumer-coordinator-metrics"
        if self._assigned is not None:
            yield MetricName("assigned-partitions", group, self._tags), self._assigned
        yield from _samples(self._commit, "commit-latency", group, self._tags, now_ms)
        yield from _samples(self._rebalance, "rebalance-latency", group, self._tags, now_ms)
        if self._lag is not None:
            yield MetricName("records-lag-max", "consumer-fetch-manager-metrics", self._tags), self._lag

    def _of_node(self, node_id: int) -> tuple[str, Tags]:
        """Group and tags of a broker's metrics."""
        return f"{self._kind}-node-metrics", (*self._tags, ("node-id", f"node-{node_id}"))

    def _on_queues(
        self, brokers: Iterable[Mapping[str, Any]], own: Mapping[MetricName, float], now_ms: int, *, recent: bool
    ) -> None:
        """Time in a producer's queues: ours keeps messages while the quota does not allow them, librdkafka's then."""
        windows = [_window(broker.get("int_latency")) for broker in brokers]
        count = sum(count for count, _, _ in windows)
        waited_ms = self._waits.told(own, ends=bool(count), recent=recent)
        sum_ms = sum(sum_ms for _, sum_ms, _ in windows)
        self._queue.record(count, sum_ms + waited_ms, max((max_ms for _, _, max_ms in windows), default=0.0), now_ms)

    def _recent(self, statistics: Mapping[str, Any], now_ms: int) -> bool:
        """Whether all that an event tells happened within a window; not so after a time without a subscription."""
        before_ms, self._event_at_ms = self._event_at_ms, now_ms
        since_ms = int(statistics.get("age", 0)) // 1_000 if before_ms is None else now_ms - before_ms
        return since_ms <= STAT_WINDOW_MS

    def _on_broker(self, broker: Mapping[str, Any], now_ms: int, *, recent: bool) -> None:
        name, connects = str(broker["name"]), int(broker.get("connects", 0))
        before = self._connects.get(name, 0)
        # an entry that librdkafka made anew starts from zero again
        created = connects - before if connects >= before else connects
        self._connects[name] = connects
        self._created += created
        if recent:
            self._creation_rate.record(created, now_ms)
        trips = _window(broker.get("rtt"))
        self._request.record(*trips, now_ms)
        if int(broker["nodeid"]) >= 0:
            self._nodes.setdefault(int(broker["nodeid"]), Times()).record(*trips, now_ms)


def _samples(
    times: Times, prefix: str, group: str, tags: Tags, now_ms: int, before_ms: float = 0.0
) -> Iterator[Sample]:
    """Average and maximum, `before_ms` before it included, if anything was recorded within the window."""
    figures = times.measure(now_ms)
    if figures is not None:
        yield MetricName(f"{prefix}-avg", group, tags), figures[0]
        yield MetricName(f"{prefix}-max", group, tags), figures[1] + before_ms


def _window(window: Mapping[str, Any] | None) -> tuple[int, float, float]:
    """Count, sum and maximum in ms of one of librdkafka's windows, which are in µs and begin anew with every event."""
    if window is None:
        return 0, 0.0, 0.0
    return int(window["cnt"]), int(window["sum"]) / _US_PER_MS, int(window["max"]) / _US_PER_MS


def _largest_lag(topics: Mapping[str, Any]) -> int | None:
    lags = [
        int(partition["consumer_lag"])
        for topic in topics.values()
        for partition in topic["partitions"].values()
        if partition.get("consumer_lag", -1) >= 0
    ]
    return max(lags, default=None)
