"""How much each client does in each window of time, how it is throttled, and how much of its quota that is.

A row is a window, a user and client-id, a role and a broker (null: the client as a whole, which is all that librdkafka
tells). Several clients of one user and client-id are added up. What a push says counts for the windows that it is of,
see `spread`: any window may be asked for, whatever the push interval.

| column | unit | meaning |
| --- | --- | --- |
| window_start, window_end | timestamp | the window |
| cluster_id, user, client_id, group_id, role, broker | | who, as what, where |
| clients | | instances behind the row |
| byte_rate, byte_rate_max | bytes/s | mean over the window; sum of the instances' highest; null when the clients do \
not tell (librdkafka's do not) |
| byte_rate_variance | (bytes/s)² | how much the rate varies within the window, added up over instances |
| byte_rate_error | bytes/s | how far the mean may be off, since pushes do not tell when their bytes came and some are \
lost: a standard error, added up over instances; of a stream, by what each push tells of itself |
| request_rate | 1/s | mean |
| throttle_avg_ms, throttle_max_ms | ms | mean over pushes, longest |
| throttle_total_ms, throttles | ms, count | where the clients tell |
| wait_total_ms | ms | for how long wrapped clients have waited for the quota, added up over clients |
| covered_ms | ms | what those two totals were counted in, added up over clients |
| quota_key, quota, quota_level | | what limits them, per broker; null without a limit |
| quota_user, quota_client_id | | whose the quota is: all rows with the same two, cluster, role and broker share it |
| quota_byte_rate | bytes/s | what all of those do together; their own byte rate without a limit |
| utilisation | | quota_byte_rate / quota |
| senders | | of several instances: what each does, or so many together; an array of sender, clients, byte_rate, \
byte_rate_max, byte_rate_variance; null: of one |
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.spark.durations import duration_ms, spark_words
from kclient_quota.spark.jobs.closed_windows import HIGHEST, MEANS, QUOTA, SENDER, SHARED, SUMS, WHO, WINDOW, of_closed
from kclient_quota.spark.jobs.spread import spread
from kclient_quota.spark.measures import by_push
from kclient_quota.spark.quota_table import Limits, with_quotas

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PUSH_INTERVAL: Final = "5 minutes"
"""Kafka's own default of `interval.ms`."""

_ORDER: Final = (
    *("byte_rate", "byte_rate_max", "byte_rate_variance", "byte_rate_error", "request_rate"),
    *("throttle_avg_ms", "throttle_max_ms", "throttle_total_ms", "throttles", "wait_total_ms", "covered_ms"),
)
MOST_SENDERS: Final = 64
"""Instances of a row that are told apart; of more than that, some are told together."""


def usage(
    points: "DataFrame",
    window: str = "1 minute",
    late: str = "2 minutes",
    limits: Limits | None = None,
    push_interval: str = PUSH_INTERVAL,
) -> "DataFrame":
    """Usage per window; of a stream, each row once, when the window can get no more points.

    Args:
        points: the table of points, or pushes decoded to the shape `measures.PUSHED`. Cumulative sums play no part: see
            `measures.as_delta`.
        window: length of a window, as Spark writes it.
        late: of a stream, how late pushes may come.
        limits: quotas in force; see `quota_table.read_limits`.
        push_interval: of a stream, the longest: a window gets its last part so much after its end.

    Raises:
        ConfigError: one of the lengths is none.
    """
    window_ms = duration_ms("window", window)
    parts = spread(by_push(points), window_ms)
    delay_ms = duration_ms("late", late) + duration_ms("push_interval", push_interval)
    per_client = _per_client(parts.withWatermark("time", spark_words(delay_ms)), window_ms)
    limited = with_quotas(per_client, limits or {})
    return of_closed(limited) if points.isStreaming else _told(_together(limited))


def _told(rows: "DataFrame") -> "DataFrame":
    """The columns, in order, with the utilisation."""
    utilisation = (F.col("quota_byte_rate") / F.col("quota")).alias("utilisation")
    return rows.select(*WINDOW, *WHO, "clients", *_ORDER, *QUOTA, "quota_byte_rate", utilisation, "senders")


