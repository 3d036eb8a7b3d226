"""Pushes decoded by Spark on two cores: ptars against opentelemetry-proto, and on to windows of usage.

    python -m benchmarks.spark_decode [--payloads 40000] [--runs 3]

Each push has 30 points (20 gauges, 8 sums, 2 histograms) and comes from a Parquet file; the result goes nowhere (noop).
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report import machine
from kclient_quota.spark.decode import decode, points
from kclient_quota.spark.jobs.usage import usage
from kclient_quota.spark.schema import SERIES, ddl
from kclient_quota.spark.session import session
from kclient_quota.spark.slow_decode import decode_one
from telemetry.metric import HistogramValue, MetricKind, Point, PointKey, PushPoint
from telemetry.otlp import encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

POINTS = 30
BEGIN_MS = 1_800_000_000_000
_DISTINCT = 5_000
_CLIENTS = 1_000
_GAUGES = (
    "producer.node.outgoing.byte.rate",
    "producer.node.request.rate",
    "producer.produce.throttle.time.avg",
    "producer.produce.throttle.time.max",
)
_SUMS = ("producer.node.outgoing.byte.total",)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--payloads", type=int, default=40_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    spark = session("benchmark", "local[2]", {"spark.driver.memory": "2g"})
    spark.sparkContext.setLogLevel("ERROR")
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pushes"
        average = write(path, options.payloads)
        print(f"{options.payloads} pushes of {POINTS} points, {average:.0f} bytes each; median of {options.runs} runs")
        pushes = spark.read.parquet(str(path))
        variants: dict[str, Callable[[], DataFrame]] = {
            "ptars": lambda: points(decode(pushes)),
            "opentelemetry-proto": lambda: pushes.select("value").mapInArrow(slowly, ddl(SERIES)),
            "ptars, then usage by minute": lambda: usage(points(decode(pushes))),
        }
        for name, make in variants.items():
            seconds = [timed(make) for _ in range(options.runs + 1)][1:]  # the first one warms up
            rate = options.payloads / statistics.median(seconds)
            print(f"{name:28} {rate:9,.0f} pushes/s {rate * POINTS:12,.0f} points/s")
    spark.stop()
    return 0


def timed(make: "Callable[[], DataFrame]") -> float:
    """Seconds that one run takes."""
    began = time.monotonic()
    make().write.format("noop").mode("overwrite").save()
    return time.monotonic() - began


def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What the fallback would do if it had to decode everything."""
    for batch in batches:
        tables = [decode_one(each.as_py(), row) for row, each in enumerate(batch.column("value"))]
        yield from pa.Table.from_batches(tables).combine_chunks().to_batches()


def write(path: Path, count: int) -> float:
    """Write pushes as a receiver's Parquet of raw pushes would hold them; returns their average size in bytes."""
    chance = random.Random(714)
    path.mkdir()
    distinct = [payload(chance, number) for number in range(min(count, _DISTINCT))]
    for part in range(4):
        numbers = range(part, count, 4)
        columns = {
            "value": [distinct[number % len(distinct)] for number in numbers],
            "client_instance_id": [f"client-{number % _CLIENTS}" for number in numbers],
            "client_id": [f"app-{number % _CLIENTS}" for number in numbers],
            "principal": ["User:u"] * len(numbers),
            "received_unix_ms": [BEGIN_MS] * len(numbers),
        }
        pq.write_table(pa.table(columns), path / f"{part}.parquet")
    return statistics.fmean(map(len, distinct))


def payload(chance: random.Random, number: int) -> bytes:
    """A push of 30 points."""
    at_ms = BEGIN_MS + number // _CLIENTS * 60_000
    found = []
    for index in range(POINTS):
        kind = MetricKind.GAUGE if index < 20 else MetricKind.SUM if index < 28 else MetricKind.HISTOGRAM
        names = {MetricKind.GAUGE: _GAUGES, MetricKind.SUM: _SUMS}.get(kind, ())
        offset = index if kind is MetricKind.GAUGE else index - 20
        name = names[offset] if offset < len(names) else f"producer.some.metric.number.{index}"
        key = PointKey(f"org.apache.kafka.{name}", (("node_id", f"node-{number % 3}"),))
        value = (
            HistogramValue((1.0, 10.0, 100.0), (1, 2, 3, 4), 55.0) if kind is MetricKind.HISTOGRAM else chance.random()
        )
        start = None if kind is MetricKind.GAUGE else at_ms - 60_000
        found.append(PushPoint(Point(key, kind, value), value, start, at_ms, delta=kind is not MetricKind.GAUGE))
    return encode(found, (), 0).payload


if __name__ == "__main__":
    raise SystemExit(main())
