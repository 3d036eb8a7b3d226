"""Pushes decoded by Spark on two cores, and on to windows of usage, from files and from a topic.

    python -m benchmarks.spark_decode [--payloads 100000] [--runs 3] [--only WORD] [--without-kafka]
                                      [--from-protobuf PYTHON]
    python -m benchmarks.spark_decode --minutes 30 [--rate 4000]

Each push has 30 points (20 gauges, 8 sums, 2 histograms); every 1,000 pushes are a minute later. Batches read Parquet
and write nowhere (noop); streams (Trigger.AvailableNow, RocksDB) read files or a topic of Apache Kafka on this machine
and write Parquet. The variants take turns. Pushes a second are of the clock, and of CPU time: what one core can do that
has nothing else to do, which a busy machine disturbs less. A stream's start (its Python workers import Arrow) is in its
CPU time, and weighs less the more pushes there are; so does the JVM's compiling, which goes on for minutes: for what a
stream costs that has run for a while, use a million pushes.

`from_protobuf` is Spark's own decoder with the ten columns; see `benchmarks.spark_from_protobuf` for PYTHON.

With `--minutes` a stream runs for so long instead, and the memory of the JVM and of the Python workers is told.
"""

import argparse
import math
import random
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import confluent_kafka
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf import descriptor_pb2  # type: ignore[import-untyped] # protobuf ships no types
from kclient_telemetry.metric import HistogramValue, MetricKind, Point, PointKey, PushPoint
from kclient_telemetry.otlp import encode

from benchmarks import spark_from_protobuf
from benchmarks.report import machine
from benchmarks.spark_memory import watch
from benchmarks.spark_processes import cost, jvm_of
from kclient_quota.spark.decode import decode, points
from kclient_quota.spark.decoding.otlp_view import descriptor
from kclient_quota.spark.decoding.point_rows import Shape
from kclient_quota.spark.decoding.schema import SERIES, ddl
from kclient_quota.spark.decoding.slow_decode import decode_one
from kclient_quota.spark.files import read_files
from kclient_quota.spark.jobs.usage import usage
from kclient_quota.spark.kafka.source import FORMAT, KafkaSource
from kclient_quota.spark.measures import MEASURED, PUSHED
from kclient_quota.spark.session import session
from kclient_quota.testing.apache import ApacheKafka, apache_kafka_unavailable_reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POINTS = 30
BEGIN_MS = 1_800_000_000_000
TOPIC = "pushes"
TOPIC_VARIANT = "topic, usage, stream"
PEER = "ten columns, from_protobuf"
TEN = (
    "client_instance_id",
    "client_id",
    "broker",
    "metric",
    "unit",
    "kind",
    "temporality",
    "time_ms",
    "value",
    "count",
)
_FILES = 16
_BATCHES = 4
_DISTINCT = 2_000
_CLIENTS = 1_000
_NANOS = 1_000_000
_GAUGES = (
    "producer.node.outgoing.byte.rate",
    "producer.node.request.rate",
    "producer.produce.throttle.time.avg",
    "producer.produce.throttle.time.max",
)
_SUMS = ("producer.node.outgoing.byte.total",)


