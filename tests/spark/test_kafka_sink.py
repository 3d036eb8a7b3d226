"""`write` and `writeStream` into topics: every row once, at the pace of the quota; what is wrong is said."""

import json
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from pyspark.errors import PySparkException

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.spark.kafka import sink as kafka_sink
from kclient_quota.spark.kafka.sink import Written, check_columns, together, write_batches
from kclient_quota.spark.kafka.source import FORMAT, KafkaSource


@pytest.fixture(scope="module")
def cluster():
    topics = {"one": 2, "two": 1, "copy": 2, "paced": 1, "partial": 1}
    # A window of quota is two seconds, not ten, so that what is throttled is not throttled for long.
    properties = {"auto.create.topics.enable": "false", "quota.window.num": "3"}
    with EmbeddedBroker(topics=topics, properties=properties) as broker:
        yield broker


@pytest.fixture
def kafka(spark, cluster):
    spark.dataSource.register(KafkaSource)
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.log_level": "0"}


def read(spark, kafka, topic, **options):
    frame = spark.read.format(FORMAT).options(**kafka, subscribe=topic, **options).load()
    return sorted(frame.collect(), key=lambda row: (row["partition"], row["offset"]))


def test_every_column_arrives(spark, kafka):
    headers = "array(struct('a' as key, binary('1') as value), struct('b' as key, binary(null) as value))"
    rows = spark.range(20).selectExpr(
        "cast(id as string) as value",
        "if(id % 2 = 0, binary(string(id)), null) as key",
        "if(id < 10, 'one', 'two') as topic",
        "if(id < 10, cast(1 as int), null) as partition",
        "if(id % 4 = 0, null, timestamp_millis(1000 + id)) as timestamp",
        f"if(id % 5 = 0, {headers}, null) as headers",
    )
    rows.write.format(FORMAT).options(**kafka).mode("append").save()
    found = read(spark, kafka, "one,two", includeHeaders="true")
    assert sorted(int(bytes(row["value"])) for row in found) == list(range(20))
    for row in found:
        number = int(bytes(row["value"]))
        assert (row["topic"], row["partition"]) == (("one", 1) if number < 10 else ("two", 0))
        assert (row["key"] is None) == (number % 2 == 1)
        at_ms = round(row["timestamp"].timestamp() * 1000)
        assert at_ms == 1000 + number if number % 4 else at_ms > 1_700_000_000_000
        wanted = [("a", b"1"), ("b", None)] if number % 5 == 0 else None
        assert row["headers"] == wanted


def test_a_stream_copies_a_topic_and_says_what_it_did(spark, kafka, tmp_path):
    spark.range(300).selectExpr("binary(string(id)) as value", "cast(id % 2 as int) as partition").write.format(
        FORMAT
    ).options(**kafka, topic="copy").mode("append").save()
    before = len(read(spark, kafka, "one"))
    source = spark.readStream.format(FORMAT).options(**kafka, subscribe="copy", startingOffsets="earliest")
    frame = source.option("maxOffsetsPerTrigger", "200").load().select("key", "value", "partition")
    file = tmp_path / "metrics.jsonl"
    query = frame.writeStream.format(FORMAT).options(
        **kafka, topic="one", metricsFile=str(file), checkpointLocation=str(tmp_path / "checkpoint")
    )
    query.trigger(availableNow=True).start().awaitTermination()
    assert len(read(spark, kafka, "one")) == before + 300
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(each["batch"], each["rows"]) for each in told] == [(0, 200), (1, 100)]


