"""`consume(60, 1.0)` of a topic that gets 50 messages a second: a second's messages, not fewer."""

import threading
import time
from functools import partial
from statistics import median
from typing import Any

import confluent_kafka
import pytest

from kclient_quota import Consumer
from tests.measured.scenes import EVEN, Figures, Played, Scene, named

PER_SECOND = 50
CALLS = 5


def trickle(cluster: Any, topic: str, stop: threading.Event) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
    begin = time.monotonic()
    sent = 0
    while not stop.wait(0.01):
        while sent < (time.monotonic() - begin) * PER_SECOND:
            producer.produce(topic, b"x" * 500)
            sent += 1
        producer.poll(0)
    producer.flush(60)


def each_call_gets(cluster: Any, kind: Any, quota: int | None) -> Figures:
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
        got = [len(consumer.consume(60, 1.0)) for _ in range(CALLS)]
        return {"median": median(got), "sum": sum(got)}
    finally:
        stop.set()
        sender.join()
        consumer.close()


KINDS = {"plain": confluent_kafka.Consumer, "ours": Consumer}
NAMED = {
    f"{name}-{quota}": partial(each_call_gets, kind=kind, quota=quota)
    for name, kind in KINDS.items()
    for quota in (None, 100_000)
}
ROUND = EVEN
SCENES = [*NAMED.values()]


@pytest.mark.parametrize("scene", SCENES, ids=[*NAMED])
def test_a_call_gets_what_came_in_its_time(played: Played, scene: Scene) -> None:
    got = played(scene)
    assert got["median"] >= 46, got
    assert got["sum"] >= 46 * CALLS, got
