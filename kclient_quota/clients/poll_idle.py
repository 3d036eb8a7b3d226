"""`poll-idle-ratio-avg`: which part of its time an application spends in poll(), after Kafka's KafkaConsumerMetrics.

Each poll's ratio is its duration by that duration plus the time since the poll before it began; the metric is the mean
over the polls of the last minute. Polls that confluent_kafka serves by itself cannot be timed. So two polls in a row
are timed whenever statistics come, once a second or more often, and the others go by at full speed.
"""

from math import isnan
from typing import Final

from kclient_quota.metrics import CONSUMER, MetricName
from kclient_quota.quota.rate import SampledAvg

NEEDED: Final = 2
"""Polls that give one ratio: the first one tells when it began."""


class PollIdle:
    """One consumer's ratio; belongs to the thread that polls.

    Attributes:
        wanted: how many of the coming polls are to be timed.
    """

    def __init__(self) -> None:
        self.wanted = 0
        self._ratios = SampledAvg()
        self._began_ms: int | None = None
        self._since_ms: int | None = None

    def sample(self) -> None:
        """Have the next two polls timed."""
        self.wanted = NEEDED

    def began(self, now_ms: int) -> None:
        """A poll begins."""
        self._since_ms = None if self._began_ms is None else max(0, now_ms - self._began_ms)
        self._began_ms = now_ms

    def ended(self, now_ms: int) -> None:
        """It has ended."""
        self.wanted = max(0, self.wanted - 1)
        if self._began_ms is None or self._since_ms is None:
            return
        took_ms = max(0, now_ms - self._began_ms)
        # Where both are nothing Kafka records NaN, which would hide every other ratio of the minute.
        if took_ms + self._since_ms:
            self._ratios.record(took_ms / (took_ms + self._since_ms), now_ms)

    def forget(self) -> None:
        """Polls follow that are not timed."""
        self._began_ms = None

    def metrics(self, client_id: str, now_ms: int) -> dict[MetricName, float]:
        """The mean of the last minute, from 0 to 1; empty where nothing was timed."""
        mean = self._ratios.measure(now_ms)
        name = MetricName("poll-idle-ratio-avg", f"{CONSUMER}-metrics", (("client-id", client_id),))
        return {} if isnan(mean) else {name: mean}
