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

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.spark.durations import duration_ms, spark_words
from kclient_quota.spark.jobs.closed_windows import HIGHEST, MEANS, QUOTA, SENDER, SHARED, SUMS, WHO, WINDOW, of_closed
from kclient_quota.spark.jobs.spread import aggregated, spread
from kclient_quota.spark.measures import by_push
from kclient_quota.spark.quota_table import Limits, with_quotas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    pushes = by_push(points)
    parts = spread(pushes, window_ms, is_whole=pushes is points)
    delay_ms = duration_ms("late", late) + duration_ms("push_interval", push_interval)
    per_client = _per_client(parts.withWatermark("time", spark_words(delay_ms)), window_ms)
    limited = with_quotas(per_client, limits or {})
    return of_closed(limited) if points.isStreaming else _told(_together(limited))


def _told(rows: "DataFrame") -> "DataFrame":
    """The columns, in order, with the utilisation."""
    used = ("quota_byte_rate", "quota_byte_rate / quota as utilisation")
    return rows.selectExpr(*WINDOW, *WHO, "clients", *_ORDER, *QUOTA, *used, "senders")


def _together(limited: "DataFrame") -> "DataFrame":
    """Clients of one user, client-id and group, added up.

    Whoever shares a quota in a window comes to one task: rows are moved once and sorted once for all three sums.
    They are moved by what no job knows to be the same everywhere, as `quota_level` is without limits: Spark leaves such
    columns out of keys, and would move all rows again.
    """
    moved = [*(name for name in reversed(SHARED) if name != "quota_level"), *WINDOW]
    shared = [*moved, "quota_level"]
    row = [*shared, *(name for name in (*WHO, "quota_key") if name not in shared)]
    known = [f"{name}_known" for name in MEANS]
    seated = (
        limited.repartition(*moved)
        .groupBy(*row, "sender")
        .agg(
            *aggregated("sum", "clients", *SUMS, *MEANS),
            *(F.expr(f"count({name}) as {name}_known") for name in MEANS),
            *aggregated("max", *HIGHEST, "quota"),
        )
    )
    order = f"partition by {', '.join(row)} order by sender"
    whole = f"over ({order} rows between unbounded preceding and unbounded following)"
    added = {name: f"sum({name}) {whole}" for name in ("clients", *SUMS, *MEANS, *known)}
    added |= {name: f"max({name}) {whole}" for name in HIGHEST}
    added["senders"] = f"collect_list(struct({', '.join(SENDER)})) {whole}"
    seat = f"row_number() over ({order}) as _seat"
    told = (f"{text} as {name}" for name, text in added.items())
    rows = seated.selectExpr(*row, "quota", *told, seat).where("_seat = 1")
    return rows.selectExpr(
        *row,
        "quota",
        *("clients", *SUMS, *HIGHEST),
        *(f"try_divide({name}, {name}_known) as {name}" for name in MEANS),
        "if(clients > 1, senders, null) as senders",
        f"if(byte_rate is not null, sum(byte_rate) over (partition by {', '.join(shared)}), null) as quota_byte_rate",
    )


def _per_client(parts: "DataFrame", window_ms: int) -> "DataFrame":
    """One row a window, client, role and broker."""
    window = f"window(time, '{spark_words(window_ms)}') as window"
    sums = parts.groupBy(F.expr(window), "client", "is_known", *WHO).agg(
        *aggregated("sum", "bytes", "byte_ms", "square_ms", "unsure", "requests", "request_ms", "covered_ms"),
        *aggregated("sum", "throttle_total_ms", "throttles", "wait_total_ms"),
        F.expr("max(end_ms) - min(begin_ms) as present_ms"),
        F.expr("max(peak) as byte_rate_max"),
        F.expr("avg(throttle_avg_ms) as throttle_avg_ms"),
        F.expr("max(throttle_max_ms) as throttle_max_ms"),
    )
    return sums.selectExpr(
        "window.start as window_start",
        "window.end as window_end",
        *WHO,
        f"pmod(hash(client), {MOST_SENDERS}) as sender",
        "cast(present_ms is not null as bigint) as clients",
        f"{_rate('bytes', 'byte_ms', window_ms)} as byte_rate",
        "byte_rate_max",
        f"{_VARIANCE} as byte_rate_variance",
        f"sqrt(unsure) / {window_ms} * 1000 as byte_rate_error",
        f"{_rate('requests', 'request_ms', window_ms)} as request_rate",
        *("throttle_avg_ms", "throttle_max_ms", "throttle_total_ms", "throttles", "wait_total_ms"),
        "cast(covered_ms as double) as covered_ms",
    )


_VARIANCE: Final = "greatest(square_ms / byte_ms - bytes / byte_ms * 1000 * (bytes / byte_ms * 1000), 0D)"
"""Of what one client did, from push to push and, as far as its last seconds tell, within."""


def _rate(count: str, counted_ms: str, window_ms: int) -> str:
    """What was counted, over the window. What lies between the pushes of an instance was like the rest: it was lost."""
    return f"{count} / {counted_ms} * if(is_known, present_ms, {counted_ms}) / {window_ms} * 1000"
