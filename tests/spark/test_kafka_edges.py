"""The source where topics change under it: driver and executor sides by themselves, without Spark between them."""

import json
import logging
import pickle
from concurrent.futures import wait

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.spark.kafka.offsets import parted
from kclient_quota.spark.kafka.source import FORMAT, KafkaBatchReader, KafkaSource, KafkaStreamReader, observed
from kclient_quota.spark.streaming.progress import Totals
from kclient_quota.testing.clock import ManualClock

ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def cluster():
    # A window of quota is two seconds, not ten, so that what is throttled is not throttled for long.
    with EmbeddedBroker(properties={"auto.create.topics.enable": "false", "quota.window.num": "3"}) as broker:
        yield broker


@pytest.fixture
def admin(cluster):
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


@pytest.fixture
def source(cluster):
    """A stream's reader, whose connections end with the test."""
    made = []

    def make(topic, clock=SYSTEM_CLOCK, **options):
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "startingOffsets": "earliest", **options}
        given.setdefault("subscribe", topic)
        if topic is None:
            del given["subscribe"]
        made.append(KafkaStreamReader(given, clock))
        return made[-1]

    yield make
    for reader in made:
        reader._brokers.close()


def logs(offsets):
    """Without the topics' ids."""
    return parted(offsets)[0]


def done(futures):
    assert not wait(futures.values(), 60).not_done
    for future in futures.values():
        future.result()


def produce(cluster, topic, partition, numbers, size=0, **conf):
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **conf})
    for number in numbers:
        value = b"%d" % number
        producer.produce(topic, value.ljust(size), partition=partition, timestamp=1_000 + number)
    assert producer.flush(60) == 0


def read(reader, ranges):
    """Values as executors read them, with what they get of the reader."""
    there = pickle.loads(pickle.dumps(reader))
    batches = [batch for each in ranges for batch in there.read(each)]
    return [int(value.as_py()) for batch in batches for value in batch.column("value")]


def between(reader, start, end):
    return read(reader, reader.partitions(start, end))


def test_a_partition_that_comes_later_is_read_from_its_beginning(cluster, admin, source):
    cluster.create_topic("grows", 1)
    produce(cluster, "grows", 0, range(5))
    reader = source("grows")
    first = reader.latestOffset(reader.initialOffset(), ALL)
    assert logs(first) == {"grows": {"0": 5}}
    done(admin.create_partitions([NewPartitions("grows", 3)]))
    produce(cluster, "grows", 0, range(5, 7))
    produce(cluster, "grows", 2, range(100, 104))
    # By then the new partition has lost its oldest records already.
    done(admin.delete_records([TopicPartition("grows", 2, 1)]))
    second = reader.latestOffset(first, ALL)
    assert logs(second) == {"grows": {"0": 7, "1": 0, "2": 4}}
    assert sorted(between(reader, first, second)) == [5, 6, 101, 102, 103]


def test_a_topic_that_comes_to_match_a_pattern(cluster, source):
    cluster.create_topic("pattern-a", 1)
    cluster.create_topic("other-pattern-a", 1)
    reader = source(None, subscribePattern="pattern-.*")
    start = reader.initialOffset()
    assert logs(start) == {"pattern-a": {"0": 0}}
    cluster.create_topic("pattern-b", 1)
    produce(cluster, "pattern-b", 0, range(3))
    assert between(reader, start, reader.latestOffset(start, ALL)) == [0, 1, 2]


def test_what_retention_took_before_a_batch_is_planned(cluster, admin, source):
    cluster.create_topic("short", 1)
    produce(cluster, "short", 0, range(20))
    done(admin.delete_records([TopicPartition("short", 0, 15)]))
    start = {"short": {"0": 10}}
    words = r"short partition 0 begins at 15 now, the stream stands at 10; set failOnDataLoss to false"
    with pytest.raises(ClusterError, match=words):
        source("short").latestOffset(start, ALL)
    reader = source("short", failOnDataLoss="false")
    assert between(reader, start, reader.latestOffset(start, ALL)) == list(range(15, 20))


def test_what_retention_took_before_a_batch_is_read(cluster, admin, source, caplog):
    cluster.create_topic("shorter", 1)
    produce(cluster, "shorter", 0, range(20))
    start, end = {"shorter": {"0": 10}}, {"shorter": {"0": 18}}
    done(admin.delete_records([TopicPartition("shorter", 0, 15)]))
    with pytest.raises(ClusterError, match="these records are gone"):
        between(source("shorter"), start, end)
    with caplog.at_level(logging.WARNING, "kclient_quota"):
        assert between(source("shorter", failOnDataLoss="false"), start, end) == [15, 16, 17]
    assert "shorter partition 0: offsets 10 to 14 are not there" in caplog.text
    done(admin.delete_records([TopicPartition("shorter", 0, 20)]))
    assert between(source("shorter", failOnDataLoss="false"), start, end) == []


