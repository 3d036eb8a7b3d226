"""An hour of raw pushes through a topic: `benchmarks.spark_raw_hour`, with fewer clients."""

import confluent_kafka
import pytest
from kclient_telemetry.otlp import parse
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from benchmarks.spark_raw_hour import INTERVAL_S, KINDS, PARTITIONS, TOPIC, TURNS, Hour, broker, fill, push

pytestmark = pytest.mark.timeout(600)

CLIENTS = 60
BYTES = {"java-accept-none-producer-c0": "outgoing", "java-accept-none-consumer-c0": "incoming"}


def told_bytes(kind):
    """What a push says of bytes to or from brokers that have an id, as protobuf; librdkafka says rates only."""
    if kind not in BYTES:
        return 0
    request = parse(push(kind).raw)
    metrics = [
        each for resource in request.resource_metrics for scope in resource.scope_metrics for each in scope.metrics
    ]
    return sum(
        point.as_double or point.as_int
        for metric in metrics
        if metric.name.endswith(f"{BYTES[kind]}.byte.total")
        for point in metric.sum.data_points
        if all(each.value.string_value != "node--1" for each in point.attributes)
    )


@pytest.fixture(scope="module")
def hour(spark, tmp_path_factory):
    """The steps' rows, by name; the folder they wrote to; the topic's records and bytes; bytes that were sent."""
    folder = tmp_path_factory.mktemp("hour")
    with broker("embedded", folder) as servers:
        size = fill(servers, CLIENTS)
        steps = {row["step"]: row for row in Hour(spark, servers, CLIENTS, folder).rows()}
        yield steps, folder, stored(servers), size


def stored(servers):
    """Records and bytes of the topic, as a plain consumer finds them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "hour",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])
    ended, records, size = set(), 0, 0
    while len(ended) < PARTITIONS:
        message = consumer.poll(60)
        if message is None:
            raise AssertionError("the broker says nothing")
        if message.error() is not None:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
        else:
            records, size = records + 1, size + len(message.value())
    consumer.close()
    return records, size


def test_every_push_is_in_the_topic(hour):
    _, _, found, size = hour
    assert found == (CLIENTS * TURNS, size)


def test_a_batch_counts_all_bytes_of_all_clients(hour, spark):
    steps, folder, _, _ = hour
    wanted = sum(map(told_bytes, KINDS)) * TURNS * CLIENTS / len(KINDS)
    assert wanted > 0
    assert steps["decode"]["rows"] % (TURNS * CLIENTS / len(KINDS)) == 0
    usage = spark.read.parquet(str(folder / "batch"))
    assert usage.agg(F.sum("byte_rate")).first()[0] * INTERVAL_S == pytest.approx(wanted, rel=1e-9)
    assert usage.where("byte_rate > 0").select("client_id").distinct().count() == CLIENTS * 2 / 3
    assert steps["usage, a batch"]["clients"] == CLIENTS
    assert steps["usage, a batch"]["rows"] == usage.count()


def test_a_stream_says_of_the_windows_it_has_closed_what_the_batch_says(hour, spark):
    """The others wait for pushes that could still come."""
    steps, folder, _, _ = hour
    batch, stream = (rows(spark, folder / name) for name in ("batch", "stream"))
    closed = {row.window_start for row in stream}
    assert len(closed) >= TURNS - 3
    assert [row for row in batch if row.window_start in closed] == stream
    assert steps["usage, a stream"]["clients"] == CLIENTS


def rows(spark, folder):
    usage = spark.read.parquet(str(folder))
    key = ["window_start", "client_id", "role", "broker"]
    return usage.select(*key, F.round("byte_rate", 3)).orderBy(*key).collect()


def test_quotas_of_the_stream_are_for_as_many_as_those_of_the_batch(hour):
    steps, _, _, _ = hour
    assert steps["recommend"]["quotas"] == steps["recommend, of the stream's"]["quotas"] == 2
