"""Sessions of throttling: from a client's first throttled push until it has not been throttled for a while.

| column | unit | meaning |
| --- | --- | --- |
| start, end | timestamp | first throttled push (less its push interval, when known), last one |
| client_instance_id, client_id, user, group_id, cluster_id, role, broker | | who; broker null: the client as a whole |
| pushes | | throttled ones |
| depth_ms, throttle_avg_ms, throttle_total_ms | ms | longest throttle; mean of the averages; total where told |
| quota_key, quota, quota_level | | which quota, as far as bytes go, and the entry that decided |
| heartbeat_headroom_ms | ms | of group members: `max.poll.interval.ms` less the depth; below zero the group is lost |
"""

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.spark.durations import duration_ms
from kclient_quota.spark.jobs.usage import PUSH_INTERVAL
from kclient_quota.spark.measures import THROTTLE_AVG, THROTTLE_MAX, THROTTLE_TOTAL, measured
from kclient_quota.spark.quota_table import Limits, with_quotas

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MAX_POLL_INTERVAL_MS: Final = 300_000
"""The clients' default of `max.poll.interval.ms`."""

_PUSHES: Final = 2.5

_WHO: Final = ("client_instance_id", "client_id", "user", "group_id", "cluster_id", "role", "broker")


def throttled(
    points: "DataFrame",
    gap: str | None = None,
    late: str = "2 minutes",
    limits: Limits | None = None,
    max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS,
) -> "DataFrame":
    """Sessions; of a stream, each once, when it can get no longer.

    Args:
        points: the table of points.
        gap: a session ends when nothing was throttled for so long, as Spark writes it; None: two and a half push
            intervals of the client.
        late: of a stream, how late points may come.
        limits: quotas in force; see `quota_table.read_limits`.
        max_poll_interval_ms: of the consumers.
    """
    is_throttle = F.col("measure").isin(THROTTLE_AVG, THROTTLE_MAX, THROTTLE_TOTAL) & (F.col("value") > 0)
    is_now = (F.col("kind") != "sum") | (F.col("temporality") == "delta")
    found = measured(points).where(is_throttle & is_now).withWatermark("time", late)
    span = F.when(F.col("kind") == "sum", F.col("time_ms") - F.col("start_ms"))
    interval = F.coalesce("push_interval_ms", span)
    began = F.unix_millis("time") - F.coalesce(interval, F.lit(0))
    pause: Any = gap if gap is not None else _pause(interval)
    sessions = found.groupBy(F.session_window("time", pause).alias("session"), *_WHO).agg(
        F.timestamp_millis(F.min(began)).alias("start"),
        F.max("time").alias("end"),
        F.count_if(F.col("measure") == THROTTLE_MAX).alias("pushes"),
        F.max(_only(THROTTLE_MAX)).alias("depth_ms"),
        F.avg(_only(THROTTLE_AVG)).alias("throttle_avg_ms"),
        F.sum(_only(THROTTLE_TOTAL)).alias("throttle_total_ms"),
    )
    headroom = F.when(F.col("group_id").isNotNull(), F.lit(max_poll_interval_ms) - F.col("depth_ms"))
    return with_quotas(sessions.drop("session"), limits or {}).withColumn("heartbeat_headroom_ms", headroom)


def _pause(interval: "Column") -> "Column":
    """How long nothing may be throttled within a session: one push may be lost, or late."""
    known = F.coalesce(interval, F.lit(duration_ms("push_interval", PUSH_INTERVAL)))
    return F.concat(F.floor(known * _PUSHES).cast("string"), F.lit(" milliseconds"))


def _only(measure: str) -> "Column":
    return F.when(F.col("measure") == measure, F.col("value"))
