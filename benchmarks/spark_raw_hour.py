"""An hour of raw pushes through a topic: `python -m benchmarks.spark_raw_hour [CLIENTS [embedded|apache]]`.

What Java's producers and consumers and librdkafka really pushed, stamped anew for every client and moment, twelve
times a client (Kafka's own interval, five minutes), with the attributes that a receiver adds. The topic is on the disk
of an embedded broker, or of Apache Kafka. The commands `usage` and `recommend` read it as a user's would, then a stream
does; told are times, and whether as many rows and bytes came out as went in.
"""

import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import confluent_kafka
from kclient_telemetry.compression import decompress
from kclient_telemetry.otlp import parse, with_resource_attributes
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from benchmarks.report import machine
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.spark.decode import decode, points
from kclient_quota.spark.jobs.recommend import Policy
from kclient_quota.spark.kafka.source import FORMAT, KafkaSource
from kclient_quota.spark.measures import PUSHED
from kclient_quota.spark.pipeline import Plan, run
from kclient_quota.spark.reading import source_options
from kclient_quota.testing.apache import ApacheKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAYLOADS: Final = Path("tests/spark/payloads")
KINDS: Final = ("java-accept-none-producer-c0", "java-accept-none-consumer-c0", "librdkafka-accept-none-rdprod-c0")
INTERVAL_S: Final = 300
TURNS: Final = 12
_LONG_AGO_S: Final = 7_200
"""Brokers refuse records of the future, and drop those of last week."""
TOPIC: Final = "pushes"
PARTITIONS: Final = 4
_ID: Final = "client-00000000"
_TIME, _START = 0x0102030405060708, 0x0102030405060709
"""Stand in for what each push has its own of; as long, so that bytes can be put in their place."""
_NANOS: Final = 1_000_000_000
_EIGHT: Final = 8


class Push(NamedTuple):
    """A real push with stand-ins; `raw` without the receiver's attributes."""

    raw: bytes
    data: bytes

    def stamped(self, at_s: int) -> bytes:
        """As of then."""
        start = (at_s - INTERVAL_S) * _NANOS
        found = self.data.replace(_TIME.to_bytes(_EIGHT, "little"), (at_s * _NANOS).to_bytes(_EIGHT, "little"))
        return found.replace(_START.to_bytes(_EIGHT, "little"), start.to_bytes(_EIGHT, "little"))


def push(name: str) -> Push:
    """The push of a file."""
    request = parse(decompress((PAYLOADS / f"{name}.bin").read_bytes(), 0, 1 << 24))
    for resource in request.resource_metrics:
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            for point in getattr(metric, metric.WhichOneof("data")).data_points:
                point.time_unix_nano = _TIME
                if metric.WhichOneof("data") == "sum":
                    point.start_time_unix_nano = _START
    raw = request.SerializeToString()
    attributes = {
        "client_instance_id": _ID,
        "client_id": _ID,
        "principal": "User:shared",
        "cluster_id": "k",
        "push_interval_ms": str(INTERVAL_S * 1000),
    }
    return Push(raw, with_resource_attributes(raw, attributes, request))


def pushes(clients: int, begin_s: int) -> Iterator[tuple[int, int, bytes]]:
    """In order of time: client, second, what is pushed."""
    kinds = [push(name) for name in KINDS]
    for turn, second in product(range(1, TURNS + 1), range(INTERVAL_S)):
        at_s = begin_s + turn * INTERVAL_S + second
        stamped = [kind.stamped(at_s) for kind in kinds]
        for number in range(second, clients, INTERVAL_S):
            yield number, at_s, stamped[number % len(kinds)].replace(_ID.encode(), f"client-{number:08}".encode())


def fill(servers: str, clients: int) -> int:
    """Write them; returns their bytes."""
    conf = {"bootstrap.servers": servers, "linger.ms": 50, "batch.size": 1_000_000, "compression.type": "lz4"}
    producer = confluent_kafka.Producer({**conf, "queue.buffering.max.kbytes": 200_000})
    size, refused = 0, []

    def on_delivery(error: confluent_kafka.KafkaError | None, _message: confluent_kafka.Message) -> None:
        if error is not None:
            refused.append(error)

    begin_s = (int(time.time()) - _LONG_AGO_S) // INTERVAL_S * INTERVAL_S
    for number, at_s, value in pushes(clients, begin_s):
        size += len(value)
        while True:
            try:
                producer.produce(
                    *(TOPIC, value, f"{number}", number % PARTITIONS), on_delivery=on_delivery, timestamp=at_s * 1000
                )
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(300) or refused:
        raise RuntimeError(f"the broker did not take the pushes: {refused[:1]}")
    return size


class Expected(NamedTuple):
    """What has to come out of a number of clients' pushes."""

    rows: int
    bytes: float


