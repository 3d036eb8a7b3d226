"""What Spark costs this machine: CPU time and memory of the JVM and of its Python workers."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PARENT, _CPU, _RESIDENT = 1, slice(11, 15), 21


class Cost(NamedTuple):
    """CPU seconds so far (of children that have ended, too), bytes of resident memory now."""

    jvm_s: float
    workers_s: float
    jvm_bytes: int
    workers_bytes: int

    @property
    def seconds(self) -> float:
        """All CPU time."""
        return self.jvm_s + self.workers_s


def jvm_of(spark: "SparkSession") -> int:
    """The process of a local session's JVM."""
    gateway = spark.sparkContext._gateway  # noqa: SLF001 # py4j has no other way to the JVM's own id
    return int(gateway.jvm.java.lang.ProcessHandle.current().pid())


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
    store = context._jsc.sc().statusStore()  # noqa: SLF001 # as above
    found = store.executorList(False)
    each = [found.apply(index) for index in range(found.size())]
    return Shuffled(sum(one.totalShuffleWrite() for one in each), sum(one.totalTasks() > 0 for one in each))


class Reads:
    """How evenly the tasks of a session share what has been shuffled: with skew one of them reads most of it.

    Args:
        spark: the session; what it did before is left out.
        least_bytes: of a stage that counts: what is smaller is over at once.
    """

    def __init__(self, spark: "SparkSession", least_bytes: int = 1024 * 1024) -> None:
        self._context: Any = spark.sparkContext
        self._least_bytes = least_bytes
        self._seen: set[int] = set()
        self.most()

    def most(self) -> tuple[float, int]:
        """Records that the busiest task of a stage read, as a multiple of the mean of its stage; tasks of that stage.

        Only what has ended since it was last asked counts.
        """
        gateway = self._context._gateway  # noqa: SLF001 # as above
        whole = gateway.new_array(gateway.jvm.double, 1)
        whole[0] = 1.0
        found = self._context._jsc.sc().statusStore().stageList(None, False, True, whole, None)  # noqa: SLF001 # as above
        stages = [found.apply(index) for index in range(found.size())]
        new = [stage for stage in stages if stage.stageId() not in self._seen and stage.numCompleteTasks()]
        self._seen |= {stage.stageId() for stage in new}
        return max(
            (
                (
                    stage.taskMetricsDistributions().get().shuffleReadMetrics().readRecords().apply(0)
                    * stage.numCompleteTasks()
                    / stage.shuffleReadRecords(),
                    stage.numCompleteTasks(),
                )
                for stage in new
                if stage.shuffleReadBytes() >= self._least_bytes
            ),
            default=(1.0, 1),
        )


def cost(jvm: int) -> Cost:
    """Of the JVM and of everything that it has started."""
    stats = {int(path.name): _stat(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    workers = _below(jvm, stats)
    own = stats[jvm]
    return Cost(
        # waited-for children are workers
        jvm_s=sum(map(int, own[_CPU][:2])) / _TICKS,
        workers_s=(sum(sum(map(int, stats[pid][_CPU])) for pid in workers) + sum(map(int, own[_CPU][2:]))) / _TICKS,
        jvm_bytes=int(own[_RESIDENT]) * _PAGE,
        workers_bytes=sum(int(stats[pid][_RESIDENT]) for pid in workers) * _PAGE,
    )


def _stat(path: Path) -> list[str]:
    try:
        return (path / "stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return []


def _below(pid: int, stats: dict[int, list[str]]) -> list[int]:
    children = [each for each, stat in stats.items() if stat and int(stat[_PARENT]) == pid]
    return children + [each for child in children for each in _below(child, stats)]
