"""The broker metrics of group `client-metrics`, windowed as Kafka's are: two samples of 30 seconds."""

import math
from dataclasses import dataclass, field

from kclient_telemetry.metric import MetricName

GROUP = "client-metrics"

_WINDOW_MS = 30_000
_SAMPLES = 2


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_ms: int
    total: float = 0.0
    largest: float = -math.inf
    count: int = 0


@dataclass(slots=True)
class Windowed:
    """Events of the last one to two windows, and how many there ever were."""

    ever: int = 0
    _samples: list[_Sample] = field(default_factory=list)

    def record(self, now_ms: int, value: float = 1.0) -> None:
        """Something happened; `value` is what is averaged."""
        self.ever += 1
        if not self._samples or now_ms - self._samples[-1].start_ms >= _WINDOW_MS:
            self._samples = [*self._samples[-_SAMPLES:], _Sample(now_ms, now_ms)]
        sample = self._samples[-1]
        sample.last_ms = now_ms
        sample.total += value
        sample.largest = max(sample.largest, value)
        sample.count += 1

    def rate(self, now_ms: int) -> float:
        """Events a second; a window that has only begun counts as a whole one."""
        samples = self._recent(now_ms)
        if not samples:
            return 0.0
        elapsed_ms = now_ms - samples[0].start_ms
        missing_windows = max(_SAMPLES - 1 - elapsed_ms // _WINDOW_MS, 0)
        return sum(sample.count for sample in samples) * 1000 / (elapsed_ms + missing_windows * _WINDOW_MS)

    def average(self, now_ms: int) -> float:
        """Mean of the recorded values; NaN when there are none."""
        samples = self._recent(now_ms)
        count = sum(sample.count for sample in samples)
        return sum(sample.total for sample in samples) / count if count else math.nan

    def maximum(self, now_ms: int) -> float:
        """Largest of the recorded values; NaN when there are none."""
        return max((sample.largest for sample in self._recent(now_ms)), default=math.nan)

    def _recent(self, now_ms: int) -> list[_Sample]:
        return [sample for sample in self._samples if now_ms - sample.last_ms < _SAMPLES * _WINDOW_MS]


@dataclass(slots=True)
class InstanceStats:
    """What is counted per client instance."""

    throttle: Windowed = field(default_factory=Windowed)
    plugin_export: Windowed = field(default_factory=Windowed)
    plugin_error: Windowed = field(default_factory=Windowed)

    def metrics(self, client_instance_id: str, now_ms: int) -> dict[MetricName, float]:
        """The eight metrics of one client instance."""
        tags = (("client_instance_id", client_instance_id),)
        values = {
            **meter("throttle", self.throttle, now_ms),
            **meter("plugin-export", self.plugin_export, now_ms),
            "plugin-export-time-avg": self.plugin_export.average(now_ms),
            "plugin-export-time-max": self.plugin_export.maximum(now_ms),
            **meter("plugin-error", self.plugin_error, now_ms),
        }
        return {MetricName(name, GROUP, tags): value for name, value in values.items()}


def meter(name: str, events: Windowed, now_ms: int) -> dict[str, float]:
    """Kafka's Meter: how many ever, and how many a second."""
    return {f"{name}-count": float(events.ever), f"{name}-rate": events.rate(now_ms)}
