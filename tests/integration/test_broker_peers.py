"""The clients of this world against the embedded broker, unmodified: confluent-kafka, kafka-python, aiokafka, Java."""

import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec

from kclient_quota.broker import EmbeddedBroker

kafka_python_warns = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")
THROTTLE_QUOTA = 5_000


@pytest.fixture
def cluster():
    with EmbeddedBroker(brokers=2, topics={"t": 4}) as running:
        yield running


# -- confluent-kafka


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_confluent_kafka_gets_back_what_it_wrote(cluster, compression, idempotent):
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": compression}
    producer = Producer({**conf, "enable.idempotence": idempotent, "linger.ms": 5})
    for number in range(500):
        producer.produce("t", b"v%d" % number, key=b"k%d" % number, headers=[("h", b"1")], partition=number % 4)
    assert producer.flush(60) == 0
    del conf["compression.type"]
    consumer = Consumer({**conf, "group.id": "g", "auto.offset.reset": "earliest", "check.crcs": True})
    consumer.assign([TopicPartition("t", index, 0) for index in range(4)])
    got = _consume(consumer, 500)
    consumer.close()
    assert sorted(got) == sorted(b"v%d" % number for number in range(500))


def _consume(consumer, count):
    values, deadline = [], time.monotonic() + 60
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count}"
        for message in consumer.consume(500, 0.5):
            assert message.error() is None, message.error()
            values.append(message.value())
    return values


def test_confluent_kafka_finds_offsets_by_time_and_by_place(cluster):
    conf = {"bootstrap.servers": cluster.bootstrap_servers}
    producer = Producer({**conf, "linger.ms": 50})
    for number in range(10):
        producer.produce("t", b"v", partition=0, timestamp=1_000 + number * 10)
    assert producer.flush(60) == 0
    consumer = Consumer({**conf, "group.id": "g"})
    for time_ms, offset in ((0, 0), (1_035, 4), (1_090, 9), (1_091, -1)):
        (found,) = consumer.offsets_for_times([TopicPartition("t", 0, time_ms)], 60)
        assert found.offset == offset
    assert consumer.get_watermark_offsets(TopicPartition("t", 0), 60) == (0, 10)
    consumer.close()
    admin = AdminClient(conf)
    (future,) = admin.list_offsets({TopicPartition("t", 0): OffsetSpec.max_timestamp()}).values()
    assert (future.result().offset, future.result().timestamp) == (9, 1_090)


def test_confluent_kafka_administers_topics(cluster):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    created = admin.create_topics(
        [NewTopic("made", 3, 2, config={"retention.bytes": "1000000"}), NewTopic("a b", 1, 1)]
    )
    assert created["made"].result() is None
    with pytest.raises(KafkaException, match="ASCII alphanumerics"):
        created["a b"].result()
    with pytest.raises(KafkaException, match="already exists"):
        admin.create_topics([NewTopic("made", 1, 1)])["made"].result()
    admin.create_partitions([NewPartitions("made", 5)])["made"].result()
    described = admin.list_topics("made", 60).topics["made"].partitions
    assert [sorted(partition.replicas) for partition in described.values()] == [[1, 2]] * 5
    resource = ConfigResource("topic", "made")
    (configs,) = (future.result() for future in admin.describe_configs([resource]).values())
    assert configs["retention.bytes"].value == "1000000"
    admin.delete_topics(["made"])["made"].result()
    assert "made" not in admin.list_topics(timeout=60).topics
    (deleted,) = admin.delete_records([TopicPartition("t", 0, -1)]).values()
    assert deleted.result().low_watermark == 0


def test_confluent_kafka_hears_of_throttles_and_feels_them(cluster):
    cluster.set_quota(client_id="app", producer_byte_rate=THROTTLE_QUOTA)
    heard = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": "app",
            # one batch, however long producing takes
            "linger.ms": 60_000,
            "batch.num.messages": 60,
            "throttle_cb": lambda event: heard.append((event.broker_id, event.throttle_time)),
        }
    )
    for _ in range(60):
        producer.produce("t", b"x" * 1000, partition=0)
    assert producer.flush(60) == 0
    producer.produce("t", b"x", partition=0)
    assert producer.flush(60) == 0
    ((broker_id, throttle_s), *_) = heard
    assert broker_id == 1
    assert throttle_s == pytest.approx(2.1, abs=0.15)
    assert_the_second_waited(cluster)
    assert next(seen.throttle_time_ms / 1000 for seen in cluster.requests if seen.throttle_time_ms) == throttle_s


def assert_the_second_waited(cluster):
    """The request after the one that was throttled was taken up when the throttle was over, by the broker's clock."""
    first, second = (seen for seen in cluster.requests if seen.api_key == 0)
    assert 1_000 < first.throttle_time_ms <= second.at_ms - first.at_ms


# -- kafka-python