def test_a_topic_that_is_gone_is_named(cluster, admin, source):
    cluster.create_topic("leaves", 1)
    reader = source("leaves")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    done(admin.delete_topics(["leaves"]))
    with pytest.raises(ClusterError, match=r"leaves at .*UNKNOWN_TOPIC_OR_PART"):
        reader.latestOffset(start, ALL)


@pytest.mark.parametrize("more", [0, 3, 40])
def test_a_topic_that_was_made_anew_is_noticed(cluster, admin, source, more, caplog):
    """Whether it holds less than the stream has read, as much, or more: its records are not passed over."""
    name = f"anew-{more}"
    cluster.create_topic(name, 1)
    produce(cluster, name, 0, range(10))
    start = source(name).latestOffset(source(name).initialOffset(), ALL)
    start = json.loads(json.dumps(start))
    done(admin.delete_topics([name]))
    cluster.create_topic(name, 1)
    produce(cluster, name, 0, range(100, 107 + more))
    with pytest.raises(ClusterError, match=f"topic {name} was deleted and made anew.*failOnDataLoss to false"):
        source(name).latestOffset(start, ALL)
    reader = source(name, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "kclient_quota"):
        end = reader.latestOffset(start, ALL)
    assert f"topics {name} were made anew" in caplog.text
    assert between(reader, start, end) == list(range(100, 107 + more))
    assert reader.latestOffset(end, ALL) == end


def test_a_run_with_available_now_ends_where_it_began_to(cluster, source):
    cluster.create_topic("now", 2)
    produce(cluster, "now", 0, range(4))
    reader = source("now")
    reader.prepareForTriggerAvailableNow()
    produce(cluster, "now", 1, range(4, 9))
    at, found = reader.initialOffset(), []
    while (end := reader.latestOffset(at, ReadMaxRows(3))) != at:
        found.append(between(reader, at, end))
        at = end
    assert found == [[0, 1, 2], [3]]


def test_batches_by_bytes(cluster, source):
    cluster.create_topic("bytes", 1)
    produce(cluster, "bytes", 0, range(50), size=1_000)
    reader = source("bytes")
    start = reader.initialOffset()
    assert logs(reader.latestOffset(start, ReadMaxBytes(10_000))) == {"bytes": {"0": 10}}
    assert logs(reader.latestOffset(start, ReadMaxBytes(1))) == {"bytes": {"0": 1}}
    assert logs(reader.latestOffset(start, ReadMaxBytes(10_000_000))) == {"bytes": {"0": 50}}


def test_the_limit_of_a_quota_is_that_of_every_leader_in_an_interval(cluster, source):
    cluster.create_topic("limited", 2)
    cluster.set_quota(client_id="bytes-of-quota", consumer_byte_rate=5_000)
    options = {"maxBytesPerTrigger": "quota", "triggerSeconds": "4"}
    reader = source("limited", **options, **{"kafka.client.id": "bytes-of-quota"})
    assert reader.getDefaultReadLimit() == ReadMaxBytes(20_000)
    assert source("limited", **options, **{"kafka.client.id": "nobody"}).getDefaultReadLimit() == ALL
    assert source("limited", maxBytesPerTrigger="77").getDefaultReadLimit() == ReadMaxBytes(77)


def test_between_two_timestamps(cluster):
    cluster.create_topic("times", 1)
    produce(cluster, "times", 0, range(20))
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "times"}
    reader = KafkaBatchReader({**given, "startingTimestamp": "1005", "endingTimestamp": "1012"})
    assert read(reader, reader.partitions()) == list(range(5, 12))
    late = KafkaBatchReader({**given, "startingTimestamp": "9000"})
    assert late.partitions() == []


def test_between_timestamps_of_partitions(cluster):
    cluster.create_topic("by-partition", 2)
    for partition in (0, 1):
        produce(cluster, "by-partition", partition, range(20))
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "by-partition"}
    start, end = '{"by-partition": {"0": 1005, "1": 1018}}', '{"by-partition": {"0": 1012, "1": 9000}}'
    reader = KafkaBatchReader({**given, "startingOffsetsByTimestamp": start, "endingOffsetsByTimestamp": end})
    assert sorted(read(reader, reader.partitions())) == sorted([*range(5, 12), 18, 19])
    counts_more = KafkaBatchReader({**given, "startingOffsetsByTimestamp": start, "startingTimestamp": "1019"})
    assert read(counts_more, counts_more.partitions()) == [19, 19]
    incomplete = KafkaBatchReader({**given, "startingOffsetsByTimestamp": '{"by-partition": {"0": 1}}'})
    with pytest.raises(ConfigError, match="startingOffsetsByTimestamp: partition 1 of by-partition is missing"):
        incomplete.partitions()


