"""How much each client does in each window of time, how it is throttled, and how much of its quota that is.

A row is a window, a user and client-id, a role and a broker (null: the client as a whole, which is all that librdkafka
tells). Several clients of one user and client-id share a quota, so their rates are added up.

| column | unit | meaning |
| --- | --- | --- |
| window_start, window_end | timestamp | the window |
| cluster_id, user, client_id, group_id, role, broker | | who, as what, where |
| clients | | instances behind the row |
| byte_rate, byte_rate_max | bytes/s | mean and highest; null when the clients do not tell (librdkafka's do not) |
| request_rate | 1/s | mean |
| throttle_avg_ms, throttle_max_ms | ms | mean over pushes, longest |
| throttle_total_ms, throttles | ms, count | where the clients tell |
| wait_total_ms | ms | that calls of wrapped clients have waited for the quota, added up over clients and threads |
| covered_ms | ms | what those two totals were counted in: push intervals, added up over clients |
| quota_key, quota, quota_level | | what limits them, per broker; null without a limit |
| utilisation | | byte_rate / quota |
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.spark import measures
from kclient_quota.spark.measures import measured
from kclient_quota.spark.quota_table import Limits, with_quotas

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WHO: Final = ("cluster_id", "user", "client_id", "group_id", "role", "broker")


def usage(
    points: "DataFrame", window: str = "1 minute", late: str = "2 minutes", limits: Limits | None = None
) -> "DataFrame":
    """Usage per window; of a stream, each row once, when the window can get no more points.

    Args:
        points: the table of points. Cumulative sums play no part: see `measures.as_delta`.
        window: length of a window, in Spark's words.
        late: of a stream, how late points may come.
        limits: quotas in force; see `quota_table.read_limits`.
    """
    found = measured(points).where((F.col("kind") != "sum") | (F.col("temporality") == "delta"))
    per_client = _per_client(found.withWatermark("time", late), window)
    together = per_client.groupBy(F.window("window", window).alias("window"), *WHO).agg(
        F.count("*").alias("clients"),
        F.sum("byte_rate").alias("byte_rate"),
        F.sum("byte_rate_max").alias("byte_rate_max"),
        F.sum("request_rate").alias("request_rate"),
        F.avg("throttle_avg_ms").alias("throttle_avg_ms"),
        F.max("throttle_max_ms").alias("throttle_max_ms"),
        F.sum("throttle_total_ms").alias("throttle_total_ms"),
        F.sum("throttles").alias("throttles"),
        F.sum("wait_total_ms").alias("wait_total_ms"),
        F.sum("covered_ms").alias("covered_ms"),
    )
    times = (F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"))
    rows = with_quotas(together.select(*times, *(name for name in together.columns if name != "window")), limits or {})
    return rows.withColumn("utilisation", F.col("byte_rate") / F.col("quota"))


def _per_client(found: "DataFrame", window: str) -> "DataFrame":
    """One row a window, client, role and broker."""
    seconds = (F.col("time_ms") - F.col("start_ms")) / 1000
    told = F.when(seconds > 0, seconds)
    whole = F.unix_millis("window.end") - F.unix_millis("window.start")
    client = F.coalesce("client_instance_id", "client_id").alias("client")
    sums = found.groupBy(F.window("time", window).alias("window"), client, *WHO).agg(
        F.sum(_only(measures.BYTES)).alias("bytes"),
        F.sum(F.when(F.col("measure") == measures.BYTES, told)).alias("byte_s"),
        F.max(_only(measures.BYTES) / told).alias("byte_peak"),
        F.avg(_only(measures.BYTE_RATE)).alias("byte_gauge"),
        F.max(_only(measures.BYTE_RATE)).alias("byte_gauge_max"),
        F.sum(_only(measures.REQUESTS)).alias("requests"),
        F.sum(F.when(F.col("measure") == measures.REQUESTS, told)).alias("request_s"),
        F.avg(_only(measures.REQUEST_RATE)).alias("request_gauge"),
        F.avg(_only(measures.THROTTLE_AVG)).alias("throttle_avg_ms"),
        F.max(_only(measures.THROTTLE_MAX)).alias("throttle_max_ms"),
        F.sum(_only(measures.THROTTLE_TOTAL)).alias("throttle_total_ms"),
        F.sum(_only(measures.THROTTLE_COUNT)).alias("throttles"),
        F.sum(_only(measures.WAIT_TOTAL)).alias("wait_total_ms"),
        F.sum(F.when(F.col("measure") == measures.THROTTLE_TOTAL, told)).alias("throttle_s"),
        F.sum(F.when(F.col("measure") == measures.WAIT_TOTAL, told)).alias("wait_s"),
    )
    return sums.select(
        "window",
        *WHO,
        F.coalesce("byte_gauge", F.col("bytes") / F.coalesce("byte_s", whole / 1000)).alias("byte_rate"),
        F.greatest("byte_gauge_max", "byte_peak").alias("byte_rate_max"),
        F.coalesce("request_gauge", F.col("requests") / F.coalesce("request_s", whole / 1000)).alias("request_rate"),
        *("throttle_avg_ms", "throttle_max_ms", "throttle_total_ms", "throttles", "wait_total_ms"),
        (F.greatest("throttle_s", "wait_s") * 1000).alias("covered_ms"),
    )


def _only(measure: str) -> "Column":
    return F.when(F.col("measure") == measure, F.col("value"))