class Run(NamedTuple):
    """Seconds of the clock, and of CPU time of the JVM and the Python workers."""

    wall_s: float
    cpu_s: float


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--payloads", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", metavar="WORD", help="only the variants that have this in their name")
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--from-protobuf", metavar="PYTHON", help=f"that has PySpark {spark_from_protobuf.SPARK}")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark")
    parser.add_argument("--minutes", type=float, help="watch the memory of a stream for so long instead")
    parser.add_argument("--rate", type=int, default=4_000, help="pushes a second of that stream")
    options = parser.parse_args()
    settings = {"spark.driver.memory": "1g" if options.minutes else "2g", "spark.sql.shuffle.partitions": "2"}
    settings |= dict(each.split("=", 1) for each in options.set)
    spark = session("benchmark", "local[2]", settings)
    spark.sparkContext.setLogLevel("ERROR")
    print(machine())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            if options.minutes:
                watch(spark, list(pushes(_CLIENTS // 2, timed=False)), options.minutes, options.rate, Path(folder))
            else:
                compare(spark, options, Path(folder))
        finally:
            spark.stop()
    return 0


def compare(spark: "SparkSession", options: argparse.Namespace, folder: Path) -> None:
    """All variants, in turns."""
    path = folder / "pushes"
    average = write(path, options.payloads)
    print(f"{options.payloads} pushes of {POINTS} points, {average:.0f} bytes each; median of {options.runs} runs")
    variants = {**batches(spark, path), "files, usage, stream": lambda: stream(files(spark, path), folder)}
    peer = from_protobuf(spark, options, path, folder)
    try:
        if peer is not None:
            variants[PEER] = peer.run
        with_topic(spark, options, variants, folder, {PEER: peer.jvm} if peer else {})
    finally:
        if peer is not None:
            peer.close()


def from_protobuf(
    spark: "SparkSession", options: argparse.Namespace, path: Path, folder: Path
) -> spark_from_protobuf.FromProtobuf | None:
    """The peer, once it has found what our decoder finds; None: left out, which is said."""
    if options.from_protobuf is None or options.only not in PEER:
        if options.only in PEER:
            print(f"no {PEER}: Maven has no spark-protobuf for this Spark; --from-protobuf takes a Python with 3.4.1")
        return None
    described = descriptor_pb2.FileDescriptorSet()
    descriptor().file.CopyToProto(described.file.add())
    message, bytes_ = descriptor().full_name, described.SerializeToString()
    peer = spark_from_protobuf.FromProtobuf(options.from_protobuf, path, message, bytes_, folder)
    ours = points(decode(spark.read.parquet(str(path)), Shape(TEN))).selectExpr("count(*)", "sum(value)").collect()[0]
    count, total = peer.found()
    if count != ours[0] or not math.isclose(total, ours[1]):
        peer.close()
        raise RuntimeError(f"{PEER} finds {count} points, sum {total}; we find {ours[0]}, sum {ours[1]}")
    return peer


def with_topic(
    spark: "SparkSession",
    options: argparse.Namespace,
    variants: dict[str, Callable[[], float]],
    folder: Path,
    jvms: dict[str, int],
) -> None:
    """Measure, the topic with it where there is Kafka."""
    is_left_out = options.without_kafka or options.only not in TOPIC_VARIANT
    why = "left out" if is_left_out else apache_kafka_unavailable_reason()
    if why:
        print(f"no topic: {why}")
        measure(spark, variants, options, jvms)
        return
    with ApacheKafka(topics={TOPIC: 2}) as cluster:
        fill(cluster.bootstrap_servers, options.payloads)
        spark.dataSource.register(KafkaSource)
        limit = -(-options.payloads // _BATCHES)
        variants[TOPIC_VARIANT] = lambda: stream(topic(spark, cluster.bootstrap_servers, limit), folder)
        measure(spark, variants, options, jvms)


def measure(
    spark: "SparkSession", variants: dict[str, Callable[[], float]], options: argparse.Namespace, jvms: dict[str, int]
) -> None:
    """Run them in turns, the first turn to warm up, and print; `jvms`: of variants that have one of their own."""
    variants = {name: run for name, run in variants.items() if options.only in name}
    found: dict[str, list[Run]] = {name: [] for name in variants}
    for turn in range(options.runs + 1):
        for name, run in variants.items():
            jvm = jvms.get(name) or jvm_of(spark)
            before = cost(jvm).seconds
            took = Run(run(), cost(jvm).seconds - before)
            if turn:
                found[name].append(took)
    print(f"{'':28}   by the clock: pushes/s     points/s   by CPU time: us/push  pushes/s on a core")
    for name, runs in found.items():
        rate = options.payloads / statistics.median(run.wall_s for run in runs)
        each = statistics.median(run.cpu_s for run in runs) / options.payloads
        print(f"{name:28} {rate:23,.0f} {rate * POINTS:12,.0f} {each * 1e6:22.1f} {1 / each:19,.0f}")


def batches(spark: "SparkSession", path: Path) -> dict[str, Callable[[], float]]:
    """From Parquet to nowhere."""
    given = spark.read.parquet(str(path))
    frames: dict[str, Callable[[], DataFrame]] = {
        "every column": lambda: points(decode(given)),
        "ten columns": lambda: points(decode(given, Shape(TEN))),
        "what jobs need": lambda: points(decode(given, MEASURED)),
        "opentelemetry-proto": lambda: given.select("value").mapInArrow(slowly, ddl(SERIES)),
        "what usage needs": lambda: points(decode(given, PUSHED)),
        "usage by minute": lambda: usage(points(decode(given, PUSHED))),
    }
    return {name: lambda make=make: timed(make) for name, make in frames.items()}  # type: ignore[misc] # lambdas that keep


def timed(make: "Callable[[], DataFrame]") -> float:
    """Seconds that one run takes."""
    began = time.monotonic()
    make().write.format("noop").mode("overwrite").save()
    return time.monotonic() - began


def files(spark: "SparkSession", path: Path) -> "DataFrame":
    """A stream of the files, a quarter in a batch."""
    return read_files(spark, str(path), "pushes", is_stream=True, at_once=_FILES // _BATCHES, shape=PUSHED)


def topic(spark: "SparkSession", servers: str, limit: int) -> "DataFrame":
    """A stream of the topic, a quarter in a batch."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "startingOffsets": "earliest"}
    source = spark.readStream.format(FORMAT).options(**options, maxOffsetsPerTrigger=str(limit)).load()
    named = source.selectExpr("value", "string(key) as client_id", "unix_millis(timestamp) as received_unix_ms")
    return decode(named, PUSHED)


def stream(decoded: "DataFrame", folder: Path) -> float:
    """Seconds of the batches of a stream of usage into Parquet, the start of the query left out."""
    with tempfile.TemporaryDirectory(dir=folder) as target:
        writer = usage(points(decoded)).writeStream.trigger(availableNow=True)
        query = writer.option("checkpointLocation", f"{target}/checkpoint").format("parquet").start(f"{target}/usage")
        query.awaitTermination()
        progress = query.recentProgress
    late = sum(int(each["numRowsDroppedByWatermark"]) for every in progress for each in every["stateOperators"])
    if late:
        raise RuntimeError(f"{late} rows came too late: the rate would be too good")
    return sum(int(each["durationMs"]["triggerExecution"]) for each in progress) / 1000


def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What the fallback would do if it had to decode everything."""
    for batch in batches:
        tables = [decode_one(each.as_py(), row) for row, each in enumerate(batch.column("value"))]
        yield from pa.Table.from_batches(tables).combine_chunks().to_batches()


def pushes(count: int, *, timed: bool = True) -> Iterator[bytes]:
    """Pushes in order of time, every 1,000 a minute later; without times if they are not `timed`."""
    chance = random.Random(714)
    made = [payload(chance, number, BEGIN_MS if timed else 0) for number in range(min(count, _DISTINCT))]
    for number in range(count):
        later_ms = number // _CLIENTS * 60_000
        found = made[number % len(made)]
        for at_ms in (BEGIN_MS, BEGIN_MS - 60_000) if timed and later_ms else ():
            found = found.replace(_fixed(at_ms), _fixed(at_ms + later_ms + 1))  # 1: so as not to be found again
        yield found


def _fixed(at_ms: int) -> bytes:
    return struct.pack("<Q", at_ms * _NANOS)


def write(path: Path, count: int) -> float:
    """Write pushes as a receiver's Parquet of raw pushes would hold them; returns their average size in bytes."""
    path.mkdir()
    made = pushes(count)
    size = 0
    for part in range(_FILES):
        numbers = range(count * part // _FILES, count * (part + 1) // _FILES)
        values = [next(made) for _ in numbers]
        size += sum(map(len, values))
        columns = {
            "value": values,
            "client_instance_id": [f"client-{number % _CLIENTS}" for number in numbers],
            "client_id": [f"app-{number % _CLIENTS}" for number in numbers],
            "principal": ["User:u"] * len(numbers),
            "received_unix_ms": [BEGIN_MS] * len(numbers),
        }
        pq.write_table(pa.table(columns), path / f"{part:02}.parquet", row_group_size=2_000)
    return size / count


def fill(servers: str, count: int) -> None:
    """The same pushes into the topic."""
    conf = {"bootstrap.servers": servers, "linger.ms": 50, "batch.size": 1_000_000, "compression.type": "lz4"}
    producer = confluent_kafka.Producer({**conf, "queue.buffering.max.kbytes": 1_000_000})
    for number, push in enumerate(pushes(count)):
        producer.produce(TOPIC, push, f"app-{number % _CLIENTS}", partition=number % 2)
        if number % 1_000 == 0:
            producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("Kafka did not take the pushes")
    producer.close()


def payload(chance: random.Random, number: int, at_ms: int) -> bytes:
    """A push of 30 points."""
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
        start = None if kind is MetricKind.GAUGE or not at_ms else at_ms - 60_000
        found.append(PushPoint(Point(key, kind, value), value, start, at_ms, delta=kind is not MetricKind.GAUGE))
    return encode(found, (), 0).payload


if __name__ == "__main__":
    raise SystemExit(main())
