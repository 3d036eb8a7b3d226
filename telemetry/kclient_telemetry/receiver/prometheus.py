"""A scrape endpoint: the last value of every series that clients have pushed, in Prometheus' text format.

Names and label keys have every character that Prometheus does not know replaced by `_`; counters end in `_total`, once;
units are not appended, since Kafka's names often carry them already. Deltas are added up. A series whose client has
not pushed for three intervals is gone.
"""

import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate

from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint

from kclient_telemetry.receiver.fanout import ReceivedPush
from kclient_telemetry.receiver.rows import Series, series_of, text_attributes

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_SERIES = 100_000
STALE_AFTER_INTERVALS = 3
STALE_AFTER_MS = 60_000

_UNKNOWN = re.compile(r"[^a-zA-Z0-9_]")

Labels = tuple[tuple[str, str], ...]


@lru_cache(maxsize=4096)
def prometheus_name(name: str) -> str:
    """`name` with what Prometheus does not allow replaced by `_`."""
    clean = _UNKNOWN.sub("_", name)
    return f"_{clean}" if clean[:1].isdigit() else clean


@dataclass(slots=True)
class _Value:
    number: float = 0.0
    bounds: tuple[float, ...] = ()
    buckets: list[int] = field(default_factory=list)
    stale_at_unix_ms: int = 0


@dataclass(slots=True)
class _Family:
    kind: str
    values: dict[Labels, _Value] = field(default_factory=dict)


class PrometheusStore:
    """What is known about every series; a sink of its own.

    Args:
        max_series: most series kept; points of further ones are dropped and counted.
        labels: keys of the enrichment to use as labels beside those of the point and of the client's resource;
            client_instance_id is always among them, since without it clients would overwrite each other.
    """

    def __init__(self, *, max_series: int = MAX_SERIES, labels: tuple[str, ...] | None = None) -> None:
        self._max_series = max_series
        self._labels = labels
        self._families: dict[str, _Family] = {}
        self._series = 0
        self._lock = threading.Lock()
        self.pushes = 0
        self.dropped_points = 0

    def accept(self, push: ReceivedPush) -> None:
        """Take over the values of `push`."""
        who = self._who(push.attributes)
        stale_at = push.received_unix_ms + max(STALE_AFTER_MS, STALE_AFTER_INTERVALS * push.context.push_interval_ms)
        with self._lock:
            self.pushes += 1
            for series in series_of(push):
                self._take(series, who, push.received_unix_ms, stale_at)

    def close(self, timeout_ms: int) -> None:
        """Nothing is pending."""

    def render(self, now_unix_ms: int) -> str:
        """All series that are not stale, and what happened to points, in Prometheus' text format."""
        lines: list[str] = []
        with self._lock:
            self._forget_stale(now_unix_ms)
            for name, family in sorted(self._families.items()):
                lines.append(f"# TYPE {name} {family.kind}")
                for labels, value in family.values.items():
                    lines.extend(_lines(name, labels, value))
            own = {
                "kafka_client_telemetry_pushes_total": ("counter", self.pushes),
                "kafka_client_telemetry_dropped_points_total": ("counter", self.dropped_points),
                "kafka_client_telemetry_series": ("gauge", self._series),
            }
        for name, (kind, number) in own.items():
            lines += (f"# TYPE {name} {kind}", f"{name} {number}")
        return "\n".join(lines) + "\n"

    def _who(self, attributes: Mapping[str, str]) -> dict[str, str]:
        if self._labels is None:
            return dict(attributes)
        wanted = {"client_instance_id", *self._labels}
        return {key: value for key, value in attributes.items() if key in wanted}

    def _take(self, series: Series, who: Mapping[str, str], now_unix_ms: int, stale_at_unix_ms: int) -> None:
        value = self._value(series, who, now_unix_ms)
        if value is None:
            self.dropped_points += 1
            return
        value.stale_at_unix_ms = stale_at_unix_ms
        if isinstance(series.point, HistogramDataPoint):
            _take_histogram(series.point, value, delta=series.delta)
        else:
            value.number = value.number + series.value if series.delta else series.value

    def _value(self, series: Series, who: Mapping[str, str], now_unix_ms: int) -> _Value | None:
        """Where the series is kept; None when its name is of another kind, or when there are too many series."""
        name = prometheus_name(series.metric.name)
        kind = series.kind
        if kind == "sum":
            kind = "counter" if series.metric.sum.is_monotonic else "gauge"
        if kind == "counter" and not name.endswith("_total"):
            name += "_total"
        family = self._families.setdefault(name, _Family(kind))
        labels = _label_set({**series.resource, **text_attributes(series.point.attributes), **who})
        value = family.values.get(labels)
        if value is not None and value.stale_at_unix_ms <= now_unix_ms:
            value.number, value.buckets = 0.0, []
        if value is None and family.kind == kind and self._series < self._max_series:
            value = family.values[labels] = _Value()
            self._series += 1
        return value if family.kind == kind else None

    def _forget_stale(self, now_unix_ms: int) -> None:
        for name, family in list(self._families.items()):
            stale = [labels for labels, value in family.values.items() if value.stale_at_unix_ms <= now_unix_ms]
            for labels in stale:
                del family.values[labels]
            self._series -= len(stale)
            if not family.values:
                del self._families[name]


