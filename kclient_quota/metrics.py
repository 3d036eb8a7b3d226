"""Client metrics by Kafka's names: throttle times as Java's clients compute them, and what they leave out.

Java's `produce-throttle-time` and `fetch-throttle-time` sensors record every response of the connection, zeros included
(NetworkClient.handleCompletedReceives), in a window of two samples of 30 s. The throttled-only figures beside them are
ours: an average over mostly zeros hides how long a throttled request really waits.
"""

from collections.abc import Iterable

from kclient_telemetry.metric import MetricName

from kclient_quota.quota.rate import STAT_SAMPLES, STAT_WINDOW_MS, SampledMax, SampledRate

__all__ = ["CONSUMER", "PRODUCER", "ClientThrottleMetrics", "MetricName", "ThrottleTimes", "Times"]

PRODUCER = "producer"
CONSUMER = "consumer"
SHARE_CONSUMER = "consumer-share"

# Kind of client -> prefix of its byte-throttle metrics and their group (SenderMetricsRegistry, FetchMetricsRegistry).
_NAMES = {
    PRODUCER: ("produce", "producer-metrics"),
    CONSUMER: ("fetch", "consumer-fetch-manager-metrics"),
    SHARE_CONSUMER: ("fetch", "consumer-share-fetch-manager-metrics"),
}


class Times:
    """How long many things took: mean and longest within Java's window (two samples of 30 s), and the sum for ever."""

    __slots__ = ("_count", "_max", "_sum", "total_ms")

    def __init__(self) -> None:
        self._sum = SampledRate(STAT_SAMPLES, STAT_WINDOW_MS)
        self._count = SampledRate(STAT_SAMPLES, STAT_WINDOW_MS)
        self._max = SampledMax()
        self.total_ms = 0.0

    def record(self, count: int, sum_ms: float, max_ms: float, now_ms: int) -> None:
        """Add `count` of them; nothing if there are none."""
        if count > 0:
            self._count.record(count, now_ms)
            self._sum.record(sum_ms, now_ms)
            self._max.record(max_ms, now_ms)
            self.total_ms += sum_ms

    def measure(self, now_ms: int) -> tuple[float, float] | None:
        """Mean and longest in ms; None if there was nothing within the window."""
        count = self._count.total(now_ms)
        return (self._sum.total(now_ms) / count, self._max.measure(now_ms)) if count else None

    def figures(self, now_ms: int) -> tuple[float, float]:
        """The same with zeros for nothing."""
        return self.measure(now_ms) or (0.0, 0.0)


class ThrottleTimes:
    """One throttle-time sensor: all responses in a window, and throttled ones for ever."""

    def __init__(self) -> None:
        self._times = Times()
        self.count = 0
        self.last_ms = 0

    def record(self, *, responses: int, throttled: int, sum_ms: int, max_ms: int, now_ms: int) -> None:
        """Record a number of responses at once.

        Args:
            responses: all of them.
            throttled: how many carried a throttle time above zero.
            sum_ms: the sum of their throttle times.
            max_ms: the longest of them.
            now_ms: when.
        """
        if responses <= 0:
            return
        self._times.record(responses, sum_ms, max_ms, now_ms)
        self.count += throttled
        if throttled:
            self.last_ms = max_ms

    @property
    def total_ms(self) -> float:
        """All throttle times together."""
        return self._times.total_ms

    def figures(self, now_ms: int) -> tuple[float, float]:
        """Mean and longest throttle time in ms of all responses of the last minute; zeros when there were none."""
        return self._times.figures(now_ms)


class ClientThrottleMetrics:
    """The throttle family of one client, per client and per broker.

    Args:
        kind: PRODUCER or CONSUMER.
        client_id: the value of the `client-id` tag.
    """

    def __init__(self, kind: str, client_id: str) -> None:
        self._prefix, self._group = _NAMES[kind]
        self._node_group = f"{kind}-node-metrics"
        self._client_id = client_id
        self._all = ThrottleTimes()
        self._nodes: dict[int, ThrottleTimes] = {}

    def record(self, node_id: int, *, responses: int, throttled: int, sum_ms: int, max_ms: int, now_ms: int) -> None:
        """Record responses of one broker; arguments as `ThrottleTimes.record`."""
        node = self._nodes.setdefault(node_id, ThrottleTimes())
        for times in (self._all, node):
            times.record(responses=responses, throttled=throttled, sum_ms=sum_ms, max_ms=max_ms, now_ms=now_ms)

    def collect(self, now_ms: int) -> dict[MetricName, float]:
        """All figures at `now_ms`, in ms and counts."""
        client = ("client-id", self._client_id)
        found = dict(self._figures(self._all, self._group, (client,), now_ms))
        for node_id, times in list(self._nodes.items()):
            found.update(self._figures(times, self._node_group, (client, ("node-id", f"node-{node_id}")), now_ms))
        return found

    def _figures(
        self, times: ThrottleTimes, group: str, tags: tuple[tuple[str, str], ...], now_ms: int
    ) -> Iterable[tuple[MetricName, float]]:
        average, longest = times.figures(now_ms)
        # Byte and request quotas answer with one throttle time, the longer of the two: both names report it.
        for prefix in (self._prefix, "request"):
            yield MetricName(f"{prefix}-throttle-time-avg", group, tags), average
            yield MetricName(f"{prefix}-throttle-time-max", group, tags), longest
        yield MetricName(f"{self._prefix}-throttle-time-total", group, tags), times.total_ms
        yield MetricName(f"{self._prefix}-throttle-count", group, tags), float(times.count)
        yield MetricName(f"{self._prefix}-throttle-time-last", group, tags), float(times.last_ms)
