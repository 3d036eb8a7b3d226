"""The registry of everything a client can push."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kclient_telemetry import logger_of
from kclient_telemetry.client.subscription import Selection
from kclient_telemetry.client.temporality import Ledger
from kclient_telemetry.locks import reentrant_lock
from kclient_telemetry.metric import (
    Attributes,
    HistogramValue,
    MetricKind,
    MetricName,
    Point,
    PointKey,
    PushPoint,
    attributes_of,
)
from kclient_telemetry.naming import point_of

log = logger_of(__name__)

Source = Callable[[], Iterable[Point]]
Measure = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class _Registered:
    metric: MetricName
    key: PointKey
    measure: Measure
    kind: MetricKind


class Collector:
    """Asks its sources for points and remembers what has been pushed of them.

    Sources are asked in the order they were added, the metrics of the application (KIP-1076) last; the first point of a
    series wins, so that an application cannot replace a metric of the client, as in Kafka. Registering may happen
    in any thread.

    Args:
        resource: attributes of every push; Kafka's client sends group_id, group_instance_id, client_rack and
            transactional_id when they are configured.

    Attributes:
        failures: how often a source or a registered metric raised; what it would have given is left out of that push.
    """

    def __init__(self, resource: Mapping[str, str] | None = None) -> None:
        self._lock = reentrant_lock()  # a signal's handler may come into a call, and close
        self._resource = attributes_of(resource or {})
        self._sources: list[Source] = []
        self._registered: dict[MetricName, _Registered] = {}
        self._ledger = Ledger()
        # Series of the sources, as last collected: a metric of the application that is hidden by one changes nothing.
        self._sourced: set[PointKey] = set()
        self._complained: set[object] = set()
        self.failures = 0

    @property
    def resource(self) -> Attributes:
        """Attributes of every push."""
        return self._resource

    def update_labels(self, labels: Mapping[str, str]) -> None:
        """Add or change attributes of every push, as group_member_id after a join."""
        with self._lock:
            self._resource = attributes_of({**dict(self._resource), **labels})

    def add_source(self, source: Source) -> None:
        """Ask `source` for points before every push."""
        with self._lock:
            self._sources.append(source)

    def remove_source(self, source: Source) -> None:
        """No longer ask `source`; nothing happens when it was never added."""
        with self._lock:
            if source in self._sources:
                self._sources.remove(source)

    def register_metric_for_subscription(
        self, metric: MetricName, measure: Measure, kind: MetricKind = MetricKind.GAUGE, *, unix_ms: int
    ) -> None:
        """Push a metric of the application (KIP-1076); registering a name again replaces it.

        Args:
            metric: named by Kafka's convention in the push.
            measure: gives the current value: a number (True and False are 1 and 0), a `HistogramValue` for histograms;
                anything else is left out.
            kind: SUM and HISTOGRAM for values that only grow.
            unix_ms: the time from which the metric counts.
        """
        with self._lock:
            registered = self._registered[metric] = _Registered(metric, point_of(metric, 0).key, measure, kind)
            if registered.key not in self._sourced:
                self._ledger.track(registered.key, unix_ms)

    def unregister_metric_from_subscription(self, metric: MetricName) -> None:
        """No longer push `metric`; nothing happens when it was never registered."""
        with self._lock:
            registered = self._registered.pop(metric, None)
            if registered is not None and registered.key not in self._sourced:
                self._ledger.forget(registered.key)

    def collect(self, selection: Selection, *, delta: bool, unix_ms: int) -> list[PushPoint]:
        """The current points of all selected metrics, ready to be pushed."""
        with self._lock:
            sources, registered = list(self._sources), list(self._registered.values())
        points: dict[PointKey, Point] = {}
        for source in sources:
            for point in self._ask(source):
                if selection.matches(point.key.name):
                    points.setdefault(point.key, point)
        sourced = set(points)
        for metric in registered:
            if selection.matches(metric.key.name) and metric.key not in points:
                self._measure(metric, points)
        with self._lock:
            self._sourced = sourced
            return self._ledger.prepare(points.values(), delta=delta, unix_ms=unix_ms)

    def acknowledge(self, points: Iterable[PushPoint]) -> None:
        """Record that a broker has taken `points`: the next deltas begin there."""
        with self._lock:
            self._ledger.acknowledge(points)

    def reset(self) -> None:
        """Begin all deltas anew."""
        with self._lock:
            self._ledger.reset()

    def _ask(self, source: Source) -> Sequence[Point]:
        try:
            return list(source())
        except Exception as error:  # noqa: BLE001 # whatever a source raises, the other sources are still pushed
            self._complain(id(source), error, "a source of telemetry failed; its metrics are left out of this push")
            return ()

    def _measure(self, registered: _Registered, points: dict[PointKey, Point]) -> None:
        kind, metric = registered.kind, registered.metric
        try:
            value = registered.measure()
            if isinstance(value, int):
                float(value)  # a push has no larger numbers: one of them would keep all others from being sent
        except Exception as error:  # noqa: BLE001 # the application's own code; the other metrics are still pushed
            self._complain(
                metric, error, f"{metric.group}/{metric.name} could not be measured and is left out of this push"
            )
            return
        if isinstance(value, HistogramValue if kind is MetricKind.HISTOGRAM else (int, float)):
            points[registered.key] = Point(registered.key, kind, value)

    def _complain(self, culprit: object, error: Exception, message: str) -> None:
        """Count a failure; log it with its traceback only the first time."""
        self.failures += 1
        if culprit not in self._complained:
            self._complained.add(culprit)
            log.warning(message, exc_info=error)