def _take_histogram(point: HistogramDataPoint, value: _Value, *, delta: bool) -> None:
    bounds, counts = tuple(point.explicit_bounds), list(point.bucket_counts) or [point.count]
    if delta and value.bounds == bounds and len(value.buckets) == len(counts):
        value.buckets = [before + more for before, more in zip(value.buckets, counts, strict=True)]
        value.number += point.sum
    else:
        value.bounds, value.buckets, value.number = bounds, counts, point.sum


def _label_set(attributes: Mapping[str, str]) -> Labels:
    return tuple(sorted({prometheus_name(key): text for key, text in attributes.items()}.items()))


def _lines(name: str, labels: Labels, value: _Value) -> list[str]:
    if not value.buckets:
        return [f"{name}{_braces(labels)} {_number(value.number)}"]
    counts = list(accumulate(value.buckets))
    bounds = [*map(_number, value.bounds), "+Inf"]
    lines = [
        f"{name}_bucket{_braces((*labels, ('le', bound)))} {count}"
        for bound, count in zip(bounds, counts, strict=False)
    ]
    return [
        *lines,
        f"{name}_sum{_braces(labels)} {_number(value.number)}",
        f"{name}_count{_braces(labels)} {counts[-1]}",
    ]


def _braces(labels: Labels) -> str:
    escaped = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{{{escaped}}}" if escaped else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _system_unix_ms() -> int:
    return time.time_ns() // 1_000_000


class PrometheusEndpoint:
    """A sink that serves `GET /metrics`.

    Args:
        host: address to listen on.
        port: 0 for any free one.
        store: what is served; a new one if None.
        unix_ms: the wall clock.

    Attributes:
        port: the one that is listened on.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        store: PrometheusStore | None = None,
        unix_ms: Callable[[], int] = _system_unix_ms,
    ) -> None:
        self.store = store or PrometheusStore()
        self._server = ThreadingHTTPServer((host, port), _handler(self.store, unix_ms))
        self._server.daemon_threads = True
        self.port: int = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="prometheus-endpoint", daemon=True
        )
        self._thread.start()

    def accept(self, push: ReceivedPush) -> None:
        """Take over the values of `push`."""
        self.store.accept(push)

    def close(self, timeout_ms: int) -> None:
        """Stop listening, within `timeout_ms` or a little more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout_ms / 1000)


def _handler(store: PrometheusStore, unix_ms: Callable[[], int]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30  # seconds, of an idle scraper

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "only /metrics is here")
                return
            body = store.render(unix_ms()).encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the base class's name
            """Scrapes are not worth a line on stderr."""

    return Handler
