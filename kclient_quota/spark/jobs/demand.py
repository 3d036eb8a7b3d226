"""What clients would have sent, had their quota let them: what they sent, scaled by the time they could not.

A client that is throttled, or that paces itself and waits, shows the quota and not its demand. So, of every row:

    demand = byte_rate / (1 - unserved)                    bytes/s
    unserved = time waited or throttled / time covered     0 to 1 - 1 / most_growth

The time waited is what wrapped clients push (`quota-wait-time-total`); of others it is the throttle times that brokers
answered with, where clients tell their total, else their mean times the requests. Who waits and is throttled does so at
the same time: the longer of the two counts. It is exact for a client whose work goes on where it stopped; one that
always has more to send than it may says no more than that by waiting, so demand is `most_growth` times what was sent at
most, and what it is shows once the quota is higher.

Bytes and waits of a push are of the same span of time, and stay together. What does not fit into that span belongs to
other windows: a wait counts when it ends, and what is too long of it was spent before; a throttle counts when it is
answered, and what is too long of it was spent after.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MOST_GROWTH: Final = 4.0
"""How many times what it was let send a client may want."""

_CLIENT: Final = ("cluster_id", "user", "client_id", "group_id", "role")
_WHEN: Final = ("window_start", "window_end")
_READ: Final = {
    "cluster_id": "string",
    "group_id": "string",
    "clients": "bigint",
    "request_rate": "double",
    "throttle_avg_ms": "double",
    "throttle_total_ms": "double",
    "wait_total_ms": "double",
    "covered_ms": "double",
}
_MOST_WINDOWS: Final = 1_000
"""Over how many windows a single wait is spread at most."""


def with_demand(usage: "DataFrame", most_growth: float = MOST_GROWTH) -> "DataFrame":
    """Rows of usage that tell bytes: window_start, window_end, the client, broker, byte_rate, unserved, demand.

    Demand is null where the client could send nothing at all: then nobody knows.

    Args:
        usage: rows of the job `usage`; what an older one did not tell counts as not told.
        most_growth: demand is at most so many times the byte rate.
    """
    missing = {name: F.lit(None).cast(kind) for name, kind in _READ.items() if name not in usage.columns}
    rows = usage.withColumns(missing)
    length_ms = F.unix_millis("window_end") - F.unix_millis("window_start")
    known = rows.withColumn("room", F.coalesce("covered_ms", length_ms * F.coalesce("clients", F.lit(1))))
    together = _booked(known, "throttle_total_ms", 1).unionByName(_booked(known, "wait_total_ms", -1))
    spent = together.groupBy(*_WHEN, *_CLIENT, "broker").agg(
        F.max("byte_rate").alias("byte_rate"),
        F.greatest(F.sum("throttle_total_ms"), F.sum("wait_total_ms")).alias("spent"),
        F.max("room").alias("room"),
        F.max("guess").alias("guess"),
    )
    whole = Window.partitionBy(*_WHEN, *_CLIENT)
    share = F.max(F.coalesce(F.col("spent") / F.col("room"), F.col("guess"))).over(whole)
    most = 1 - 1 / most_growth
    unserved = F.least(F.coalesce(share, F.lit(0.0)), F.lit(most))
    is_known = (F.col("byte_rate") > 0) | (F.col("unserved") < most)
    return (
        spent.withColumn("unserved", unserved)
        .where(F.col("byte_rate").isNotNull())
        .withColumn("demand", F.when(is_known, F.col("byte_rate") / (1 - F.col("unserved"))))
        .drop("spent", "room", "guess")
    )


def _booked(known: "DataFrame", total: str, direction: int) -> "DataFrame":
    """One of the totals where it was spent: as much as fits with its row, the rest in windows after it or before."""
    other = "wait_total_ms" if total == "throttle_total_ms" else "throttle_total_ms"
    length_ms = F.unix_millis("window_end") - F.unix_millis("window_start")
    window_room = length_ms * F.coalesce("clients", F.lit(1))
    rest = F.col(total) - F.col("room")
    here = known.select(
        *_WHEN,
        *_CLIENT,
        "broker",
        "byte_rate",
        F.when(F.col(total).isNotNull(), F.least(total, "room")).alias(total),
        F.lit(None).cast("double").alias(other),
        F.col("room").cast("double").alias("room"),
        # of those who tell no total: the mean answer times the answers
        (F.col("throttle_avg_ms") * F.col("request_rate") / F.col("clients") / 1000).alias("guess"),
    )
    count = F.least(F.ceil(rest / window_room), F.lit(_MOST_WINDOWS)).cast("int")
    steps = known.where(rest > 0).withColumn("step", F.explode(F.sequence(F.lit(1), count)))
    elsewhere = steps.select(
        *(_moved(name, F.col("step") * direction * length_ms) for name in _WHEN),
        *_CLIENT,
        "broker",
        F.lit(None).cast("double").alias("byte_rate"),
        F.least(window_room, rest - (F.col("step") - 1) * window_room).cast("double").alias(total),
        F.lit(None).cast("double").alias(other),
        F.lit(None).cast("double").alias("room"),
        F.lit(None).cast("double").alias("guess"),
    )
    return here.unionByName(elsewhere)


def _moved(name: str, by_ms: "Column") -> "Column":
    return F.timestamp_millis(F.unix_millis(name) + by_ms).alias(name)
