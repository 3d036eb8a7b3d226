"""What the README says of the embedded broker's speed, and how exactly both brokers keep their word."""

import time
from typing import Any

import confluent_kafka
import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.security.scram_server import ScramError, ScramServer
from tests.measured.scenes import named
from tests.suite.speed import Speed


def test_it_starts_in_milliseconds() -> None:
    took_ms, speed = [], Speed()
    for _ in range(20):
        speed.take()
        begin = time.perf_counter()
        with EmbeddedBroker(topics={"t": 1}):
            took_ms.append((time.perf_counter() - begin) * 1000)
    assert sorted(took_ms)[len(took_ms) // 2] <= 5 * speed.factor()
    with EmbeddedBroker(brokers=3, topics={"t": 4}):
        pass


def test_a_fetch_is_held_up_for_a_window_to_the_tenth_of_a_second(cluster: Any) -> None:
    topic, quota = named("t"), 5_000
    cluster.create_topic(topic)
    base = {"bootstrap.servers": cluster.bootstrap_servers}
    for _ in range(12):
        producer = confluent_kafka.Producer({**base, "linger.ms": 60_000, "batch.num.messages": 10})
        for _ in range(10):
            producer.produce(topic, b"x" * 1_000)
        assert producer.flush(60) == 0
    cluster.set_quota(client_id=topic, consumer_byte_rate=quota)
    heard: list[float] = []
    group = {"client.id": topic, "group.id": topic, "auto.offset.reset": "earliest"}
    note = {"throttle_cb": lambda event: heard.append(event.throttle_time) if event.throttle_time else None}
    consumer = confluent_kafka.Consumer({**base, **group, **note})
    consumer.subscribe([topic])
    deadline = time.monotonic() + 30
    while len(heard) < 2 and time.monotonic() < deadline:
        consumer.poll(0.2)
    consumer.close()
    assert heard[1] == pytest.approx(10, abs=0.1)


@pytest.mark.parametrize("token", [b"n,,n=" + b"a" * 500_000, b"n,a=" + b"a" * 500_000, b"n,,n=" + b"=2C" * 160_000])
def test_what_a_stranger_logs_in_with_holds_up_nobody(token: bytes) -> None:
    took_ms, speed = [], Speed()
    for _ in range(5):
        speed.take()
        server = ScramServer("SCRAM-SHA-256", lambda _: None, "nonce")
        begin = time.thread_time()
        with pytest.raises(ScramError):
            server.first(token)
        took_ms.append((time.thread_time() - begin) * 1000)
    assert min(took_ms) <= 25 * speed.factor()
