"""What a scrape is answered with: the last value of every series that clients have pushed, for Prometheus.

Names and label keys have every character that Prometheus does not know replaced by `_`; counters end in `_total`, once;
units are not appended, since Kafka's names often carry them already. Deltas are added up. A series whose client has
not pushed for three intervals is gone.

What one client pushes never spoils the page for the others: labels that mean something to Prometheus are renamed, a
name that two clients use for different things is given to the larger number of them and to the others with its kind
behind it, and when room is short those who take most of it lose series first.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, pairwise

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint

from kclient_telemetry import logger_of
from kclient_telemetry.locks import reentrant_lock
from kclient_telemetry.receiver.exposition import Family, Sample, histogram_samples, label_name, prometheus_name
from kclient_telemetry.receiver.fanout import ReceivedPush
from kclient_telemetry.receiver.plugin import ENRICHMENT
from kclient_telemetry.receiver.rows import Series, series_of, text_attributes

log = logger_of(__name__)

MAX_SERIES = 100_000
MAX_BYTES = 128 * 1024 * 1024
STALE_AFTER_INTERVALS = 3
STALE_AFTER_MS = 60_000
OWN_PREFIX = "kafka_client_telemetry_"
"""What the page says about itself; clients' metrics of such names are dropped."""

_TELL_EVERY_MS = 60_000  # of each reason: who pushes every second fills no log
_MAX_POINTS = 20_000  # of one push: at 50 bytes a point more than a megabyte holds
_AT_ONCE = 100
_MAX_ATTRIBUTES = 256
_MAX_LABELS = 64
_MAX_TEXT = 4_096
_MAX_BUCKETS = 500
_SERIES_BYTES = 600  # what Python needs for a series without its texts, measured
_EVICTED_PART = 100  # of what its owner has, so that not every new series looks for the largest owner
_SUFFIXES = {
    "gauge": ("",),
    "counter": ("", "_total", "_created"),
    "histogram": ("", "_bucket", "_sum", "_count", "_created"),
}

Labels = tuple[tuple[str, str], ...]
Owner = tuple[str, str]
"""Principal and address: whom the room that series take is put down to."""


class DropReason:
    """Why a point is not on the page."""

    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    RESERVED_NAME = "reserved_name"
    NO_ROOM = "no_room"


class _UnwantedError(Exception):
    """A point that is dropped, and why."""


@dataclass(slots=True)
class _Value:
    owner: Owner
    bytes: int
    number: float = 0.0  # of a histogram: its sum, NaN if it has none
    bounds: tuple[float, ...] = ()
    buckets: list[int] = field(default_factory=list)
    lasts_ms: int = 0  # after a push
    stale_at_unix_ms: int = 0  # by the clock that pushes are stamped with
    gone_at_unix_ms: int = 0  # by the page's


_FamilyKey = tuple[str, str]
"""A name without suffixes, and a kind."""


