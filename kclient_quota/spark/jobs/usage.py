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
from kclient_quota.spark.jobs.closed_windows import HIGHEST, MEANS, SUMS, WHO, WINDOW, of_closed
from kclient_quota.spark.measures import by_push
from kclient_quota.spark.point_rows import seconds_of
from kclient_quota.spark.quota_table import Limits, with_quotas

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ORDER: Final = (
    *("byte_rate", "byte_rate_max", "request_rate", "throttle_avg_ms", "throttle_max_ms", "throttle_total_ms"),
    *("throttles", "wait_total_ms", "covered_ms"),
)


def usage(
    points: "DataFrame", window: str = "1 minute", late: str = "2 minutes", limits: Limits | None = None
) -> "DataFrame":
    """Usage per window; of a stream, each row once, when the window can get no more points.

    Args:
        points: the table of points, or pushes decoded to the shape `measures.PUSHED`. Cumulative sums play no part: see
            `measures.as_delta`.
        window: length of a window, in Spark's words.
        late: of a stream, how late points may come.
        limits: quotas in force; see `quota_table.read_limits`.
    """
    per_client = _per_client(by_push(points).withWatermark("time", late), window)
    together = of_closed(per_client) if points.isStreaming else _together(per_client)
    rows = with_quotas(together.select(*WINDOW, *WHO, "clients", *_ORDER), limits or {})
    return rows.withColumn("utilisation", F.col("byte_rate") / F.col("quota"))


def _together(per_client: "DataFrame") -> "DataFrame":
    """Clients that share a quota, added up."""
    return per_client.groupBy(*WINDOW, *WHO).agg(
        F.count("*").alias("clients"),
        *(F.sum(name).alias(name) for name in SUMS),
        *(F.avg(name).alias(name) for name in MEANS),
        *(F.max(name).alias(name) for name in HIGHEST),
    )


def _per_client(found: "DataFrame", window: str) -> "DataFrame":
    """One row a window, client, role and broker."""
    client = F.coalesce("client_instance_id", "client_id").alias("client")
    sums = found.groupBy(F.window("time", window).alias("window"), client, *WHO).agg(
        F.sum(measures.BYTES).alias("bytes"),
        F.sum(seconds_of(measures.BYTES)).alias("byte_s"),
        F.max(F.col(measures.BYTES) / F.col(seconds_of(measures.BYTES))).alias("byte_peak"),
        F.avg(measures.BYTE_RATE).alias("byte_gauge"),
        F.max(measures.BYTE_RATE).alias("byte_gauge_max"),
        F.sum(measures.REQUESTS).alias("requests"),
        F.sum(seconds_of(measures.REQUESTS)).alias("request_s"),
        F.avg(measures.REQUEST_RATE).alias("request_gauge"),
        F.avg(measures.THROTTLE_AVG).alias("throttle_avg_ms"),
        F.max(measures.THROTTLE_MAX).alias("throttle_max_ms"),
        F.sum(measures.THROTTLE_TOTAL).alias("throttle_total_ms"),
        F.sum(measures.THROTTLE_COUNT).alias("throttles"),
        F.sum(measures.WAIT_TOTAL).alias("wait_total_ms"),
        F.sum(seconds_of(measures.THROTTLE_TOTAL)).alias("throttle_s"),
        F.sum(seconds_of(measures.WAIT_TOTAL)).alias("wait_s"),
    )
    return sums.select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        *WHO,
        _rate("byte_gauge", "bytes", "byte_s").alias("byte_rate"),
        F.greatest("byte_gauge_max", "byte_peak").alias("byte_rate_max"),
        _rate("request_gauge", "requests", "request_s").alias("request_rate"),
        *("throttle_avg_ms", "throttle_max_ms", "throttle_total_ms", "throttles", "wait_total_ms"),
        (F.greatest("throttle_s", "wait_s") * 1000).alias("covered_ms"),
    )


def _rate(gauge: str, count: str, seconds: str) -> "Column":
    """What the client says itself, else what it counted in the time that it counted, or in the window."""
    whole = F.unix_millis("window.end") - F.unix_millis("window.start")
    return F.coalesce(gauge, F.col(count) / F.coalesce(seconds, whole / 1000))
