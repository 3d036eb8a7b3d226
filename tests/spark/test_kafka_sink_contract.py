"""The sink on both brokers: at least once, each task in order and once; all of its quota; throttles in the progress."""

import json
import time
from collections import Counter

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.errors import ConfigError
from kclient_quota.spark.kafka.sink_metrics import SinkListener, sink_metrics, with_sink_metrics
from kclient_quota.spark.kafka.source import FORMAT, KafkaSource

QUOTA = 200_000
# So that a window of quota is two seconds, not ten.
PROPERTIES = {"quota.window.num": "3"}


@pytest.fixture(params=["embedded", "apache-kafka"])
def cluster(request):
    if request.param == "apache-kafka":
        yield request.getfixturevalue("apache_kafka")
    else:
        with EmbeddedBroker(properties=PROPERTIES) as broker:
            yield broker


@pytest.fixture
def kafka(spark, cluster):
    spark.dataSource.register(KafkaSource)
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.log_level": "0"}


def read(spark, kafka, topic):
    rows = spark.read.format(FORMAT).options(**kafka, subscribe=topic).load().collect()
    rows.sort(key=lambda row: (row["partition"], row["offset"]))
    return [(row["partition"], int(bytes(row["value"])[:6])) for row in rows]


def test_a_batch_done_again_is_written_again_and_nothing_else_is(spark, cluster, kafka, tmp_path):
    for topic in ("again-from", "again-to"):
        cluster.create_topic(topic, 2)
    sent = spark.range(0, 400, 1, 2).selectExpr("lpad(id, 6, '0') as value", "cast(id % 2 as int) as partition")
    sent.write.format(FORMAT).options(**kafka, topic="again-from").mode("append").save()

    def copy():
        source = spark.readStream.format(FORMAT).options(**kafka, subscribe="again-from", startingOffsets="earliest")
        frame = source.option("maxOffsetsPerTrigger", "200").load().select("value", "partition")
        writer = frame.writeStream.format(FORMAT).options(**kafka, topic="again-to")
        writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()

    copy()
    once = read(spark, kafka, "again-to")
    assert Counter(value for _, value in once) == Counter(range(400))
    assert once == read(spark, kafka, "again-from")  # a task reads one partition and writes it: in order, and once
    (tmp_path / "c" / "commits" / "1").unlink()
    (tmp_path / "c" / "commits" / ".1.crc").unlink()
    copy()
    twice = Counter(value for _, value in read(spark, kafka, "again-to"))
    assert set(twice) == set(range(400))
    assert Counter(twice.values()) == {1: 200, 2: 200}


def test_a_throttled_sink_gets_its_quota_and_the_progress_tells(spark, cluster, kafka, tmp_path):
    for topic in ("paced-from", "paced-to"):
        cluster.create_topic(topic, 1)
    cluster.set_quota(client_id="paced-sink", producer_byte_rate=QUOTA)
    sent = spark.range(0, 1_200, 1, 1).selectExpr("rpad(lpad(id, 6, '0'), 1000, '.') as value")
    sent.write.format(FORMAT).options(**kafka, topic="paced-from").mode("append").save()
    file = tmp_path / "metrics.jsonl"
    source = spark.readStream.format(FORMAT).options(**kafka, subscribe="paced-from", startingOffsets="earliest")
    options = {"kafka.client.id": "paced-sink", "topic": "paced-to", "metricsFile": str(file)}
    writer = source.load().select("value").writeStream.format(FORMAT).options(**kafka, **options)
    told = []
    listener = SinkListener(file, told.append, "paced")
    spark.streams.addListener(listener)
    try:
        query = writer.queryName("paced").option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        query = query.start()
        query.awaitTermination()
        deadline = time.monotonic() + 120
        while not told and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    assert [value for _, value in read(spark, kafka, "paced-to")] == list(range(1_200))
    (progress,) = with_sink_metrics(query.recentProgress, file)
    metrics = progress["sink"]["metrics"]
    assert told[0]["sink"]["metrics"] == metrics
    assert metrics["rows"] == 1_200
    # What one window lets pass at once comes before the rate counts; a busy machine may be long in starting a task.
    rate = (metrics["bytes"] - 3 * QUOTA) / metrics["seconds"]
    assert 0.05 * QUOTA < rate < 1.2 * QUOTA


def test_metrics_of_a_file(tmp_path):
    file = tmp_path / "m.jsonl"
    assert sink_metrics(file) == {}
    lines = [{"batch": 0, "rows": 1}, {"batch": None, "rows": 9}, {"batch": 1, "rows": 2}, {"batch": 1, "rows": 3}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert sink_metrics(file) == {0: {"rows": 1}, 1: {"rows": 3}}
    progress = [{"batchId": 1, "sink": {"description": "d"}}, {"batchId": 2, "sink": {}}]
    assert with_sink_metrics(progress, file) == [
        {"batchId": 1, "sink": {"description": "d", "metrics": {"rows": 3}}},
        {"batchId": 2, "sink": {}},
    ]
    for text in ("[]\n", "{\n", "{}\n"):
        file.write_text(text)
        with pytest.raises(ConfigError, match="is no metricsFile of the sink"):
            sink_metrics(file)
