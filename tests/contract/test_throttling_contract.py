"""What a client hears and feels when it is over its quota, on the embedded broker and on Apache Kafka."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, ThrottleEvent
from confluent_kafka.admin import AdminClient, NewTopic

Unique = Callable[[str], str]
pytestmark = pytest.mark.timeout(120)

# ten whole windows of a second: what a fresh sensor's rate is divided by
WINDOW_S = 10.0


def _create(cluster: Any, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(60)


def _one_batch(conf: dict[str, Any], topic: str, messages: int) -> None:
    """Sends `messages` of 1,000 bytes as the one batch of one request."""
    producer = Producer({"linger.ms": 60_000, "batch.num.messages": messages, **conf})
    producer.list_topics(topic, 60)  # or flush() may send what has found its partition, and the rest after it
    for _ in range(messages):
        producer.produce(topic, b"x" * 1000)
    assert producer.flush(60) == 0
    producer.poll(0)


def _heard_of_sixty(cluster: Any, client_id: str, topic: str) -> list[float]:
    """The throttle times, in seconds, that one batch of sixty messages is answered with."""
    heard: list[float] = []
    conf = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "client.id": client_id,
        # librdkafka also tells of the end of a throttle, as 0
        "throttle_cb": lambda event: heard.append(event.throttle_time) if event.throttle_time else None,
    }
    _one_batch(conf, topic, 60)
    return heard


def test_one_request_over_the_quota_is_throttled_by_kip_13s_formula(cluster: Any, unique: Unique) -> None:
    topic, client_id, quota = unique("t"), unique("app"), 5_000
    _create(cluster, topic)
    cluster.set_quota(client_id=client_id, producer_byte_rate=quota)
    heard = _heard_of_sixty(cluster, client_id, topic)
    # 60 values of 1,000 bytes, about 7 bytes a record and 160 a request: 60,580 / 5,000 - 10 = 2.116 s
    assert heard == [pytest.approx(2.12, abs=0.06)]


def test_a_request_within_the_quota_of_a_whole_window_is_not_throttled(cluster: Any, unique: Unique) -> None:
    topic, client_id = unique("t"), unique("app")
    _create(cluster, topic)
    cluster.set_quota(client_id=client_id, producer_byte_rate=6_200)
    assert _heard_of_sixty(cluster, client_id, topic) == []


def test_the_throttled_request_is_answered_at_once_and_the_connection_muted_after(cluster: Any, unique: Unique) -> None:
    topic, client_id, quota = unique("t"), unique("app"), 5_000
    _create(cluster, topic)
    cluster.set_quota(client_id=client_id, producer_byte_rate=quota)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": client_id, "linger.ms": 500})
    producer.list_topics(topic, 60)
    took = []
    begin = time.monotonic()
    for messages in (120, 1):
        for _ in range(messages):
            producer.produce(topic, b"x" * 1000)
        assert producer.flush(60) == 0
        took.append(time.monotonic() - begin)
    throttle_s = 121_000 / quota - WINDOW_S
    assert took[0] < throttle_s / 2 + 0.5
    assert took[1] > throttle_s * 0.9


def test_fetches_are_cut_to_the_window_and_throttled_empty(cluster: Any, unique: Unique) -> None:
    topic, client_id, quota = unique("t"), unique("app"), 5_000
    _create(cluster, topic)
    for _ in range(12):
        _one_batch({"bootstrap.servers": cluster.bootstrap_servers}, topic, 10)
    cluster.set_quota(client_id=client_id, consumer_byte_rate=quota)
    heard: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": client_id,
            "group.id": unique("group"),
            "auto.offset.reset": "earliest",
            "throttle_cb": lambda event: heard.append(event.throttle_time) if event.throttle_time else None,
        }
    )
    try:
        consumer.subscribe([topic])
        got = 0
        deadline = time.monotonic() + 60
        while len(heard) < 2 and time.monotonic() < deadline:
            got += consumer.poll(0.2) is not None
        while consumer.poll(0.5) is not None:
            got += 1
        # the log gives quota x window = 50,000 bytes, the last batch cut; with 73 bytes of framing just too much
        assert heard[0] == pytest.approx(73 / quota, abs=0.005)
        # after that wait the same answer passes: four whole batches of ten, and the next one waits for a whole window
        assert got == 40
        assert heard[1] == pytest.approx(WINDOW_S, abs=0.1)
    finally:
        consumer.close()


def test_a_client_id_without_a_quota_is_not_throttled_beside_one_that_is(cluster: Any, unique: Unique) -> None:
    topic, limited, free = unique("t"), unique("limited"), unique("free")
    _create(cluster, topic)
    cluster.set_quota(client_id=limited, producer_byte_rate=1_000)
    heard: dict[str, list[float]] = {limited: [], free: []}
    for client_id, times in heard.items():

        def on_throttle(event: ThrottleEvent, times: list[float] = times) -> None:
            if event.throttle_time:
                times.append(event.throttle_time)

        conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": client_id, "throttle_cb": on_throttle}
        _one_batch(conf, topic, 15)
    assert len(heard[limited]) == 1
    assert heard[free] == []


def test_a_removed_quota_throttles_nobody(cluster: Any, unique: Unique) -> None:
    topic, client_id = unique("t"), unique("app")
    _create(cluster, topic)
    cluster.set_quota(client_id=client_id, producer_byte_rate=1_000)
    cluster.set_quota(client_id=client_id, producer_byte_rate=None)
    assert _heard_of_sixty(cluster, client_id, topic) == []


def test_every_broker_counts_for_itself(three_brokers: Any, unique: Unique) -> None:
    topic, client_id, quota = unique("t"), unique("app"), 5_000
    _create(three_brokers, topic, 3)
    three_brokers.set_quota(client_id=client_id, producer_byte_rate=quota)
    heard: dict[int, float] = {}

    def on_throttle(event: ThrottleEvent) -> None:
        # librdkafka also tells of the end of a throttle, as 0
        if event.throttle_time:
            heard[event.broker_id] = event.throttle_time

    producer = Producer(
        {
            "bootstrap.servers": three_brokers.bootstrap_servers,
            "client.id": client_id,
            "linger.ms": 60_000,
            "throttle_cb": on_throttle,
        }
    )
    partitions = producer.list_topics(topic, 60).topics[topic].partitions
    for partition, messages in enumerate((60, 70, 20)):
        for _ in range(messages):
            producer.produce(topic, b"x" * 1000, partition=partition)
        assert producer.flush(60) == 0
    producer.poll(0)
    expected = {partitions[0].leader: 2.12, partitions[1].leader: 4.14}
    assert heard == {leader: pytest.approx(seconds, abs=0.1) for leader, seconds in expected.items()}


def test_request_time_over_the_quota_is_throttled_by_one_window_at_most(cluster: Any, unique: Unique) -> None:
    topic, client_id = unique("t"), unique("app")
    _create(cluster, topic)
    cluster.set_quota(client_id=client_id, request_percentage=0.001)
    heard: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": client_id,
            "throttle_cb": lambda event: heard.append(event.throttle_time) if event.throttle_time else None,
        }
    )
    for _ in range(5):
        producer.produce(topic, b"x")
        assert producer.flush(60) == 0
    producer.poll(0)
    assert heard
    assert max(heard) == 1.0
