"""Pushes over the windows that they report on: what was counted in five minutes belongs to all of the five.

A push says what was done from its start to its time. Windows of any length get the part of it that overlaps them, as if
it had been done evenly: sums over windows are exact, and a window that is shorter than the push interval shows the mean
of that interval. In batches a push that was lost is made up for by the next one of the same client; throttling that was
announced for longer than the push is of goes on after it; and a wait that was longer began before it.

Evenly is a guess: which of a push's bytes came in the first window that it touches, and which in the second, is nowhere
in it. How much the rate changes is: from push to push, and from a push's mean to the rate of its last seconds. A rate
that varies by v (bytes/s)² within a push of s seconds has at most s² f (1 - f) v bytes² of variance in a part f of it
(Cauchy-Schwarz). That, of both ends of a window, is how far its bytes may be off.

Arithmetic is written as Spark's SQL: each operator of a `Column` is a call into the JVM of its own, and the calls for
some hundred of them took longer than to spread 20,000 pushes.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.quota.rate import STAT_SAMPLES, STAT_WINDOW_MS
from kclient_quota.spark.decoding.point_rows import seconds_of
from kclient_quota.spark.measures import BYTES, PUSHED, REQUESTS, SPANS, THROTTLE_COUNT, THROTTLE_TOTAL, WAIT_TOTAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame

MOST_LOST: Final = 6
"""So many pushes of a client that are lost in a row count as the next one; a longer silence stays one."""

MOST_WINDOWS: Final = 1_000
"""Over how many windows a single push is spread at most."""

_RATE_MS: Final = STAT_SAMPLES * STAT_WINDOW_MS
"""What a client's own rates are of, at most: its last two samples."""

SERIES: Final = ("client", "cluster_id", "user", "client_id", "group_id", "role", "broker")
"""What one client tells about one broker, as one thing."""

_COUNTED: Final = (BYTES, REQUESTS, THROTTLE_COUNT)
_VALUES: Final = ("push_interval_ms", *PUSHED.values, *map(seconds_of, SPANS))


def spread(pushes: "DataFrame", window_ms: int, *, is_whole: bool = False) -> "DataFrame":
    """A row for each push and window that it says something about.

    Args:
        pushes: rows of the shape `measures.PUSHED`.
        window_ms: length of a window.
        is_whole: that a row has all that a push says of a series, as a decoder gives it, and not one point of it.

    Returns:
        the columns of `SERIES`; `time`, within the window; `is_known`: whether `client` is an instance; `begin_ms` and
        `end_ms` of the part; `covered_ms`, `byte_ms`, `request_ms`: its length, where any span, bytes, requests are
        told; `square_ms`: the square of its byte rate times its length; `unsure`: by how much its bytes may be off,
        squared; bytes, requests, throttles, throttle_total_ms
        and wait_total_ms of it; `peak`, the highest byte rate told; throttle_avg_ms, throttle_max_ms as pushed.
    """
    spans = _spans(_series(pushes, is_whole=is_whole), window_ms)
    spans = _times_of_stream(spans) if pushes.isStreaming else _made_up_for(spans, window_ms)
    told = ("_waited_since", "(greatest(_throttled_until, _end) - 1)")
    first, last = (f"floor({time} / {window_ms}) * {window_ms}" for time in told)
    begins = f"sequence({first}, least({last}, {first} + {MOST_WINDOWS * window_ms}), {window_ms})"
    rows = _with(spans, _begin=f"explode({begins})")
    rows = _with(rows, _next=f"_begin + {window_ms}")
    rows = _with(rows, _inside="greatest(least(_end, _next) - greatest(_start, _begin), 0)")
    return rows.selectExpr(
        *SERIES,
        "is_known",
        "timestamp_millis(least(_next, greatest(_end, _begin + 1)) - 1) as time",
        "if(_inside > 0, greatest(_start, _begin), null) as begin_ms",
        "if(_inside > 0, least(_end, _next), null) as end_ms",
        "if((throttle_total_ms is not null or wait_total_ms is not null) and _inside > 0, _inside, null) as covered_ms",
        "if(bytes is not null and _inside > 0, _inside, null) as byte_ms",
        "if(requests is not null and _inside > 0, _inside, null) as request_ms",
        *(f"{name} * if(_inside > 0, _inside / (_end - _start), null) as {name}" for name in _COUNTED),
        "square * if(_inside > 0, _inside, null) as square_ms",
        f"if(bytes is not null and _inside > 0, {_PLACED} + {_LOST}, null) as unsure",
        _part(THROTTLE_TOTAL, "_start", "_throttled_until"),
        _part(WAIT_TOTAL, "_waited_since", "_end"),
        *(f"if(_inside > 0, {name}, null) as {name}" for name in ("peak", "throttle_avg_ms", "throttle_max_ms")),
    )


_PLACED: Final = "_inside / 1000 * ((_end - _start - _inside) / 1000) * _varies"
"""How many bytes of the part may have come at another time of the push, squared."""

_OF_LOST: Final = "(_inside / 1000 * (1 - _span / (_end - _start)))"
_LOST: Final = f"{_OF_LOST} * {_OF_LOST} * _differs"
"""How many bytes of a push that was lost were others, squared."""