class PrometheusStore:
    """What is known about every series; a sink of its own, which whoever pushes waits for (`PrometheusSink`: nobody).

    Args:
        max_series: most series kept.
        max_bytes: about how much memory they may take.
        labels: keys of the enrichment to use as labels beside those of the point and of the client's resource;
            client_instance_id is always among them, since without it clients would overwrite each other.

    Attributes:
        pushes: how many came.
        dropped: points that are not on the page, by `DropReason`; the log says so once a minute for each.
        evicted_series: series of those who take most room, forgotten for the sake of others.
    """

    def __init__(
        self, *, max_series: int = MAX_SERIES, max_bytes: int = MAX_BYTES, labels: tuple[str, ...] | None = None
    ) -> None:
        self._max_series = max_series
        self._max_bytes = max_bytes
        self._labels = labels
        self._families: dict[_FamilyKey, dict[Labels, _Value]] = {}
        self._owned: dict[Owner, dict[tuple[_FamilyKey, Labels], None]] = {}
        self._bytes_of: Counter[Owner] = Counter()
        self._largest: Owner | None = None  # in `_bytes_of`, as long as that is known
        self._series = 0
        self._bytes = 0
        self._lock = reentrant_lock()
        self.pushes = 0
        self.dropped: Counter[str] = Counter()
        self._told_unix_ms: dict[str, int] = {}
        self.evicted_series = 0

    def accept(self, push: ReceivedPush) -> None:
        """Take over the values of `push`."""
        for _ in self.steps(push):
            pass

    def accept_at_once(self, push: ReceivedPush) -> bool:
        """The same, but not while others are at it (a page is made, another push is taken over): whether it was."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self.accept(push)
        finally:
            self._lock.release()
        return True

    def steps(self, push: ReceivedPush) -> Iterator[None]:
        """Take over the values of `push` some at a time, between which a page may be made."""
        who = self._who(push.attributes)
        sender = push.context.authorizable_request_context
        owner = (sender.principal, sender.client_address or str(push.payload.client_instance_id))
        lasts_ms = max(STALE_AFTER_MS, STALE_AFTER_INTERVALS * push.context.push_interval_ms)
        request = push.request
        points = _count(request)
        with self._lock:
            self.pushes += 1
            if points is None or points > _MAX_POINTS:
                left_out = 1 if points is None else points - _MAX_POINTS
                self._drop(DropReason.TOO_LARGE, owner, push.received_unix_ms, left_out)
        rest = islice(() if points is None else series_of(push, request), _MAX_POINTS)
        while part := list(islice(rest, _AT_ONCE)):
            with self._lock:
                for series in part:
                    try:
                        self._take(series, who, owner, push.received_unix_ms, lasts_ms)
                    except _UnwantedError as reason:
                        self._drop(str(reason), owner, push.received_unix_ms)
            yield

    def close(self, timeout_ms: int) -> None:
        """Nothing is pending."""

    @property
    def dropped_points(self) -> int:
        """How many points are not on the page."""
        return self.dropped.total()

    def families(self, now_unix_ms: int) -> list[Family]:
        """All series that are not stale, and what happened to points."""
        with self._lock:
            self._forget_stale(now_unix_ms)
            found, renamed = self._named()
            return [*found, *self._own(renamed)]

    def _named(self) -> tuple[list[Family], int]:
        """Families under names of which no two meet: the more clients use a name for a thing, the sooner it has it."""
        users = {key: len({value.owner for value in values.values()}) for key, values in self._families.items()}
        taken: set[str] = set()
        found = []
        renamed = 0
        for key in sorted(self._families, key=lambda key: -users[key]):  # stable: among equals the first comer
            name, kind = key
            if _sample_names(name, kind) & taken:
                renamed += 1
                name = f"{name}_{kind}"
                while _sample_names(name, kind) & taken:
                    name += "_"
            taken |= _sample_names(name, kind)
            samples = [
                sample for labels, value in self._families[key].items() for sample in _samples(kind, labels, value)
            ]
            found.append(Family(name, kind, samples, "pushed by Kafka clients"))
        return sorted(found, key=lambda family: family.name), renamed

    def _own(self, renamed: int) -> list[Family]:
        counts: dict[str, tuple[str, str, list[Sample]]] = {
            "pushes": ("counter", "pushes taken", [("_total", {}, self.pushes)]),
            "dropped_points": (
                "counter",
                "points that are not on this page",
                [("_total", {"reason": reason}, count) for reason, count in sorted(self.dropped.items())]
                or [("_total", {"reason": DropReason.NO_ROOM}, 0)],
            ),
            "evicted_series": ("counter", "series forgotten to make room", [("_total", {}, self.evicted_series)]),
            "series": ("gauge", "series on this page", [("", {}, self._series)]),
            "series_bytes": ("gauge", "about how much memory they take", [("", {}, self._bytes)]),
            "renamed_metrics": ("gauge", "metrics whose name others use for something else", [("", {}, renamed)]),
        }
        return [Family(f"{OWN_PREFIX}{name}", kind, samples, words) for name, (kind, words, samples) in counts.items()]

    def _drop(self, reason: str, owner: Owner, now_unix_ms: int, points: int = 1) -> None:
        self.dropped[reason] += points
        told_unix_ms = self._told_unix_ms.get(reason)
        if told_unix_ms is None or abs(now_unix_ms - told_unix_ms) >= _TELL_EVERY_MS:
            self._told_unix_ms[reason] = now_unix_ms
            log.warning("points of client telemetry from %s at %s are dropped: %s", *owner, reason)

    def _who(self, attributes: Mapping[str, str]) -> dict[str, str]:
        if self._labels is None:
            return dict(attributes)
        wanted = {"client_instance_id", *self._labels}
        return {key: value for key, value in attributes.items() if key in wanted}

    def _take(self, series: Series, who: Mapping[str, str], owner: Owner, now_unix_ms: int, lasts_ms: int) -> None:
        key = _family_of(series)
        _check(series, key[1])
        labels = _labels_of(series, who)
        buckets = len(series.point.explicit_bounds) + 1 if isinstance(series.point, HistogramDataPoint) else 0
        size = _SERIES_BYTES + sum(len(name) + len(text) for name, text in labels) + 64 * buckets
        value = self._families.get(key, {}).get(labels)
        if value is not None and size > value.bytes:  # a histogram with more buckets than before
            self._forget(key, labels)
            value = None
        if value is None:
            value = self._new_value(key, labels, owner, size)
        elif value.stale_at_unix_ms <= now_unix_ms:
            value.number, value.buckets = 0.0, []
        value.lasts_ms = lasts_ms
        value.stale_at_unix_ms = value.gone_at_unix_ms = now_unix_ms + lasts_ms
        if isinstance(series.point, HistogramDataPoint):
            _take_histogram(series.point, value, delta=series.delta)
        else:
            value.number = value.number + series.value if series.delta else series.value

    def _new_value(self, key: _FamilyKey, labels: Labels, owner: Owner, size: int) -> _Value:
        if not self._has_room(owner, size):
            raise _UnwantedError(DropReason.NO_ROOM)
        value = _Value(owner, size)
        self._families.setdefault(key, {})[labels] = value
        self._owned.setdefault(owner, {})[key, labels] = None
        self._bytes_of[owner] += size
        if self._largest is not None and self._bytes_of[owner] > self._bytes_of[self._largest]:
            self._largest = owner
        self._bytes += size
        self._series += 1
        return value

    def _has_room(self, owner: Owner, size: int) -> bool:
        """Whether a series fits, if need be in the place of others of whoever takes most, unless that is the owner."""
        while self._series >= self._max_series or self._bytes + size > self._max_bytes:
            if not self._bytes_of:
                return False
            # known mostly: where all have as much, each of thousands is refused at each point that it pushes
            largest = self._largest = self._largest or max(self._bytes_of, key=self._bytes_of.__getitem__)
            if largest == owner or self._bytes_of[largest] <= self._bytes_of[owner] + size:
                return False
            spare = self._bytes_of[largest] - self._bytes_of[owner] - size
            for key, labels in list(islice(self._owned[largest], max(1, len(self._owned[largest]) // _EVICTED_PART))):
                if spare <= 0:
                    break
                spare -= self._families[key][labels].bytes
                self._forget(key, labels)
                self.evicted_series += 1
        return True

    def _forget(self, key: _FamilyKey, labels: Labels) -> None:
        value = self._families[key].pop(labels)
        if not self._families[key]:
            del self._families[key]
        del self._owned[value.owner][key, labels]
        self._bytes_of[value.owner] -= value.bytes
        if value.owner == self._largest:
            self._largest = None
        if not self._owned[value.owner]:
            del self._owned[value.owner], self._bytes_of[value.owner]
        self._bytes -= value.bytes
        self._series -= 1

    def _forget_stale(self, now_unix_ms: int) -> None:
        stale = []
        for key, values in self._families.items():
            for labels, value in values.items():
                # of a time to come: by a clock that is ahead, or ours has been put back; none stays for that long
                value.gone_at_unix_ms = min(value.gone_at_unix_ms, now_unix_ms + value.lasts_ms)
                if value.gone_at_unix_ms <= now_unix_ms:
                    stale.append((key, labels))
        for key, labels in stale:
            self._forget(key, labels)


def _count(request: ExportMetricsServiceRequest) -> int | None:
    """How many points there are, at little cost; None if a resource says more of itself than any client would."""
    points = 0
    for resource_metrics in request.resource_metrics:
        if len(resource_metrics.resource.attributes) > _MAX_ATTRIBUTES:
            return None
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                points += (
                    len(metric.gauge.data_points) + len(metric.sum.data_points) + len(metric.histogram.data_points)
                )
    return points


def _sample_names(name: str, kind: str) -> set[str]:
    return {name + suffix for suffix in _SUFFIXES[kind]}


def _family_of(series: Series) -> _FamilyKey:
    name, kind = prometheus_name(series.metric.name), series.kind
    if not series.metric.name or len(name) > _MAX_TEXT:
        raise _UnwantedError(DropReason.MALFORMED)
    if name.startswith(OWN_PREFIX):
        raise _UnwantedError(DropReason.RESERVED_NAME)
    if kind == "sum":
        kind = "counter" if series.metric.sum.is_monotonic else "gauge"
    return (name.removesuffix("_total") or name if kind == "counter" else name), kind


def _check(series: Series, kind: str) -> None:
    """Refuse what no counter and no histogram can be."""
    point = series.point
    if not isinstance(point, HistogramDataPoint):
        is_wrong = kind == "counter" and not 0 <= series.value < math.inf
    elif len(point.explicit_bounds) > _MAX_BUCKETS:
        raise _UnwantedError(DropReason.TOO_LARGE)
    else:
        bounds, counts = point.explicit_bounds, point.bucket_counts
        is_wrong = (
            (_has_sum(point) and not 0 <= point.sum < math.inf)
            or not all(map(math.isfinite, bounds))
            or any(left >= right for left, right in pairwise(bounds))
            or (bool(counts or bounds) and len(counts) != len(bounds) + 1)
        )
    if is_wrong:
        raise _UnwantedError(DropReason.MALFORMED)


def _has_sum(point: HistogramDataPoint) -> bool:
    """Whether there is a sum that only grows: with negative observations it does not, whatever it is then."""
    return point.HasField("sum") and not any(bound < 0 for bound in point.explicit_bounds)


def _labels_of(series: Series, who: Mapping[str, str]) -> Labels:
    """Who it is the receiver alone says; attributes that Prometheus cannot tell apart are joined by `;`."""
    if len(series.point.attributes) > _MAX_ATTRIBUTES:
        raise _UnwantedError(DropReason.TOO_LARGE)
    theirs: dict[str, list[str]] = {}
    for key, text in sorted({**series.resource, **text_attributes(series.point.attributes)}.items()):
        theirs.setdefault(label_name(key), []).append(text)
    labels = {name: ";".join(texts) for name, texts in theirs.items() if name not in ENRICHMENT}
    labels |= {prometheus_name(key): text for key, text in who.items()}
    labels = {name: text for name, text in labels.items() if text}  # to Prometheus no text is no label
    if len(labels) > _MAX_LABELS or sum(len(name) + len(text) for name, text in labels.items()) > _MAX_TEXT:
        raise _UnwantedError(DropReason.TOO_LARGE)
    return tuple(sorted(labels.items()))


def _take_histogram(point: HistogramDataPoint, value: _Value, *, delta: bool) -> None:
    bounds, counts = tuple(point.explicit_bounds), list(point.bucket_counts) or [point.count]
    total = point.sum if _has_sum(point) else math.nan
    if delta and value.bounds == bounds and len(value.buckets) == len(counts):
        value.buckets = [before + more for before, more in zip(value.buckets, counts, strict=True)]
        value.number += total
    else:
        value.bounds, value.buckets, value.number = bounds, counts, total


def _samples(kind: str, labels: Labels, value: _Value) -> list[Sample]:
    if kind == "histogram":
        return histogram_samples(dict(labels), value.bounds, value.buckets, value.number)
    return [("_total" if kind == "counter" else "", dict(labels), value.number)]
