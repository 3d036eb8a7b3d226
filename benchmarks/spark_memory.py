"""Memory of a stream that goes on: pushes at a steady rate, decoded, usage by window, RocksDB, Parquet."""

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from benchmarks.spark_processes import Cost, cost, jvm_of
from kclient_quota.spark.decode import decode, points
from kclient_quota.spark.jobs.usage import usage
from kclient_quota.spark.measures import PUSHED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

_CLIENTS = 1_000
_EVERY_S = 5.0
_PARTS = 6
_LONG_S = 600.0
_FLAT = 1.05
_MEBI = 1024 * 1024


def watch(spark: "SparkSession", payloads: list[bytes], minutes: float, rate: int, folder: Path) -> None:
    """Run the stream, look at the processes every five seconds, print the mean of every sixth of the time.

    Args:
        spark: the session.
        payloads: what the clients push, in turn; without times, so that they are of when they come.
        minutes: how long.
        rate: pushes a second.
        folder: for the checkpoint and the output.
    """
    jvm = jvm_of(spark)
    query = _start(spark, payloads, rate, folder)
    samples: list[Cost] = []
    end = time.monotonic() + minutes * 60
    try:
        while time.monotonic() < end and query.isActive:
            time.sleep(min(_EVERY_S, max(0.0, end - time.monotonic())))
            samples.append(cost(jvm))
        recent = query.recentProgress
    finally:
        query.stop()
    error = query.exception()
    if error is not None:
        raise error
    if not recent:
        raise RuntimeError(f"no batch was done in {minutes:g} minutes")
    last = recent[-1]
    print(
        f"{minutes:g} minutes at {rate} pushes/s; batch {last['batchId']} ran "
        f"at {last['processedRowsPerSecond']:,.0f} pushes/s"
    )
    rows, files = max((each["numRowsTotal"], _files(each)) for batch in recent for each in batch["stateOperators"])
    print(f"state of {rows:,} rows in {files:,} bytes of RocksDB's files: {files / max(rows, 1):,.0f} bytes a row")
    print(f"{'MiB, sixth of the time':26}" + "".join(f"{part + 1:8}" for part in range(_PARTS)))
    _tell("driver and executor (JVM)", [sample.jvm_bytes for sample in samples])
    _tell("Python workers", [sample.workers_bytes for sample in samples])


def _files(state: Any) -> int:
    return int(state["customMetrics"].get("rocksdbSstFileSize", 0))


def _start(spark: "SparkSession", payloads: list[bytes], rate: int, folder: Path) -> "StreamingQuery":
    table = F.broadcast(spark.createDataFrame(list(enumerate(payloads)), "number bigint, value binary"))
    ticks = spark.readStream.format("rate").option("rowsPerSecond", rate).option("numPartitions", 2).load()
    pushes = ticks.selectExpr(
        f"value % {len(payloads)} as number",
        f"concat('app-', value % {_CLIENTS}) as client_id",
        "unix_millis(timestamp) as received_unix_ms",
    ).join(table, "number")
    used = usage(points(decode(pushes, PUSHED)), window="10 seconds", late="10 seconds")
    writer = used.writeStream.format("parquet").trigger(processingTime="2 seconds")
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "usage"))


def _tell(name: str, sizes: list[int]) -> None:
    """The first two sixths are the start; flat: the last two are no more than a twentieth above the two before."""
    parts = [sizes[len(sizes) * part // _PARTS : len(sizes) * (part + 1) // _PARTS] for part in range(_PARTS)]
    means = [statistics.fmean(part) / _MEBI for part in parts if part]
    verdict = "too short to tell"
    if len(sizes) * _EVERY_S >= _LONG_S:
        growth = statistics.fmean(means[-2:]) / statistics.fmean(means[-4:-2])
        verdict = f"{'flat' if growth <= _FLAT else 'GROWING'}: last third / second third = {growth:.3f}"
    print(f"{name:26}" + "".join(f"{mean:8,.0f}" for mean in means) + f"   {verdict}")