def test_throttles_are_told(spark, cluster, kafka, tmp_path):
    cluster.set_quota(client_id="slow", producer_byte_rate=80_000)
    file = tmp_path / "metrics.jsonl"
    options = {"kafka.client.id": "slow", "kafka.quota.backoff": "off", "kafka.batch.size": "20000"}
    rows = spark.range(0, 200, 1, 1).selectExpr("repeat('x', 1000) as value")
    rows.write.format(FORMAT).options(**kafka, topic="paced", metricsFile=str(file), **options).mode("append").save()
    (told,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert (told["batch"], told["rows"], told["bytes"] >= 200_000) == (None, 200, True)
    assert told["throttles"] > 0
    assert told["throttle_total_ms"] >= told["throttle_max_ms"] > 0


def test_under_a_quota_rows_wait_and_none_is_lost(spark, cluster, kafka):
    cluster.set_quota(client_id="waits", producer_byte_rate=120_000)
    rows = spark.range(0, 300, 1, 2).selectExpr("repeat('y', 1000) as value", "cast(id as string) as key")
    before = len(read(spark, kafka, "paced"))
    rows.write.format(FORMAT).options(**kafka, topic="paced", **{"kafka.client.id": "waits"}).mode("append").save()
    keys = [int(bytes(row["key"])) for row in read(spark, kafka, "paced")[before:]]
    assert sorted(keys) == list(range(300))


def test_a_row_that_cannot_be_written_fails_its_task_with_the_reason(spark, kafka):
    rows = spark.sql("select 'a' as value union all select repeat('x', 3000000)")
    with pytest.raises(
        PySparkException, match=r"ClusterError: a row for partial was not written: .*MSG_SIZE_TOO_LARGE"
    ):
        rows.write.format(FORMAT).options(**kafka, topic="partial").mode("append").save()
    nowhere = spark.sql("select 'a' as value, cast(7 as int) as partition")
    with pytest.raises(PySparkException, match=r"ClusterError: a row for partial .*not written: .*UNKNOWN_PARTITION"):
        nowhere.write.format(FORMAT).options(**kafka, topic="partial").mode("append").save()
    with pytest.raises(PySparkException, match="a row has no topic"):
        spark.sql("select 'a' as value, cast(null as string) as topic").write.format(FORMAT).options(**kafka).mode(
            "append"
        ).save()


@pytest.mark.parametrize(
    ("sql", "options", "words"),
    [
        ("select 'a' as text", {"topic": "one"}, "column value is missing"),
        ("select 'a' as value", {}, "topic is missing"),
        ("select 1 as value", {"topic": "one"}, "column value is int: cast it to binary or string"),
        ("select 'a' as value, 1 as offset", {"topic": "one"}, "column offset is unknown"),
        ("select 'a' as value", {"topics": "one"}, "option topics is unknown"),
        (
            "select 'a' as value",
            {"topic": "one", "kafka.transactional.id": "t"},
            "kafka.transactional.id: leave it out",
        ),
        ("select 'a' as value", {"topic": "one", "kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
    ],
)
def test_what_cannot_be_written_is_named(spark, kafka, sql, options, words):
    with pytest.raises(PySparkException, match=f"ConfigError: .*{words}"):
        spark.sql(sql).write.format(FORMAT).options(**{**kafka, **options}).mode("append").save()


def test_a_topic_is_not_overwritten(spark, kafka):
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        spark.sql("select 'a' as value").write.format(FORMAT).options(**kafka, topic="one").mode("overwrite").save()


def test_a_broker_that_is_away_is_named_at_once():
    conf = {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 1000, "log_level": 0}
    with pytest.raises(ClusterError, match=r"writing to one at 127\.0\.0\.1:1"):
        write_batches(conf, "one", [])


def test_a_topic_that_is_not_there_is_named(cluster):
    conf = {"bootstrap.servers": cluster.bootstrap_servers}
    with pytest.raises(ClusterError, match=r"nowhere.*UNKNOWN_TOPIC_OR_PART"):
        write_batches(conf, "nowhere", [])


def test_tasks_together():
    found = together([Written(1, 10, 2, 6, 5, 1.0), None, Written(2, 20, 0, 0, 0, 3.0)])
    assert found == Written(3, 30, 2, 6, 5, 3.0)
    assert found.throttle_avg_ms == 3.0
    assert together([None]) == Written()


def test_columns(spark):
    check_columns(spark.sql("select cast('a' as binary) as value, 'k' as key").schema, has_topic=True)
    with pytest.raises(ConfigError, match="column headers is string"):
        check_columns(spark.sql("select 'a' as value, 'h' as headers").schema, has_topic=True)


@pytest.mark.parametrize(
    ("topic_error", "said"),
    [
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), r"writing to one at b:1: .*TOPIC_AUTHORIZATION_FAILED"),
        (None, r"writing to one at b:1: .*CLUSTER_AUTHORIZATION_FAILED"),
    ],
)
def test_what_went_wrong_first_is_told_though_closing_fails_too(monkeypatch, topic_error, said):
    """A producer that may not have an id for idempotence says so in whatever call comes next."""

    class Dying:
        def __init__(self, conf):
            pass

        def list_topics(self, topic, timeout):
            return SimpleNamespace(topics={topic: SimpleNamespace(error=topic_error)})

        def flush(self):
            self.poll(0)

        def poll(self, timeout):
            raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, fatal=True))

        def close(self):
            self.poll(0)

    monkeypatch.setattr(kafka_sink, "Producer", Dying)
    with pytest.raises(ClusterError, match=said):
        write_batches({"bootstrap.servers": "b:1"}, "one", [])
