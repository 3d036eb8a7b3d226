"""The noisy neighbours (KIP-13's top-k): who does most on a broker in a window, and what would have contained them.

| column | unit | meaning |
| --- | --- | --- |
| window_start, role, broker, cluster_id | | where and when |
| rank | | 1 does most |
| user, client_id, byte_rate | bytes/s | who, how much |
| share | | of all bytes in that role, there and then; of the broker's capacity, where that is given |
| neighbours | | clients there and then |
| containing_quota | bytes/s | the default that limits these k and nobody else: the highest rate of the others |
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WHERE: Final = ("window_start", "cluster_id", "role", "broker")


def outliers(usage: "DataFrame", k: int = 3, capacity: float | None = None) -> "DataFrame":
    """The `k` first of every broker, role and window; of a stream, by batches (`foreachBatch`).

    Args:
        usage: rows of the job `usage`.
        k: how many.
        capacity: bytes per second that one broker has; None: shares are of what is used.
    """
    place = Window.partitionBy(*_WHERE)
    order = place.orderBy(F.col("byte_rate").desc(), "user", "client_id", "group_id")
    ranked = (
        usage.where(F.col("byte_rate").isNotNull())
        .withColumn("rank", F.row_number().over(order))
        .withColumn("neighbours", F.count("*").over(place))
        .withColumn("_all", F.sum("byte_rate").over(place))
        .withColumn("containing_quota", F.max(F.when(F.col("rank") > k, F.col("byte_rate"))).over(place))
    )
    whole = F.lit(capacity) if capacity else F.col("_all")
    return ranked.where(F.col("rank") <= k).select(
        *_WHERE,
        "rank",
        *("user", "client_id", "byte_rate"),
        F.try_divide("byte_rate", whole).alias("share"),
        *("neighbours", "containing_quota"),
    )
