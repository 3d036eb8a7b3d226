"""What has already been pushed: turns growing values into deltas since the last acknowledged push."""

from collections.abc import Iterable
from dataclasses import dataclass

from kclient_telemetry.metric import MetricKind, Point, PointKey, PointValue, PushPoint, subtract

_FORGET_AFTER_COLLECTIONS = 100


@dataclass(slots=True)
class _Series:
    started_unix_ms: int
    seen: PointValue | None = None
    seen_unix_ms: int = 0
    seen_in: int = 0
    acknowledged: PointValue | None = None
    acknowledged_unix_ms: int = 0


class Ledger:
    """The last acknowledged value of every growing series.

    Kafka's collector moves its delta state on when metrics are collected, so that a failed push loses what it carried.
    Here it moves when a push is acknowledged: what a failed push carried is in the next one.
    """

    def __init__(self) -> None:
        self._series: dict[PointKey, _Series] = {}
        self._collections = 0

    def track(self, key: PointKey, unix_ms: int) -> None:
        """Begin `key` anew: it counts since `unix_ms`."""
        self._series[key] = _Series(unix_ms)

    def forget(self, key: PointKey) -> None:
        """Drop what is known of `key`."""
        self._series.pop(key, None)

    def reset(self) -> None:
        """Forget what was acknowledged, as Kafka's metricsReset does when the temporality changes."""
        for series in self._series.values():
            series.acknowledged = None

    def prepare(self, points: Iterable[Point], *, delta: bool, unix_ms: int) -> list[PushPoint]:
        """`points` as they are to be pushed at `unix_ms`."""
        self._collections += 1
        prepared = [self._prepare(point, delta=delta, unix_ms=unix_ms) for point in points]
        if self._collections % _FORGET_AFTER_COLLECTIONS == 0:
            self._forget_unseen()
        return prepared

    def acknowledge(self, points: Iterable[PushPoint]) -> None:
        """Record that a broker has taken `points`."""
        for point in points:
            series = self._series.get(point.point.key)
            if series is not None and point.point.kind is not MetricKind.GAUGE:
                series.acknowledged = point.point.value
                series.acknowledged_unix_ms = point.time_unix_ms

    def _prepare(self, point: Point, *, delta: bool, unix_ms: int) -> PushPoint:
        if point.kind is MetricKind.GAUGE:
            return PushPoint(point, point.value, None, unix_ms, delta=False)
        series = self._series.setdefault(point.key, _Series(unix_ms))
        if series.seen is not None and subtract(point.value, series.seen) is None:
            # The counter began anew: it counts since we last saw the old one.
            series.started_unix_ms = series.seen_unix_ms
            series.acknowledged = None
        series.seen, series.seen_unix_ms, series.seen_in = point.value, unix_ms, self._collections
        if delta and series.acknowledged is not None:
            change = subtract(point.value, series.acknowledged)
            if change is not None:
                return PushPoint(point, change, series.acknowledged_unix_ms, unix_ms, delta=True)
        start = series.started_unix_ms if point.start_unix_ms is None else point.start_unix_ms
        return PushPoint(point, point.value, start, unix_ms, delta)

    def _forget_unseen(self) -> None:
        oldest = self._collections - _FORGET_AFTER_COLLECTIONS
        gone = [key for key, series in self._series.items() if series.seen is not None and series.seen_in <= oldest]
        for key in gone:
            del self._series[key]
