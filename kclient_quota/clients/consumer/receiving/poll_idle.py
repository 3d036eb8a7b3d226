"""`poll-idle-ratio-avg`: which part of its time an application spends in poll(), after Kafka's KafkaConsumerMetrics.

Each poll's ratio is its duration by that duration plus the time since the poll before it began; the metric is the mean
over the polls of the last minute.
"""

from math import isnan

from kclient_quota.metrics import CONSUMER, MetricName
from kclient_quota.quota.rate import SampledAvg


class PollIdle:
    """One consumer's ratio; belongs to the thread that polls. Times of a poll are of any clock and unit."""

    __slots__ = ("_began", "_count", "_ratios", "_sum")

    def __init__(self) -> None:
        self._ratios = SampledAvg()
        self._began: float | None = None
        self._sum = 0.0
        self._count = 0

    def polled(self, began: float, ended: float) -> None:
        """A poll has lasted from one to the other."""
        before, self._began = self._began, began
        # Where both are nothing Kafka records NaN, which would hide every other ratio of the minute.
        if before is not None and ended > before:
            self._sum += max(0.0, ended - began) / (ended - before)
            self._count += 1

    def flush(self, now_ms: int) -> None:
        """Count what has been polled as of now."""
        if self._count:
            self._ratios.record(self._sum / self._count, now_ms)
        self._sum, self._count = 0.0, 0

    def metrics(self, client_id: str, now_ms: int) -> dict[MetricName, float]:
        """The mean of the last minute, from 0 to 1; empty where nothing was timed."""
        self.flush(now_ms)
        mean = self._ratios.measure(now_ms)
        name = MetricName("poll-idle-ratio-avg", f"{CONSUMER}-metrics", (("client-id", client_id),))
        return {} if isnan(mean) else {name: mean}
