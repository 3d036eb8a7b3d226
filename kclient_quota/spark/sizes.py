"""How much a query kept and moved: state by its progress, shuffle by the executors' own counts."""

from collections.abc import Iterable, Mapping
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
    store = context._jsc.sc().statusStore()  # noqa: SLF001 - PySpark has no other door to the executors' counts
    found = store.executorList(False)
    each = [found.apply(index) for index in range(found.size())]
    return Shuffled(sum(one.totalShuffleWrite() for one in each), sum(one.totalTasks() > 0 for one in each))


def state_of(progress: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """(most rows, most bytes in memory) that a stream's state held at the end of a batch; (0, 0) without state."""
    batches = [batch["stateOperators"] for batch in progress]
    rows = max((sum(each["numRowsTotal"] for each in operators) for operators in batches), default=0)
    size = max((sum(each["memoryUsedBytes"] for each in operators) for operators in batches), default=0)
    return rows, size


def throttled_of(progress: Iterable[Mapping[str, Any]], name: str) -> tuple[int, int]:
    """(bytes read, ms that brokers throttled its tasks together), as `kafka_source.observed` has a progress say."""
    told = [each for batch in progress if (each := batch["observedMetrics"].get(name)) is not None]
    return sum(each["bytes"] or 0 for each in told), sum(each["throttle_ms"] or 0 for each in told)
