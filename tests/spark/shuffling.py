"""How much a query moved, by the executors' own counts; PySpark has no public door to them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Shuffled:
    """What the executors of a session have shuffled since it began.

    Attributes:
        bytes: written for other tasks to read.
        executors: that did any work; in `local[n]` the driver is the one.
    """

    bytes: int
    executors: int


def shuffled(spark: "SparkSession") -> Shuffled:
    """As of now; the difference of two is what lay between."""
    context: Any = spark.sparkContext
    store = context._jsc.sc().statusStore()
    found = store.executorList(False)
    each = [found.apply(index) for index in range(found.size())]
    return Shuffled(sum(one.totalShuffleWrite() for one in each), sum(one.totalTasks() > 0 for one in each))
