"""Produce, fetch, groups and offsets as applications see them, on the embedded broker and on Apache Kafka."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_STORED, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

Unique = Callable[[str], str]
pytestmark = pytest.mark.timeout(120)


def _create(cluster: Any, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(60)


def _consumer(cluster: Any, group: str, **conf: Any) -> Consumer:
    base = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    return Consumer({**base, **conf})


def _read(consumer: Consumer, count: int, timeout_s: float = 60) -> list[Any]:
    deadline = time.monotonic() + timeout_s
    messages: list[Any] = []
    while len(messages) < count and time.monotonic() < deadline:
        messages += consumer.consume(count - len(messages), 0.5)
    assert [message.error() for message in messages] == [None] * count
    return messages


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_was_produced_is_read_back_in_order(cluster: Any, unique: Unique, compression: str) -> None:
    topic = unique("t")
    _create(cluster, topic)
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "compression.type": compression}
    producer = Producer(conf)
    for number in range(500):
        producer.produce(topic, str(number), key=b"k", headers={"n": str(number)})
    assert producer.flush(60) == 0
    consumer = _consumer(cluster, unique("group"))
    consumer.subscribe([topic])
    messages = _read(consumer, 500)
    consumer.close()
    assert [message.offset() for message in messages] == list(range(500))
    assert [message.value() for message in messages] == [str(number).encode() for number in range(500)]
    assert messages[7].headers() == [("n", b"7")]


def test_watermarks_and_offsets_for_times(cluster: Any, unique: Unique) -> None:
    topic = unique("t")
    _create(cluster, topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(10):
        producer.produce(topic, b"v", timestamp=1_000_000_000_000 + number * 1000)
        producer.flush(60)
    consumer = _consumer(cluster, unique("group"))
    try:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 60) == (0, 10)
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, 1_000_000_004_500)], 60)
        assert found.offset == 5
        with pytest.raises(KafkaException) as raised:  # an offset where a time is wanted
            consumer.offsets_for_times([TopicPartition(topic, 0, OFFSET_STORED)], 60)
        assert raised.value.args[0].code() == KafkaError.UNSUPPORTED_VERSION
    finally:
        consumer.close()


def test_a_group_goes_on_where_it_committed(cluster: Any, unique: Unique) -> None:
    topic, group = unique("t"), unique("group")
    _create(cluster, topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(20):
        producer.produce(topic, str(number))
    assert producer.flush(60) == 0
    first = _consumer(cluster, group, **{"enable.auto.commit": False})
    first.subscribe([topic])
    message = _read(first, 5)[-1]
    first.commit(message=message, asynchronous=False)
    first.close()
    second = _consumer(cluster, group)
    second.subscribe([topic])
    assert _read(second, 1)[0].value() == b"5"
    second.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_two_members_share_the_partitions(cluster: Any, unique: Unique, strategy: str) -> None:
    topic, group = unique("t"), unique("group")
    _create(cluster, topic, 4)
    conf = {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 300}
    members = [_consumer(cluster, group, **conf) for _ in range(2)]
    try:
        for member in members:
            member.subscribe([topic])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for member in members:
                member.poll(0.1)
            owned = [{partition.partition for partition in member.assignment()} for member in members]
            if [len(share) for share in owned] == [2, 2]:
                break
        assert sorted(owned[0] | owned[1]) == [0, 1, 2, 3]
        assert [len(share) for share in owned] == [2, 2]
    finally:
        for member in members:
            member.close()


def test_a_topic_can_be_created_once(cluster: Any, unique: Unique) -> None:
    topic = unique("t")
    _create(cluster, topic, 3)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    deadline = time.monotonic() + 60  # Kafka answers before all of its brokers have heard of the topic
    while not (partitions := admin.list_topics(topic, 60).topics[topic].partitions):
        assert time.monotonic() < deadline, "no broker has heard of it"
    assert len(partitions) == 3
    with pytest.raises(KafkaException) as refused:
        _create(cluster, topic)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
