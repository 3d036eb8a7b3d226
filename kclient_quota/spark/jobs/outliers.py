"""The noisy neighbours (KIP-13's top-k): who does most on a broker in a window, and what would have contained them.

| column | unit | meaning |
| --- | --- | --- |
| window_start, role, broker, cluster_id | | where and when |
| rank | | 1 does most |
| user, client_id, byte_rate | bytes/s | who, how much |
| share | | of all bytes in that role, there and then; of the broker's capacity, where that is given |
| neighbours | | clients there and then; null where they were sketched |
| containing_quota | bytes/s | the default that limits these k and nobody else: the highest rate of the others |
| error | bytes/s | how much too low a sketched rate can be; 0: exact |

Exact: out of usage, which keeps a row a client. Sketched (`kclient_quota.spark.jobs.sketch`): straight out of points,
with a bounded number of counters a place, for more clients than one wants to keep apart.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it
from pyspark.version import __version__ as spark_version

from kclient_quota.spark.jobs.sketch import COUNTERS, sketch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EXACT_CLIENTS: Final = 100_000
"""Up to so many clients (user and client-id) `noisiest` keeps every one apart."""

_HAS_FIRST: Final = tuple(map(int, spark_version.split(".")[:2])) >= (4, 2)
"""Whether `max_by` keeps several."""

_WHERE: Final = ("window_start", "cluster_id", "role", "broker")


def noisiest(
    points: "DataFrame", usage: "DataFrame", k: int, capacity: float | None, window: str, exact: int = EXACT_CLIENTS
) -> "DataFrame":
    """`outliers` of `usage` for up to `exact` clients, `sketched` of `points` for more; batches only."""
    clients = points.agg(F.approx_count_distinct(F.struct("user", "client_id")).alias("n")).collect()[0]["n"]
    return outliers(usage, k, capacity) if clients <= exact else sketched(points, k, capacity, window)


def outliers(usage: "DataFrame", k: int = 3, capacity: float | None = None) -> "DataFrame":
    """The `k` first of every broker, role and window; of a stream, by batches (`foreachBatch`).

    However many clients there are, no more than k + 1 of a place are kept at once; with Spark 4.1, all of a place.

    Args:
        usage: rows of the job `usage`.
        k: how many.
        capacity: bytes per second that one broker has; None: shares are of what is used.
    """
    rate = F.col("byte_rate")
    known = usage.where(rate.isNotNull())
    found = known.groupBy(*_WHERE).agg(
        _first(k, rate, "group_id"), F.count("*").alias("neighbours"), F.sum(rate).alias("_all")
    )
    return _ranked(found, k, capacity, F.lit(0.0))


def sketched(
    points: "DataFrame", k: int = 3, capacity: float | None = None, window: str = "1 minute", counters: int = COUNTERS
) -> "DataFrame":
    """The same out of points, without a row for every client; batches only.

    A byte rate counts for its client's push interval; pushes that came without the interval play no part.

    Args:
        points: the table of points.
        k: how many.
        capacity: as in `outliers`.
        window: length of a window, in Spark's words.
        counters: of each task and place; a rate is too low by at most all rates there / counters.
    """
    rows = sketch(points, window, counters)
    each = (
        rows.where(F.col("weight").isNotNull()).groupBy(*_WHERE, "user", "client_id").agg(F.sum("weight").alias("rate"))
    )
    first = each.groupBy(*_WHERE).agg(_first(k, F.col("rate")))
    whole = rows.groupBy(*_WHERE).agg(F.sum("total").alias("_all"), F.sum("lost").alias("_error"))
    same = [F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}")) for name in _WHERE]
    found = first.alias("a").join(whole.alias("b"), same).select("a.*", "_all", "_error")
    nobody_counted = F.lit(None).cast("bigint").alias("neighbours")
    return _ranked(found.withColumn("neighbours", nobody_counted), k, capacity, F.col("_error"))


def _first(k: int, rate: "Column", *more: str) -> "Column":
    """The k + 1 with the highest rates, the highest first; of equal ones, the last by name."""
    names = [F.coalesce(F.col(name), F.lit("")) for name in ("user", "client_id", *more)]
    row = F.struct("user", "client_id", rate.alias("byte_rate"))
    order = F.struct(rate, *names)
    if _HAS_FIRST:
        return F.call_function("max_by", row, order, F.lit(k + 1)).alias("_first")
    ordered = F.sort_array(F.collect_list(F.struct(order.alias("order"), row.alias("row"))), asc=False)
    return F.transform(F.slice(ordered, 1, k + 1), lambda each: each["row"]).alias("_first")


def _ranked(found: "DataFrame", k: int, capacity: float | None, error: "Column") -> "DataFrame":
    whole = F.lit(capacity) if capacity else F.col("_all")
    next_one = F.try_element_at("_first", F.lit(k + 1))["byte_rate"]
    rows = found.select(
        *(*_WHERE, "neighbours", "_all"),
        next_one.alias("containing_quota"),
        error.alias("error"),
        F.posexplode(F.slice("_first", 1, k)).alias("_place", "_who"),
    )
    return rows.select(
        *_WHERE,
        (F.col("_place") + 1).alias("rank"),
        *("_who.user", "_who.client_id", "_who.byte_rate"),
        F.try_divide("_who.byte_rate", whole).alias("share"),
        *("neighbours", "containing_quota", "error"),
    )