def _part(name: str, since: str, until: str) -> str:
    """What of a total lies in the window, spread evenly between two times."""
    inside = f"greatest(least({until}, _next) - greatest({since}, _begin), 0)"
    return f"{name} * {inside} / ({until} - {since}) as {name}"


def _series(pushes: "DataFrame", *, is_whole: bool) -> "DataFrame":
    """A row a push and series: what came as several rows, or twice, as one. Streams have rows of pushes already."""
    named = pushes.selectExpr(
        "coalesce(client_instance_id, client_id) as client",
        *SERIES[1:],
        "client_instance_id is not null as is_known",
        "unix_millis(time) as _end",
        *_VALUES,
    )
    if pushes.isStreaming:
        return named
    if is_whole:
        # All that follows groups by these columns and more: rows are moved once. Points are added up first, instead.
        named = named.repartition(*SERIES)
    return named.groupBy(*SERIES, "is_known", "_end").agg(*aggregated("max", *_VALUES))


def _spans(rows: "DataFrame", window_ms: int) -> "DataFrame":
    """When each push begins, and its counts, those that are told as rates included."""
    seconds = ", ".join(map(seconds_of, SPANS))
    known = f"coalesce(cast(round(greatest({seconds}) * 1000) as bigint), push_interval_ms, {window_ms})"
    rows = _with(rows, _span=f"greatest({known}, 1)").selectExpr(
        *SERIES,
        *("is_known", "_end", "_span", "byte_rate", THROTTLE_TOTAL, THROTTLE_COUNT),
        *("throttle_avg_ms", "throttle_max_ms"),
        "greatest(byte_rate, bytes / bytes_s) as peak",
        "coalesce(bytes, byte_rate * _span / 1000) as bytes",
        "coalesce(requests, request_rate * _span / 1000) as requests",
        # several threads wait at once: what they wait together is no longer than the time that there was
        f"coalesce(wait_wall_ms, {_least(WAIT_TOTAL, '_span')}) as wait_total_ms",
    )
    # how far what it did last was from what it did all the time, where that is longer than what clients call their rate
    rows = _with(rows, _mean="bytes / _span * 1000")
    rows = _with(rows, _off=f"coalesce(if(_span > {_RATE_MS}, byte_rate - _mean, null), 0D)")
    return _with(rows, _varies="_off * _off", square="_mean * _mean + _off * _off")


def _times_of_stream(rows: "DataFrame") -> "DataFrame":
    """Nothing outside of the push: what lies before it may be too late, what lies after would make others late."""
    return _with(
        rows,
        _start="_end - _span",
        _throttled_until="_end",
        _waited_since="_end - _span",
        _differs="0D",
        throttle_total_ms=_least(THROTTLE_TOTAL, "_span"),
        wait_total_ms=_least(WAIT_TOTAL, "_span"),
    )


def _made_up_for(rows: "DataFrame", window_ms: int) -> "DataFrame":
    """Pushes that begin where the last one that came has ended, if it is not too long ago."""
    series = f"partition by {', '.join(SERIES)}"
    order = f"over ({series} order by _end)"
    rows = _with(rows, _gap=f"_end - _span - lag(_end) {order}", _changed=f"coalesce(_mean - lag(_mean) {order}, 0D)")
    rows = _with(
        rows,
        _length=f"_span + if(is_known and _gap > 0 and _gap <= {MOST_LOST} * _span, _gap, 0)",
        # no less from one half of a push to the other than from push to push: bursts fall into either
        _varies="greatest(_varies, _changed * _changed / 2)",
    )
    sums = {name: f"{name} * (_length / _span)" for name in _COUNTED}
    # No more than what fits into the windows there are: the push's own are among them however long it waited.
    most = f"greatest(_length, {MOST_WINDOWS * window_ms})"
    sums[WAIT_TOTAL] = _least(f"{WAIT_TOTAL} * (_length / _span)", most)
    # Answers that were given at the same time overlap: none lasts longer than the longest after the push's end.
    sums[THROTTLE_TOTAL] = _least(f"{THROTTLE_TOTAL} * (_length / _span)", f"_length + throttle_max_ms, {most}")
    whole = {"_varies": f"avg(_varies) over ({series})", "_differs": f"var_pop(_mean) over ({series})"}
    rows = _with(rows, _start="_end - _length", **sums, **whole)
    return _with(
        rows,
        _throttled_until="_start + ceil(greatest(_length, throttle_total_ms))",
        _waited_since="_end - ceil(greatest(_length, wait_total_ms))",
    )


def _least(name: str, bound: str) -> str:
    """The column, no more than that; null where it is null."""
    return f"if({name} is not null, least({name}, {bound}), null)"


def aggregated(function: str, *columns: str) -> "Iterator[Column]":
    """Columns aggregated, under the names that they have; one call into the JVM for each."""
    return (F.expr(f"{function}({name}) as {name}") for name in columns)


def _with(rows: "DataFrame", **columns: str) -> "DataFrame":
    return rows.withColumns({name: F.expr(text) for name, text in columns.items()})
