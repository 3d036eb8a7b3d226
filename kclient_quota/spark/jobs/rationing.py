"""What quotas of one broker add up to, kept to what the broker can do: small ones whole, the rest cut to one level."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

_BROKER: Final = ("cluster_id", "broker")


def levels(seats: "DataFrame", capacity: float) -> "DataFrame":
    """The level of each broker whose quotas add up to more: who keeps to it, or has less, fits (max-min fairness).

    Args:
        seats: cluster_id, broker and `limit` (bytes per second) of everybody who uses that broker.
        capacity: bytes per second of one broker.

    Returns:
        cluster_id, broker, level in whole bytes per second; brokers that have room for all are left out.
    """
    order = Window.partitionBy(*_BROKER).orderBy("limit")
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    whole = Window.partitionBy(*_BROKER)
    # With those below it served, what each of the others would get. It is highest at the level that is looked for.
    left = F.lit(capacity) - F.coalesce(F.sum("limit").over(earlier), F.lit(0.0))
    each = left / (F.count("*").over(whole) - F.row_number().over(order) + 1)
    return (
        seats.withColumn("each", each)
        .groupBy(*_BROKER)
        .agg(F.floor(F.max("each")).cast("double").alias("level"), F.sum("limit").alias("asked"))
        .where(F.col("asked") > capacity)
        .drop("asked")
    )


def bounds(seats: "DataFrame", capacity: float, who: "Sequence[str]") -> "DataFrame":
    """The lowest level of the brokers that each entity uses: role, the columns `who`, bound; null: no bound.

    Args:
        seats: as `levels` takes, with role and the columns `who`.
        capacity: bytes per second of one broker.
        who: what makes an entity.
    """
    found = levels(seats, capacity)
    same = [F.col(f"s.{name}").eqNullSafe(F.col(f"l.{name}")) for name in _BROKER]
    return (
        seats.alias("s")
        .join(F.broadcast(found.alias("l")), same, "left")
        .groupBy("role", *who)
        .agg(F.min("level").alias("bound"))
    )