@kafka_python_warns
def test_kafka_python_gets_back_what_it_wrote_and_pauses_when_throttled(cluster):
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as Place

    cluster.set_quota(client_id="app", producer_byte_rate=THROTTLE_QUOTA)
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, client_id="app", linger_ms=60_000, batch_size=200_000
    )
    with closing(producer):
        producer.partitions_for("t")
        for number in range(60):
            producer.send("t", b"%04d" % number + b"x" * 996, partition=1)
        producer.flush(60)
        producer.send("t", b"0060", partition=1)
        producer.flush(60)
    assert_the_second_waited(cluster)
    options = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
    with closing(KafkaConsumer(**options)) as consumer:
        consumer.assign([Place("t", 1)])
        values, deadline = [], time.monotonic() + 60
        while len(values) < 61:
            assert time.monotonic() < deadline
            values += [int(record.value[:4]) for records in consumer.poll(500).values() for record in records]
    assert values == list(range(61))


@kafka_python_warns
def test_kafka_python_administers(cluster):
    from kafka.admin import KafkaAdminClient
    from kafka.admin import NewTopic as Wanted

    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)) as admin:
        admin.create_topics([Wanted("made", 2, 1)])
        assert "made" in admin.list_topics()
        admin.delete_topics(["made"])
        assert "made" not in admin.list_topics()


# -- aiokafka


async def test_aiokafka_gets_back_what_it_wrote(cluster):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka import TopicPartition as Place

    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True, compression_type="lz4"
    )
    await producer.start()
    try:
        for number in range(100):
            await producer.send("t", b"%d" % number, partition=2)
        await producer.flush()
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([Place("t", 2)])
    await consumer.start()
    try:
        values = [int((await consumer.getone()).value) for _ in range(100)]
    finally:
        await consumer.stop()
    assert values == list(range(100))


async def test_aiokafka_administers(cluster):
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.admin import NewTopic as Wanted

    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics([Wanted("made", 2, 1)])
        assert "made" in await admin.list_topics()
    finally:
        await admin.close()


# -- Java


def test_javas_producer_and_consumer_pass_on_what_they_are_given(cluster, java):
    servers = cluster.bootstrap_servers
    properties = [f"bootstrap.servers={servers}", "enable.idempotence=true", "acks=all"]
    tool = "org.apache.kafka.tools.ProducerPerformance"
    size = ["--num-records", "2000", "--record-size", "100", "--throughput", "-1"]
    assert "2000 records sent" in java(tool, "--topic", "t", *size, "--producer-props", *properties)
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    limits = ["--from-beginning", "--max-messages", "2000", "--timeout-ms", "30000"]
    values = java(consumer, "--bootstrap-server", servers, "--topic", "t", *limits).splitlines()
    assert [len(value) for value in values] == [100] * 2000


def test_javas_tools_administer_topics_quotas_and_client_metrics(cluster, java):
    to = ["--bootstrap-server", cluster.bootstrap_servers]
    configs = "kafka.admin.ConfigCommand"
    entity = ["--entity-type", "clients", "--entity-name", "app"]
    assert "Completed updating config for client app." in java(
        configs, *to, "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=12.5", *entity
    )
    described = java(configs, *to, "--describe", *entity)
    assert described.startswith("Quota configs for client-id 'app' are ")
    assert "producer_byte_rate=1024.0" in described
    assert "request_percentage=12.5" in described
    java(configs, *to, "--alter", "--delete-config", "producer_byte_rate,request_percentage", *entity)
    assert java(configs, *to, "--describe", *entity).strip() == ""
    java("org.apache.kafka.tools.TopicCommand", *to, "--create", "--topic", "made", "--partitions", "3")
    assert "PartitionCount: 3" in java("org.apache.kafka.tools.TopicCommand", *to, "--describe", "--topic", "made")
    metrics = "org.apache.kafka.tools.ClientMetricsCommand"
    java(metrics, *to, "--alter", "--name", "basic", "--metrics", "org.apache", "--interval", "60000")
    assert "interval.ms=60000" in java(metrics, *to, "--describe", "--name", "basic")


def test_javas_producer_waits_out_its_throttle(cluster, java):
    cluster.set_quota(client_id="app", producer_byte_rate=THROTTLE_QUOTA)
    properties = [f"bootstrap.servers={cluster.bootstrap_servers}", "client.id=app", "linger.ms=100"]
    tool = "org.apache.kafka.tools.ProducerPerformance"
    size = ["--num-records", "70", "--record-size", "1000", "--throughput", "-1", "--print-metrics"]
    cluster.create_topic("one", 1)  # Java spreads over partitions by chance, and each broker counts for itself
    printed = java(tool, "--topic", "one", *size, "--producer-props", *properties)
    (line,) = (line for line in printed.splitlines() if "produce-throttle-time-max" in line)
    longest = max(seen.throttle_time_ms for seen in cluster.requests if seen.client_id == "app")
    assert longest > 0
    assert float(line.rpartition(":")[2]) == longest
