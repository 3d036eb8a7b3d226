"""`consume(60, 1.0)` of a topic that gets 50 messages a second: a second's messages, not fewer."""

import threading
import time
from statistics import median
from typing import Any

import confluent_kafka
import pytest

from kclient_quota import Consumer
from tests.measured.scenes import named

PER_SECOND = 50
CALLS = 5


def trickle(cluster: Any, topic: str, stop: threading.Event) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
    begin = time.monotonic()
    sent = 0
    while not stop.wait(0.005):
        while sent < (time.monotonic() - begin) * PER_SECOND:
            producer.produce(topic, b"x" * 500)
            sent += 1
        producer.poll(0)
    producer.flush(60)


def each_call_gets(cluster: Any, kind: Any, quota: int | None) -> list[int]:
    topic = named("trickle")
    cluster.create_topic(topic)
    if quota is not None:
        cluster.set_quota(client_id=topic, consumer_byte_rate=quota)
    stop = threading.Event()
    sender = threading.Thread(target=trickle, args=(cluster, topic, stop))
    sender.start()
    consumer = kind({"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "client.id": topic})
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while not consumer.consume(60, 1.0):
            assert time.monotonic() < deadline
        return [len(consumer.consume(60, 1.0)) for _ in range(CALLS)]
    finally:
        stop.set()
        sender.join()
        consumer.close()


@pytest.mark.parametrize("quota", [None, 100_000])
@pytest.mark.parametrize("kind", [confluent_kafka.Consumer, Consumer], ids=["plain", "ours"])
def test_a_call_gets_what_came_in_its_time(cluster: Any, kind: Any, quota: int | None) -> None:
    got = each_call_gets(cluster, kind, quota)
    assert median(got) >= 46, got
    assert sum(got) >= 46 * CALLS, got