def test_a_batch_waits_for_rows_but_not_for_ever(cluster, source):
    cluster.create_topic("few", 2)
    clock = ManualClock(5_000)
    reader = source("few", clock=clock, minOffsetsPerTrigger="10", maxTriggerDelay="2m")
    start = reader.initialOffset()
    produce(cluster, "few", 0, range(3))
    # A stream that begins takes what there is.
    first = reader.latestOffset(start, ALL)
    assert logs(first) == {"few": {"0": 3, "1": 0}}
    produce(cluster, "few", 0, range(3, 8))
    produce(cluster, "few", 1, range(4))
    assert reader.latestOffset(first, ALL) == first
    produce(cluster, "few", 1, range(4, 5))
    second = reader.latestOffset(first, ReadMaxRows(6))
    assert sum(second["few"].values()) == 9
    third = reader.latestOffset(first, ALL)
    clock.sleep_ms(119_999)
    produce(cluster, "few", 0, range(8, 9))
    assert reader.latestOffset(third, ALL) == third
    clock.sleep_ms(1)
    assert logs(reader.latestOffset(third, ALL)) == {"few": {"0": 9, "1": 5}}
    assert reader.latestOffset(third, ALL) == third
    reader.prepareForTriggerAvailableNow()
    assert logs(reader.latestOffset(third, ALL)) == {"few": {"0": 9, "1": 5}}


def test_headers_and_pace_are_columns_when_asked_for(cluster, source):
    cluster.create_topic("paced", 1)
    cluster.set_quota(client_id="throttled", consumer_byte_rate=20_000)
    produce(cluster, "paced", 0, range(100), size=1_000, **{"batch.size": 10_000})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("paced", b"100", headers=[("a", b"1"), ("b", None), ("a", b"2")], timestamp=5)
    assert producer.flush(60) == 0
    size = {"kafka.fetch.message.max.bytes": "20000"}
    options = {"kafka.client.id": "throttled", "kafka.quota.backoff": "off", **size}
    reader = source("paced", includeHeaders="true", includePace="true", **options)
    start = reader.initialOffset()
    batches = [batch for each in reader.partitions(start, {"paced": {"0": 101}}) for batch in reader.read(each)]
    headers = [row for batch in batches for row in batch.column("headers").to_pylist()]
    assert headers[:100] == [None] * 100
    assert [(each["key"], each["value"]) for each in headers[100]] == [("a", b"1"), ("b", None), ("a", b"2")]
    paces = [batch.column("pace").to_pylist() for batch in batches]
    assert all(not any(rows[1:]) for rows in paces)
    told = [rows[0] for rows in paces]
    assert sum(each["bytes"] for each in told) >= 100_000
    assert sum(each["throttles"] for each in told) > 0
    assert sum(each["throttle_ms"] for each in told) > 0


def test_columns_are_those_that_come(cluster):
    options = {"kafka.bootstrap.servers": "x:1", "subscribe": "t"}
    assert "headers" not in KafkaSource(options).schema()
    wide = KafkaSource({**options, "includeheaders": "TRUE", "includePace": "true"}).schema()
    assert wide.index("headers") < wide.index("pace")


@pytest.mark.parametrize("offsets", [{"t": 3}, {"t": {"0": "x"}}, [1], {"logOffset": 7}, {"t": {"a": 1}}])
def test_offsets_of_something_else_in_a_checkpoint_are_refused(cluster, source, offsets):
    reader = source("bytes")
    with pytest.raises(ConfigError, match="start with a new checkpointLocation"):
        reader.latestOffset(offsets, ALL)
    with pytest.raises(ConfigError, match="are not of this source"):
        reader.partitions(offsets, {"t": {"0": 1}})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"failOnDataLoss": "no"}, "failOnDataLoss no: write true or false"),
        ({"maxBytesPerTrigger": "1MB"}, "maxBytesPerTrigger 1MB: write a whole number"),
        ({"triggerSeconds": "0"}, "triggerSeconds 0: write a whole number"),
        ({"minOffsetsPerTrigger": "x"}, "minOffsetsPerTrigger x: write a whole number"),
        ({"maxTriggerDelay": "15"}, "maxTriggerDelay 15: write a whole number and a unit"),
        ({"maxOffsetsPerTrigger": "-1"}, "maxOffsetsPerTrigger -1"),
        ({"subscribe": "", "subscribePattern": "("}, r"subscribePattern \(: .*regular expression"),
    ],
)
def test_wrong_options_are_named_before_anything_is_asked(options, words):
    with pytest.raises(ConfigError, match=words):
        KafkaStreamReader({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **options})


def test_throttles_are_figures_of_the_progress(spark, cluster, tmp_path):
    """And a stream under a quota reads everything all the same."""
    spark.dataSource.register(KafkaSource)
    cluster.create_topic("progress", 1)
    cluster.set_quota(client_id="progress", consumer_byte_rate=120_000)
    produce(cluster, "progress", 0, range(300), size=1_000, **{"batch.size": 10_000})
    options = {"kafka.client.id": "progress", "kafka.quota.backoff": "off", "kafka.fetch.message.max.bytes": "20000"}
    source = spark.readStream.format(FORMAT).options(**options, subscribe="progress", startingOffsets="earliest")
    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    frame = observed(source.options(**servers, includePace="true").load())
    assert "pace" not in frame.columns
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    assert sum(each["numInputRows"] for each in progress) == 300
    totals = Totals()
    for each in progress:
        totals.add(json.loads(each.json), FORMAT)
    assert totals.bytes >= 300_000
    assert totals.throttle_ms > 0
