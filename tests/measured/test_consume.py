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

PER_SECOND, MOST = 50, 60
CALLS = 5


class Trickle:
    """Sends so many messages a second, and counts those that the broker has."""

    def __init__(self, cluster: Any, topic: str) -> None:
        self.came = 0
        self._cluster, self._topic = cluster, topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self._cluster.bootstrap_servers, "linger.ms": 0})
        begin = time.monotonic()
        sent = 0
        while not self._stop.wait(0.01):
            while sent < (time.monotonic() - begin) * PER_SECOND:
                producer.produce(self._topic, b"x" * 500, on_delivery=self._on_delivery)
                sent += 1
            producer.poll(0)
        producer.flush(60)

    def _on_delivery(self, error: Any, _: Any) -> None:
        self.came += error is None

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def call(consumer: Any, trickle: Trickle) -> tuple[int, int, float]:
    """Of one call: how many messages it has given, how many came meanwhile, and how long it took."""
    came, begin = trickle.came, time.monotonic()
    got = len(consumer.consume(MOST, 1.0))
    return got, trickle.came - came, time.monotonic() - begin


def each_call_gets(cluster: Any, kind: Any, quota: int | None) -> Figures:
    topic = named("trickle")
    cluster.create_topic(topic)
    if quota is not None:
        cluster.set_quota(client_id=topic, consumer_byte_rate=quota)
    trickle = Trickle(cluster, topic)
    consumer = kind({"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "client.id": topic})
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while not consumer.consume(MOST, 1.0):
            assert time.monotonic() < deadline
        calls = [call(consumer, trickle) for _ in range(CALLS)]
        return {
            "of_what_came": sum(got for got, _, _ in calls) / sum(came for _, came, _ in calls),
            "median": median(got / max(1, came) for got, came, _ in calls),
            "shortest_s": min((took for got, _, took in calls if got < MOST), default=1.0),
        }
    finally:
        trickle.close()
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
    assert got["shortest_s"] >= 0.95, got
    assert got["median"] >= 0.92, got
    assert got["of_what_came"] >= 0.92, got
