"""`format("kclient_quota")` on the embedded broker: every record once, in batches and streams, whatever the offsets."""

import json
from collections import Counter

import pytest
from pyspark.errors import PySparkException

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.spark.kafka.source import FORMAT, KafkaSource

TOPICS = {"telemetry": 3, "other": 1, "gaps": 1, "slow": 1}
EACH = 400


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedBroker(topics=TOPICS) as broker:
        produce(broker, "telemetry", range(3 * EACH))
        produce(broker, "other", range(10))
        transact(broker)
        yield broker


@pytest.fixture(scope="module")
def kafka(spark, cluster):
    spark.dataSource.register(KafkaSource)
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers}


def produce(broker, topic, numbers, **conf):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **conf})
    for number in numbers:
        producer.produce(topic, b"%d" % number, b"k", partition=number % TOPICS[topic], timestamp=1_000_000 + number)
    assert producer.flush(60) == 0


def transact(broker):
    conf = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x", "linger.ms": 5}
    producer = Producer(conf)
    producer.init_transactions(60)
    for round_ in range(6):
        producer.begin_transaction()
        for number in range(5):
            producer.produce("gaps", b"%d/%d" % (round_, number), partition=0)
        producer.flush(60)
        if round_ % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def values(frame):
    return Counter(int(bytes(row["value"])) for row in frame.select("value").collect())


def test_a_batch_is_every_record_once(spark, kafka):
    frame = spark.read.format(FORMAT).options(**kafka, subscribe="telemetry", minPartitions="5")
    rows = frame.load().collect()
    assert len(rows) == 3 * EACH
    for row in rows:
        number = int(bytes(row["value"]))
        assert (row["topic"], row["partition"], row["offset"]) == ("telemetry", number % 3, number // 3)
        assert (row["timestamp"].timestamp() * 1000, row["timestampType"]) == (1_000_000 + number, 1)
        assert bytes(row["key"]) == b"k"
    assert len({row["offset"] for row in rows}) == EACH


def test_a_pattern_and_offsets(spark, kafka):
    starting = json.dumps({"telemetry": {"0": EACH - 1, "1": -1, "2": -1}, "other": {"0": 8}})
    read = spark.read.format(FORMAT).options(**kafka, subscribePattern="tele.*|other", startingOffsets=starting)
    assert values(read.load()) == Counter([3 * (EACH - 1), 8, 9])
    ending = read.option("endingOffsets", json.dumps({"telemetry": {"0": -1, "1": -1, "2": -1}, "other": {"0": 9}}))
    assert values(ending.load()) == Counter([3 * (EACH - 1), 8])


def test_timestamps_count_more_than_offsets(spark, kafka):
    read = spark.read.format(FORMAT).options(**kafka, subscribe="telemetry", startingTimestamp="1001190")
    assert values(read.load()) == Counter(range(1190, 1200))


def test_gaps_of_transactions_neither_stall_nor_leak(spark, kafka):
    read = spark.read.format(FORMAT).options(**kafka, subscribe="gaps", minPartitions="4")
    wanted = sorted(f"{round_}/{number}" for round_ in (0, 2, 4) for number in range(5))
    assert sorted(bytes(row["value"]).decode() for row in read.load().collect()) == wanted
    everything = read.option("kafka.isolation.level", "read_uncommitted").load()
    assert everything.count() == 30


@pytest.fixture
def stream(spark, kafka, tmp_path):
    def run(**options):
        """What came in which batch."""
        found = {}

        def take(rows, number):
            found[number] = [int(bytes(row["value"])) for row in rows.select("value").collect()]

        frame = spark.readStream.format(FORMAT).options(**kafka, startingOffsets="earliest", **options).load()
        checkpoint = str(tmp_path / "checkpoint")
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()
        return {number: sorted(values) for number, values in found.items()}

    return run


def test_a_stream_in_batches_that_goes_on_where_it_was(stream, cluster, tmp_path):
    batches = stream(subscribe="other", maxOffsetsPerTrigger="4")
    assert batches == {0: [0, 1, 2, 3], 1: [4, 5, 6, 7], 2: [8, 9]}
    produce(cluster, "other", range(10, 15))
    assert stream(subscribe="other") == {3: [10, 11, 12, 13, 14]}
    # What was not committed is read again, exactly the same, whatever has come meanwhile.
    (tmp_path / "checkpoint" / "commits" / "3").unlink()
    (tmp_path / "checkpoint" / "commits" / ".3.crc").unlink(missing_ok=True)
    produce(cluster, "other", range(15, 17))
    assert stream(subscribe="other") == {3: [10, 11, 12, 13, 14], 4: [15, 16]}
    assert stream(subscribe="other") == {}


def test_a_batch_is_what_the_quota_gives_in_an_interval(stream, cluster):
    cluster.set_quota(client_id="paced", consumer_byte_rate=40_000)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 4_000})
    for number in range(120):
        producer.produce("slow", b"%01000d" % number, partition=0)
    assert producer.flush(60) == 0
    options = {"kafka.client.id": "paced", "maxBytesPerTrigger": "quota", "triggerSeconds": "1"}
    batches = stream(subscribe="slow", **options)
    assert [len(batches[number]) for number in sorted(batches)] == [40, 40, 40]
    assert sorted(value for values in batches.values() for value in values) == list(range(120))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "subscribe"),
        ({"subscribe": "telemetry", "subscribePattern": "t.*"}, "one of the two"),
        ({"subscribe": "nowhere"}, "UNKNOWN_TOPIC_OR_PART"),
        ({"subscribe": "telemetry", "startingOffset": "latest"}, "option startingoffset is unknown"),
        ({"subscribe": "telemetry", "startingOffsets": "first"}, "write earliest, latest or JSON"),
        ({"subscribe": "telemetry", "minPartitions": "many"}, "whole number"),
    ],
)
def test_wrong_options_are_named(spark, kafka, options, words):
    with pytest.raises(PySparkException, match=words):
        spark.read.format(FORMAT).options(**kafka, **options).load().collect()


def test_no_broker_is_named(spark, kafka):
    with pytest.raises(PySparkException, match=r"kafka.bootstrap.servers is missing"):
        spark.read.format(FORMAT).options(subscribe="telemetry").load().collect()


def test_records_that_are_gone_end_the_query_or_are_passed_over(spark, kafka):
    starting = json.dumps({"other": {"0": 1_000}})
    read = spark.read.format(FORMAT).options(**kafka, subscribe="other", startingOffsets=starting)
    read = read.option("endingOffsets", json.dumps({"other": {"0": 1_005}}))
    with pytest.raises(PySparkException, match="failOnDataLoss"):
        read.load().collect()
    assert read.option("failOnDataLoss", "false").load().count() == 0
