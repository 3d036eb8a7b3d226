"""Records out of a topic into Spark on two cores: this package's source against Spark's own connector of the JVM.

    python -m benchmarks.spark_source [--records 1000000] [--bytes 200] [--runs 4] [--jars DIR] [--without-jvm]

Apache Kafka on this machine, two partitions, not compressed; the rows go nowhere (noop). `batch` reads all of it at
once, `stream` with Trigger.AvailableNow in one batch and in four. The runs of the variants take turns. The JVM's
connector comes from Maven Central where it has this version of Spark, from `--jars` otherwise (the connector's jar,
kafka-clients, commons-pool2 and the token provider's); without either its rows say why they are missing.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka

from benchmarks.report import machine
from kclient_quota.errors import KclientQuotaError
from kclient_quota.spark.kafka.jvm_source import connector_settings, read_kafka
from kclient_quota.spark.kafka.source import FORMAT, KafkaSource
from kclient_quota.spark.session import session
from kclient_quota.testing.apache import ApacheKafka

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

TOPIC = "records"
PARTITIONS = 2
OURS, JVM = "kclient_quota", "JVM connector"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=200)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--jars", type=Path, help="directory with the JVM connector's jars")
    parser.add_argument("--without-jvm", action="store_true")
    options = parser.parse_args()
    settings, why = connector(options)
    print(machine())
    print(f"{options.records} records of {options.bytes} bytes; median of {options.runs} runs (slowest to fastest)")
    if why:
        print(f"{JVM}: {why}")
    with ApacheKafka(topics={TOPIC: PARTITIONS}) as cluster:
        fill(cluster.bootstrap_servers, options.records, options.bytes)
        spark = session("benchmark", "local[2]", {"spark.driver.memory": "2g", **settings})
        spark.sparkContext.setLogLevel("OFF")
        spark.dataSource.register(KafkaSource)
        try:
            given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": TOPIC}
            measure(spark, given, options, [OURS] if why else [OURS, JVM])
        finally:
            spark.stop()
    return 0


def connector(options: argparse.Namespace) -> tuple[dict[str, str], str]:
    """Settings that bring the JVM's connector, or why there is none."""
    if options.without_jvm:
        return {}, "left out"
    try:
        return connector_settings(options.jars), ""
    except KclientQuotaError as error:
        return {}, str(error)


def fill(servers: str, count: int, size: int) -> None:
    """Write the records, as many to each partition."""
    conf = {"bootstrap.servers": servers, "linger.ms": 50, "batch.size": 1_000_000}
    producer = confluent_kafka.Producer({**conf, "queue.buffering.max.messages": 2_000_000})
    value = b"x" * size
    for number in range(count):
        producer.produce(TOPIC, value, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("Kafka did not take the records")
    producer.close()


def measure(spark: "SparkSession", given: dict[str, str], options: argparse.Namespace, variants: list[str]) -> None:
    """Every way of reading by every variant, in turns."""
    quarter = {"maxOffsetsPerTrigger": str(-(-options.records // 4))}
    ways: dict[str, Callable[[str], float]] = {
        "batch": lambda variant: batch(spark, variant, given),
        "stream, 1 batch": lambda variant: stream(spark, variant, given, options.records),
        "stream, 4 batches": lambda variant: stream(spark, variant, {**given, **quarter}, options.records),
    }
    for way, run in ways.items():
        seconds: dict[str, list[float]] = {variant: [] for variant in variants}
        for turn in range(options.runs + 1):
            for variant in variants:
                took = run(variant)
                if turn:  # the first one warms up
                    seconds[variant].append(took)
        rates = {variant: [options.records / each for each in found] for variant, found in seconds.items()}
        for variant, found in rates.items():
            of_jvm = f" {statistics.median(found) / statistics.median(rates[JVM]):5.2f} of it" if JVM in rates else ""
            spread = f"({min(found):,.0f} to {max(found):,.0f})"
            print(f"{way:18} {variant:14} {statistics.median(found):9,.0f} rows/s {spread:22}{of_jvm}")


def load(spark: "SparkSession", variant: str, given: dict[str, str], *, is_stream: bool) -> "DataFrame":
    """The topic from its beginning."""
    given = {**given, "startingOffsets": "earliest"}
    if variant == JVM:
        return read_kafka(spark, given, is_stream=is_stream)
    return (spark.readStream if is_stream else spark.read).format(FORMAT).options(**given).load()


def batch(spark: "SparkSession", variant: str, given: dict[str, str]) -> float:
    """Seconds that one run takes."""
    began = time.monotonic()
    load(spark, variant, given, is_stream=False).write.format("noop").mode("overwrite").save()
    return time.monotonic() - began


def stream(spark: "SparkSession", variant: str, given: dict[str, str], records: int) -> float:
    """Seconds of the batches of one run, the start of the query left out."""
    with tempfile.TemporaryDirectory() as folder:
        writer = load(spark, variant, given, is_stream=True).writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", folder).start()
        query.awaitTermination()
        progress = query.recentProgress
    read = sum(each["numInputRows"] for each in progress)
    if read != records:
        raise RuntimeError(f"{variant} read {read} of {records} rows")
    return sum(each["durationMs"]["triggerExecution"] for each in progress) / 1000


if __name__ == "__main__":
    raise SystemExit(main())