def expected(spark: "SparkSession", clients: int) -> Expected:
    """By what a push of each kind is decoded to, alone."""
    kinds = [push(name).stamped(INTERVAL_S) for name in KINDS]
    given = spark.createDataFrame(list(enumerate(kinds)), "number int, value binary")
    rows, size = 0, 0.0
    for number in range(len(kinds)):
        found = points(decode(given.where(f"number = {number}"), replace(PUSHED, clock_tolerance_ms=None)))
        one = found.agg(F.count("*").alias("rows"), F.sum("bytes").alias("bytes")).collect()[0]
        many = len(range(number, clients, len(kinds))) * TURNS
        rows, size = rows + one["rows"] * many, size + (one["bytes"] or 0.0) * many
    return Expected(rows, size)


@contextmanager
def broker(kind: str, folder: Path) -> Iterator[str]:
    """A cluster with its log on the disk."""
    if kind == "apache":
        with ApacheKafka(topics={TOPIC: PARTITIONS}) as cluster:
            yield cluster.bootstrap_servers
    else:
        with EmbeddedBroker(topics={TOPIC: PARTITIONS}, data_dir=folder / "log") as embedded:
            yield embedded.bootstrap_servers


class Hour:
    """What is done with the topic, step by step.

    Args:
        spark: the session.
        servers: of the cluster.
        clients: that have pushed.
        folder: for what is written.
    """

    def __init__(self, spark: "SparkSession", servers: str, clients: int, folder: Path) -> None:
        self._spark, self._clients, self._folder = spark, clients, folder
        self._wanted = expected(spark, clients)
        client = {"bootstrap.servers": servers}
        self._plan = Plan("usage", TOPIC, str(folder / "batch"), client=client, window="5 minutes")

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row a step: seconds, what came of it."""
        steps: dict[str, Callable[[], dict[str, Any]]] = {
            "decode": self._decoded,
            "usage, a batch": lambda: self._used("batch"),
            "recommend": lambda: self._recommended("batch"),
            "usage, a stream": lambda: self._used("stream", str(self._folder / "checkpoint")),
            "recommend, of the stream's": lambda: self._recommended("stream"),
        }
        for name, step in steps.items():
            began = time.monotonic()
            found = step()
            yield {"step": name, "seconds": round(time.monotonic() - began, 1), **found}

    def _decoded(self) -> dict[str, Any]:
        self._spark.dataSource.register(KafkaSource)
        records = self._spark.read.format(FORMAT).options(**source_options(self._plan, is_stream=False)).load()
        rows = points(decode(records.withColumn("received_unix_ms", F.unix_millis("timestamp")), PUSHED)).count()
        if rows != self._wanted.rows:
            raise RuntimeError(f"{rows} rows were decoded of {self._wanted.rows}")
        return {"rows": rows}

    def _used(self, name: str, checkpoint: str | None = None) -> dict[str, Any]:
        at_once = self._clients * TURNS // 4 if checkpoint else None
        output = str(self._folder / name)
        said = run(self._spark, replace(self._plan, output=output, checkpoint=checkpoint, max_rows=at_once))
        table = self._spark.read.parquet(output)
        whole = table.agg(F.sum("byte_rate").alias("rate"), F.count_distinct("client_id").alias("clients")).collect()[0]
        part = whole["rate"] * INTERVAL_S / self._wanted.bytes
        if not checkpoint and not math.isclose(part, 1, rel_tol=1e-6):
            raise RuntimeError(f"usage is of {part:.6f} of the bytes that were pushed")
        said = said.replace(str(self._folder), "")
        return {"rows": table.count(), "clients": whole["clients"], "of_the_bytes": part, "said": said}

    def _recommended(self, name: str) -> dict[str, Any]:
        output = self._folder / f"{name}.yaml"
        usage, policy = str(self._folder / name), Policy("user")
        run(self._spark, Plan("recommend", usage, str(output), source_format="usage", policy=policy))
        return {"quotas": output.read_text().count("_byte_rate")}


def main() -> None:
    """Print a line a step."""
    from kclient_quota.spark.session import session  # noqa: PLC0415 - starts Spark

    clients = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    kind = sys.argv[2] if len(sys.argv) > 2 else "embedded"
    print(machine())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, broker(kind, Path(name)) as servers:
        began = time.monotonic()
        size = fill(servers, clients)
        print(f"{clients * TURNS:,} pushes of {size / clients / TURNS:,.0f} bytes in {time.monotonic() - began:,.0f} s")
        settings = {"spark.log.level": "ERROR", "spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "16"}
        spark = session("raw hour", "local[2]", settings)
        try:
            for row in Hour(spark, servers, clients, Path(name)).rows():
                print(row, flush=True)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
