"""Fleets as rows made inside Spark: `python -m benchmarks.spark_fleet [CLIENTS [HOURS...]]`.

Every client pushes every five minutes; `usage` by five minutes goes into files, `recommend` looks at them. Told are,
for each number of hours, times, what was shuffled and written, and memory: what does not grow with the hours is
bounded. Half of the clients share one user's quota: were that skew, one task would read half of what is shuffled. The
JVM is driver and executor in one.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from benchmarks.spark_processes import Reads, cost, jvm_of, shuffled
from kclient_quota.spark.decoding.point_rows import seconds_of
from kclient_quota.spark.jobs.recommend import Policy, recommend
from kclient_quota.spark.jobs.usage import usage
from kclient_quota.spark.measures import PUSHED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

INTERVAL_S: Final = 300
BEGIN_S: Final = 1_800_000_000
RATE: Final = 1_000
ROWS_A_TASK: Final = 500_000
QUOTA: Final = 1e6
_MEBI: Final = 1024 * 1024
_COLUMNS: Final = (
    *(
        "hours",
        "pushes",
        "rows of usage",
        "of the true rate",
        "quotas",
        "usage",
        "recommend",
        "CPU",
        "shuffled",
        "busiest task reads",
        "files",
    ),
    *("heap after GC", "JVM", "Python workers", "driver's Python"),
)


def pushes(spark: "SparkSession", clients: int, hours: float) -> "DataFrame":
    """Rows of the shape `PUSHED`, none of which has been on the driver: client n does (1 + n % 10) kB/s."""
    each = round(hours * 3600 / INTERVAL_S)
    number, turn = F.col("id") % clients, F.floor(F.col("id") / clients) + 1
    at_s = BEGIN_S + turn * INTERVAL_S + number % INTERVAL_S

    def text(value: str) -> "Column":
        """The same in every row, which Spark must not know: it would plan otherwise than for rows out of files."""
        return F.when(number >= 0, F.lit(value))

    made: dict[str, Any] = {
        "client_instance_id": F.concat(F.lit("i"), number),
        "client_id": F.concat(F.lit("app-"), number),
        "user": F.when(number % 2 == 0, F.lit("shared")).otherwise(F.concat(F.lit("user-"), number % 1_000)),
        "broker": text("1"),
        "cluster_id": text("k"),
        "push_interval_ms": F.lit(INTERVAL_S * 1000).cast("bigint"),
        "role": text("producer"),
        "time": F.timestamp_seconds(at_s),
        "bytes": ((1 + number % 10) * RATE * INTERVAL_S).cast("double"),
        seconds_of("bytes"): F.lit(float(INTERVAL_S)),
    }
    rows = spark.range(0, clients * each, 1, max(2, clients * each // ROWS_A_TASK))
    kinds = {"time": "timestamp", "push_interval_ms": "bigint"}
    texts = {"client_instance_id", "client_id", "user", "group_id", "broker", "cluster_id", "role"}
    return rows.select(
        *(
            made.get(name, F.lit(None)).cast(kinds.get(name, "string" if name in texts else "double")).alias(name)
            for name in PUSHED.schema.names
        )
    )


class Measured(NamedTuple):
    """What came of a fleet.

    Attributes:
        rows: of usage.
        part: the sum of their byte rates in the middle of the time, as a part of what it should be.
        quotas: overrides and defaults recommended.
        usage_s, recommend_s: how long the jobs took.
        files, file_bytes: that usage was written into.
    """

    rows: int
    part: float
    quotas: int
    usage_s: float
    recommend_s: float
    files: int
    file_bytes: int


def measure(spark: "SparkSession", clients: int, hours: float, folder: Path) -> Measured:
    """Look at a fleet: usage into files, recommendations out of them."""
    limits = {"producer_byte_rate": {("shared", None): QUOTA}}
    output = folder / f"usage-{hours:g}"
    begin = time.monotonic()
    usage(pushes(spark, clients, hours), "5 minutes", limits=limits).write.parquet(str(output))
    usage_s = time.monotonic() - begin
    table = spark.read.parquet(str(output))
    begin = time.monotonic()
    quotas = len(recommend(table, Policy("user", default_quantile=0.5)).limit(1_000).collect())
    recommend_s = time.monotonic() - begin
    middle = BEGIN_S + round(hours * 1800 / INTERVAL_S) * INTERVAL_S
    in_middle = table.where(F.unix_millis("window_start") == (middle + INTERVAL_S) * 1000)
    found = in_middle.agg(F.sum("byte_rate").alias("rate")).collect()[0]["rate"]
    wanted = sum(1 + number % 10 for number in range(clients)) * RATE
    files = list(output.glob("*.parquet"))
    sizes = sum(file.stat().st_size for file in files)
    return Measured(table.count(), found / wanted, quotas, usage_s, recommend_s, len(files), sizes)


def heap_after_gc(spark: "SparkSession") -> int:
    """Bytes that the JVM of driver and executor holds when everything that can be is collected."""
    java = spark.sparkContext._gateway.jvm.java.lang  # noqa: SLF001 # py4j has no other way to the JVM's own counts
    java.System.gc()
    runtime = java.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def main() -> None:
    """Print a line for each number of hours."""
    from kclient_quota.spark.session import session  # noqa: PLC0415 - starts Spark

    clients = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    settings = {"spark.log.level": "ERROR", "spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "200"}
    spark = session("fleet", "local[2]", settings)
    jvm, reads = jvm_of(spark), Reads(spark)
    print(f"{clients:,} clients, a push every {INTERVAL_S} s, half of them on one quota; local[2]")
    print(f"| {' | '.join(_COLUMNS)} |")
    print(f"|{' --- |' * len(_COLUMNS)}")
    with tempfile.TemporaryDirectory() as folder:
        for hours in map(float, sys.argv[2:] or ["1", "6"]):
            before, moved = cost(jvm).seconds, shuffled(spark).bytes
            found = measure(spark, clients, hours, Path(folder))
            now = cost(jvm)
            python = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            sizes = (heap_after_gc(spark), now.jvm_bytes, now.workers_bytes, python)
            print(
                f"| {hours:g} | {round(hours * 3600 / INTERVAL_S) * clients:,} | {found.rows:,} | {found.part:.3f} "
                f"| {found.quotas} | {found.usage_s:,.0f} s | {found.recommend_s:,.0f} s "
                f"| {now.seconds - before:,.0f} s "
                f"| {(shuffled(spark).bytes - moved) / _MEBI:,.0f} MiB "
                f"| {' times the mean of '.join(f'{each:.3g}' for each in reads.most())} "
                f"| {found.files}, {found.file_bytes / _MEBI:,.0f} MiB "
                f"| {' | '.join(f'{size / _MEBI:,.0f} MiB' for size in sizes)} |",
                flush=True,
            )
    spark.stop()


if __name__ == "__main__":
    main()
