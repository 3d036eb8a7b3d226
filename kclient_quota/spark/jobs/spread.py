"""Pushes over the windows that they report on: what was counted in five minutes belongs to all of the five.

A push says what was done from its start to its time. Windows of any length get the part of it that overlaps them, as if
it had been done evenly: sums over windows are exact, and a window that is shorter than the push interval shows the mean
of that interval. In batches a push that was lost is made up for by the next one of the same client; throttling that was
announced for longer than the push is of goes on after it; and a wait that was longer began before it.

Evenly is a guess: which of a push's bytes came in the first window that it touches, and which in the second, is nowhere
in it. How much the rate changes is: from push to push, and from a push's mean to the rate of its last seconds. A rate
that varies by v (bytes/s)² within a push of s seconds has at most s² f (1 - f) v bytes² of variance in a part f of it
(Cauchy-Schwarz). That, of both ends of a window, is how far its bytes may be off.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.quota.rate import STAT_SAMPLES, STAT_WINDOW_MS
from kclient_quota.spark.decoding.point_rows import seconds_of
from kclient_quota.spark.measures import (
    BYTE_RATE,
    BYTES,
    PUSHED,
    REQUEST_RATE,
    REQUESTS,
    SPANS,
    THROTTLE_COUNT,
    THROTTLE_MAX,
    THROTTLE_TOTAL,
    WAIT_TOTAL,
    WAIT_WALL,
)

if TYPE_CHECKING:
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


def spread(pushes: "DataFrame", window_ms: int) -> "DataFrame":
    """A row for each push and window that it says something about.

    Args:
        pushes: rows of the shape `measures.PUSHED`.
        window_ms: length of a window.

    Returns:
        the columns of `SERIES`; `time`, within the window; `is_known`: whether `client` is an instance; `begin_ms` and
        `end_ms` of the part; `covered_ms`, `byte_ms`, `request_ms`: its length, where any span, bytes, requests are
        told; `square_ms`: the square of its byte rate times its length; `unsure`: by how much its bytes may be off,
        squared; bytes, requests, throttles, throttle_total_ms
        and wait_total_ms of it; `peak`, the highest byte rate told; throttle_avg_ms, throttle_max_ms as pushed.
    """
    is_stream = pushes.isStreaming
    spans = _spans(_series(pushes), window_ms)
    spans = _times_of_stream(spans) if is_stream else _made_up_for(spans)
    first, last = (F.floor(F.col(name) / window_ms) for name in ("_from", "_until"))
    numbers = F.sequence(first, F.least(last, first + MOST_WINDOWS))
    rows = spans.withColumn("_window", F.explode(numbers)).withColumn("_begin", F.col("_window") * window_ms)
    end = F.col("_begin") + window_ms
    begin_ms, end_ms = F.greatest("_start", "_begin"), F.least("_end", end)
    inside = F.greatest(end_ms - begin_ms, F.lit(0))
    share = F.when(inside > 0, inside / (F.col("_end") - F.col("_start")))
    has_totals = F.col(THROTTLE_TOTAL).isNotNull() | F.col(WAIT_TOTAL).isNotNull()
    return rows.select(
        *SERIES,
        "is_known",
        F.timestamp_millis(F.least(end, F.greatest("_end", F.col("_begin") + 1)) - 1).alias("time"),
        F.when(inside > 0, begin_ms).alias("begin_ms"),
        F.when(inside > 0, end_ms).alias("end_ms"),
        F.when(has_totals & (inside > 0), inside).alias("covered_ms"),
        F.when(F.col(BYTES).isNotNull() & (inside > 0), inside).alias("byte_ms"),
        F.when(F.col(REQUESTS).isNotNull() & (inside > 0), inside).alias("request_ms"),
        *((F.col(name) * share).alias(name) for name in _COUNTED),
        (F.col("square") * F.when(inside > 0, inside)).alias("square_ms"),
        _unsure(inside).alias("unsure"),
        _part(THROTTLE_TOTAL, "_start", "_throttled_until", end).alias(THROTTLE_TOTAL),
        _part(WAIT_TOTAL, "_waited_since", "_end", end).alias(WAIT_TOTAL),
        *(F.when(inside > 0, F.col(name)).alias(name) for name in ("peak", "throttle_avg_ms", THROTTLE_MAX)),
    )


def _unsure(inside: "Column") -> "Column":
    """How many bytes of the part may have come at another time of the push, and how many of a lost one were others."""
    part = inside / (F.col("_end") - F.col("_start"))
    seconds = (F.col("_end") - F.col("_start")) / 1000
    placed = seconds * seconds * part * (1 - part) * F.col("_varies")
    lost = inside / 1000 * (1 - F.col("_span") / (F.col("_end") - F.col("_start")))
    return F.when(F.col(BYTES).isNotNull() & (inside > 0), placed + lost * lost * F.col("_differs"))


def _part(name: str, since: str, until: str, window_end: "Column") -> "Column":
    """What of a total lies in the window, spread evenly between two times."""
    inside = F.greatest(F.least(until, window_end) - F.greatest(since, "_begin"), F.lit(0))
    return F.col(name) * inside / (F.col(until) - F.col(since))


def _series(pushes: "DataFrame") -> "DataFrame":
    """A row a push and series: what came as several rows, or twice, as one. Streams have rows of pushes already."""
    client = F.coalesce("client_instance_id", "client_id").alias("client")
    named = pushes.select(
        client,
        *SERIES[1:],
        F.col("client_instance_id").isNotNull().alias("is_known"),
        F.unix_millis("time").alias("_end"),
        "push_interval_ms",
        *PUSHED.values,
        *map(seconds_of, SPANS),
    )
    if pushes.isStreaming:
        return named
    values = ("push_interval_ms", *PUSHED.values, *map(seconds_of, SPANS))
    return named.groupBy(*SERIES, "is_known", "_end").agg(*(F.max(name).alias(name) for name in values))


def _spans(rows: "DataFrame", window_ms: int) -> "DataFrame":
    """When each push begins, and its counts, those that are told as rates included."""
    seconds = F.greatest(*map(seconds_of, SPANS))
    known = F.coalesce(F.round(seconds * 1000).cast("bigint"), "push_interval_ms")
    rows = rows.withColumn("_span", F.greatest(F.coalesce(known, F.lit(window_ms)), F.lit(1)))
    rates = {BYTES: BYTE_RATE, REQUESTS: REQUEST_RATE}
    counts = {name: F.coalesce(name, F.col(rate) * F.col("_span") / 1000) for name, rate in rates.items()}
    peak = F.greatest(BYTE_RATE, F.col(BYTES) / F.col(seconds_of(BYTES)))
    # several threads wait at once: what they wait together is no longer than the time that there was
    waited = F.coalesce(WAIT_WALL, _least(WAIT_TOTAL, F.col("_span")))
    mean = F.col(BYTES) / F.col("_span") * 1000
    # how far what it did last was from what it did all the time, where that is longer than what clients call their rate
    off = F.when(F.col("_span") > _RATE_MS, F.col(BYTE_RATE) - mean)
    off = F.coalesce(off, F.lit(0.0))
    rows = rows.withColumn("peak", peak).withColumns({**counts, WAIT_TOTAL: waited})
    return rows.withColumns({"square": mean * mean + off * off, "_mean": mean, "_varies": off * off})


def _times_of_stream(rows: "DataFrame") -> "DataFrame":
    """Nothing outside of the push: what lies before it may be too late, what lies after would make others late."""
    start = F.col("_end") - F.col("_span")
    return rows.withColumns(
        {
            "_start": start,
            "_from": start,
            "_until": F.col("_end") - 1,
            "_throttled_until": F.col("_end"),
            "_waited_since": start,
            "_differs": F.lit(0.0),
            THROTTLE_TOTAL: _least(THROTTLE_TOTAL, F.col("_span")),
            WAIT_TOTAL: _least(WAIT_TOTAL, F.col("_span")),
        }
    )


def _made_up_for(rows: "DataFrame") -> "DataFrame":
    """Pushes that begin where the last one that came has ended, if it is not too long ago."""
    order = Window.partitionBy(*SERIES).orderBy("_end")
    gap = F.col("_end") - F.col("_span") - F.lag("_end").over(order)
    is_lost = F.col("is_known") & (gap > 0) & (gap <= MOST_LOST * F.col("_span"))
    # no less from one half of a push to the other than from push to push: bursts fall into either
    changed = F.coalesce(F.col("_mean") - F.lag("_mean").over(order), F.lit(0.0))
    varies = F.greatest("_varies", changed * changed / 2)
    length = F.col("_span") + F.when(is_lost, gap).otherwise(0)
    rows = rows.withColumns({"_length": length, "_varies": varies})
    whole = Window.partitionBy(*SERIES)
    rows = rows.withColumns({"_varies": F.avg("_varies").over(whole), "_differs": F.var_pop("_mean").over(whole)})
    more = F.col("_length") / F.col("_span")
    sums = {name: F.col(name) * more for name in (*_COUNTED, THROTTLE_TOTAL, WAIT_TOTAL)}
    rows = rows.withColumns(sums).withColumn("_start", F.col("_end") - F.col("_length"))
    length = F.col("_length")
    # Answers that were given at the same time overlap: none lasts longer than the longest after the push's end.
    rows = rows.withColumn(THROTTLE_TOTAL, _least(THROTTLE_TOTAL, length + F.col(THROTTLE_MAX)))
    until = F.col("_start") + F.ceil(F.greatest(length.cast("double"), THROTTLE_TOTAL)).cast("bigint")
    since = F.col("_end") - F.ceil(F.greatest(length.cast("double"), WAIT_TOTAL)).cast("bigint")
    return rows.withColumns({"_throttled_until": until, "_waited_since": since}).withColumns(
        {"_from": F.col("_waited_since"), "_until": F.greatest("_throttled_until", "_end") - 1}
    )


def _least(name: str, bound: "Column") -> "Column":
    """The column, no more than that; null where it is null."""
    return F.when(F.col(name).isNotNull(), F.least(F.col(name), bound.cast("double")))