def _together(limited: "DataFrame") -> "DataFrame":
    """Clients of one user, client-id and group, added up.

    Whoever shares a quota in a window comes to one task: rows are moved once and sorted once for all three sums.
    They are moved by what no job knows to be the same everywhere, as `quota_level` is without limits: Spark leaves such
    columns out of keys, and would move all rows again.
    """
    moved = [*(name for name in reversed(SHARED) if name != "quota_level"), *WINDOW]
    shared = [*moved, "quota_level"]
    row = [*shared, *(name for name in (*WHO, "quota_key") if name not in shared)]
    known = {f"{name}_known": F.count(name) for name in MEANS}
    seated = (
        limited.repartition(*moved)
        .groupBy(*row, "sender")
        .agg(
            F.sum("clients").alias("clients"),
            *(F.sum(name).alias(name) for name in (*SUMS, *MEANS)),
            *(column.alias(name) for name, column in known.items()),
            *(F.max(name).alias(name) for name in (*HIGHEST, "quota")),
        )
    )
    order = Window.partitionBy(*row).orderBy("sender")
    whole = order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    sums = {name: F.sum(name).over(whole) for name in ("clients", *SUMS, *MEANS, *known)}
    highest = {name: F.max(name).over(whole) for name in HIGHEST}
    senders = {"senders": F.collect_list(F.struct(*SENDER)).over(whole)}
    rows = seated.withColumns({**sums, **highest, **senders, "_seat": F.row_number().over(order)}).where("_seat = 1")
    means = {name: F.try_divide(F.col(name), F.col(f"{name}_known")) for name in MEANS}
    rows = rows.withColumns({**means, "senders": F.when(F.col("clients") > 1, F.col("senders"))})
    all_of_them = F.sum("byte_rate").over(Window.partitionBy(*shared))
    return rows.withColumn("quota_byte_rate", F.when(F.col("byte_rate").isNotNull(), all_of_them))


def _per_client(parts: "DataFrame", window_ms: int) -> "DataFrame":
    """One row a window, client, role and broker."""
    sums = parts.groupBy(F.window("time", spark_words(window_ms)).alias("window"), "client", "is_known", *WHO).agg(
        *(
            F.sum(name).alias(name)
            for name in ("bytes", "byte_ms", "square_ms", "unsure", "requests", "request_ms", "covered_ms")
        ),
        *(F.sum(name).alias(name) for name in ("throttle_total_ms", "throttles", "wait_total_ms")),
        (F.max("end_ms") - F.min("begin_ms")).alias("present_ms"),
        F.max("peak").alias("byte_rate_max"),
        F.avg("throttle_avg_ms").alias("throttle_avg_ms"),
        F.max("throttle_max_ms").alias("throttle_max_ms"),
    )
    rate = partial(_rate, window_ms=window_ms)
    return sums.select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        *WHO,
        F.pmod(F.hash("client"), F.lit(MOST_SENDERS)).alias("sender"),
        F.col("present_ms").isNotNull().cast("bigint").alias("clients"),
        rate("bytes", "byte_ms").alias("byte_rate"),
        "byte_rate_max",
        _variance().alias("byte_rate_variance"),
        (F.sqrt("unsure") / window_ms * 1000).alias("byte_rate_error"),
        rate("requests", "request_ms").alias("request_rate"),
        *("throttle_avg_ms", "throttle_max_ms", "throttle_total_ms", "throttles", "wait_total_ms"),
        F.col("covered_ms").cast("double").alias("covered_ms"),
    )


def _variance() -> "Column":
    """Of what one client did, from push to push and, as far as its last seconds tell, within."""
    mean = F.col("bytes") / F.col("byte_ms") * 1000
    return F.greatest(F.col("square_ms") / F.col("byte_ms") - mean * mean, F.lit(0.0))


def _rate(count: str, counted_ms: str, window_ms: int) -> "Column":
    """What was counted, over the window. What lies between the pushes of an instance was like the rest: it was lost."""
    counted = F.col(counted_ms)
    present = F.when(F.col("is_known"), F.col("present_ms")).otherwise(counted)
    return F.col(count) / counted * present / window_ms * 1000
