"""A consumer made before there was a quota follows it when it comes, is raised and is lowered, by spacing alone."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients import limits
from kclient_quota.clients.consumer import Consumer

Unique = Callable[[str], str]
pytestmark = pytest.mark.timeout(150)
MESSAGE = b"x" * 1_000


class Changing(NamedTuple):
    """A cluster, how long its quota window remembers, in seconds, and a quota that suits it."""

    cluster: Any
    window_s: int
    byte_rate: int


@pytest.fixture(params=["embedded", "apache-kafka"])
def changing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Changing]:
    """Limits are looked for every second in place of every minute."""
    monkeypatch.setattr(limits, "REFRESH_MS", 1_000)
    monkeypatch.setattr(limits, "MIN_REFRESH_MS", 200)
    if request.param == "apache-kafka":
        yield Changing(request.getfixturevalue("apache_kafka"), 11, 1_000_000)
        return
    with EmbeddedBroker(properties={"quota.window.num": "4"}) as embedded:
        yield Changing(embedded, 4, 2_000_000)


class Reader:
    """Reads a partition from its start, with the times at which messages came."""

    def __init__(self, cluster: Any, topic: str, client_id: str) -> None:
        self._cluster = cluster
        self._client_id = client_id
        self.throttles: list[tuple[float, float]] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": client_id,
                "client.id": client_id,
                "enable.auto.commit": False,
                "throttle_cb": lambda event: self.throttles.append((time.monotonic(), event.throttle_time)),
            }
        )
        self.consumer.assign([TopicPartition(topic, 0, 0)])
        self.came: list[float] = []

    def read(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            message = self.consumer.poll(0.1)
            if message is not None:
                assert message.error() is None
                assert message.offset() == len(self.came)
                self.came.append(time.monotonic())

    def follow(self, byte_rate: int, settle_s: float) -> None:
        """Set a quota; it is known, and messages come on in order."""
        self._cluster.set_quota(client_id=self._client_id, consumer_byte_rate=byte_rate)
        self.read(settle_s)
        so_far = len(self.came)
        deadline = time.monotonic() + 60
        while not self._knows(byte_rate) or len(self.came) == so_far:
            assert time.monotonic() < deadline, self.consumer.quota_state()
            self.read(0.2)

    def _knows(self, byte_rate: int) -> bool:
        (state,) = self.consumer.quota_state().values()
        return (state.limit, state.source) == (byte_rate, "cluster")


def fill(cluster: Any, topic: str, count: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "linger.ms": 100,
            "batch.num.messages": 100,
            "queue.buffering.max.messages": 200_000,
        }
    )
    for _ in range(count):
        producer.produce(topic, MESSAGE, partition=0)
    assert producer.flush(60) == 0


def test_a_quota_that_comes_late_is_raised_and_is_lowered(changing: Changing, unique: Unique) -> None:
    cluster, window_s, byte_rate = changing
    topic, client_id = unique("t"), unique("app")
    cluster.create_topic(topic)
    fill(cluster, topic, 100)
    reader = Reader(cluster, topic, client_id)
    while len(reader.came) < 100:
        reader.read(0.2)
    (state,) = reader.consumer.quota_state().values()
    assert state.limit is None
    cluster.set_quota(client_id=client_id, consumer_byte_rate=byte_rate)
    fill(cluster, topic, byte_rate // 1_000 * (2 * window_s + 20))
    # A whole window's worth comes at once; the next must wait until it is forgotten.
    reader.follow(byte_rate, window_s + 2)
    reader.follow(byte_rate * 3 // 2, 2)
    if window_s < 10:
        reader.follow(byte_rate, window_s + 1)
    reader.consumer.close()
