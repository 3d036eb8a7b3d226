"""What quotas of one broker add up to, kept to what the broker can do: small ones whole, the rest cut to one level."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BROKER: Final = ("cluster_id", "broker")


def with_levels(seats: "DataFrame", capacity: float) -> "DataFrame":
    """The same rows with the level of their broker: who keeps to it, or has less, fits (max-min fairness).

    Args:
        seats: cluster_id, broker and `limit` (bytes per second) of everybody who uses that broker.
        capacity: bytes per second of one broker.

    Returns:
        `seats` and level, in whole bytes per second; null where a broker has room for all.
    """
    order = Window.partitionBy(*_BROKER).orderBy("limit")
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    whole = Window.partitionBy(*_BROKER)
    # With those below it served, what each of the others would get. It is highest at the level that is looked for.
    left = F.lit(capacity) - F.coalesce(F.sum("limit").over(earlier), F.lit(0.0))
    each = left / (F.count("*").over(whole) - F.row_number().over(order) + 1)
    is_full = F.sum("limit").over(whole) > capacity
    level = F.when(is_full, F.floor(F.max("_each").over(whole)).cast("double"))
    return seats.withColumn("_each", each).withColumn("level", level).drop("_each")
