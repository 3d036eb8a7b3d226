"""What clients would have sent, had their quota let them: what they sent, scaled by the time they could not.

A client that is throttled, or that paces itself and waits, shows the quota and not its demand. So, of every row:

    demand = byte_rate / (1 - unserved)                    bytes/s
    unserved = time waited or throttled / time covered     0 to 1 - 1 / most_growth

The time waited is what wrapped clients push; of others it is the throttle times that brokers answered with, where
clients tell their total, else their mean times the requests. Who waits and is throttled does so at the same time: the
longer of the two counts. It is exact for a client whose work goes on where it stopped; one that always has more to send
than it may says no more than that by waiting, so demand is `most_growth` times what was sent at most, and what it is
shows once the quota is higher.

Totals that are longer than the push they came with are in the windows where they were spent already: see `spread`.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.spark.jobs.closed_windows import SENDERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_GROWTH: Final = 4.0
"""How many times what it was let send a client may want."""

_CLIENT: Final = ("cluster_id", "user", "client_id", "group_id", "role")
_WHEN: Final = ("window_start", "window_end")
_DEMAND: Final = ("demand", "burst", "variance", "error")
_READ: Final = {
    "cluster_id": "string",
    "group_id": "string",
    "clients": "bigint",
    "byte_rate_max": "double",
    "byte_rate_variance": "double",
    "byte_rate_error": "double",
    "senders": SENDERS,
    "request_rate": "double",
    "throttle_avg_ms": "double",
    "throttle_total_ms": "double",
    "wait_total_ms": "double",
    "covered_ms": "double",
}


def with_demand(usage: "DataFrame", most_growth: float = MOST_GROWTH) -> "DataFrame":
    """Rows of usage that tell bytes, with what their clients would have sent.

    They have window, client, broker, clients, byte_rate, unserved, demand, burst, variance, error and senders. `burst`
    is the highest rate that was told, the sum of that of all clients, `variance` how much the rate varies within the
    window, `error` how far demand may be off; all scaled in the same way. `senders` are as usage has them.

    Demand is null where the client could send nothing at all: then nobody knows.

    Args:
        usage: rows of the job `usage`; what an older one did not tell counts as not told.
        most_growth: demand is at most so many times the byte rate.
    """
    missing = {name: F.lit(None).cast(kind) for name, kind in _READ.items() if name not in usage.columns}
    rows = usage.withColumns(missing) if missing else usage  # Spark Connect takes no empty mapping
    length_ms = F.unix_millis("window_end") - F.unix_millis("window_start")
    room = F.coalesce("covered_ms", length_ms * F.coalesce("clients", F.lit(1)))
    # of those who tell no total: the mean answer times the answers
    guess = F.col("throttle_avg_ms") * F.col("request_rate") / F.col("clients") / 1000
    share = F.coalesce(F.try_divide(F.greatest("throttle_total_ms", "wait_total_ms"), room), guess)
    whole = Window.partitionBy(*_WHEN, *_CLIENT)
    most = 1 - 1 / most_growth
    unserved = F.least(F.coalesce(F.max(share).over(whole), F.lit(0.0)), F.lit(most))
    is_known = (F.col("byte_rate") > 0) | (F.col("unserved") < most)
    return (
        rows.withColumn("unserved", unserved)
        .where(F.col("byte_rate").isNotNull())
        .withColumn("demand", F.when(is_known, F.col("byte_rate") / (1 - F.col("unserved"))))
        .withColumn("burst", F.greatest("demand", F.col("byte_rate_max") / (1 - F.col("unserved"))))
        .withColumn("variance", F.coalesce(F.col("byte_rate_variance") / (1 - F.col("unserved")) ** 2, F.lit(0.0)))
        .withColumn("error", F.coalesce(F.col("byte_rate_error") / (1 - F.col("unserved")), F.lit(0.0)))
        .select(*_WHEN, *_CLIENT, "broker", "clients", "byte_rate", "unserved", *_DEMAND, "senders")
    )
