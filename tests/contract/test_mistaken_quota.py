"""A quota far too low, set by mistake and undone at once: its throttles of hours keep nobody for so long."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from kclient_quota import Consumer, Producer
from kclient_quota.clients import limits
from tests.contract.scenes import Scenes, named

pytestmark = pytest.mark.timeout(120)
MISTAKE = 100
"""Bytes a second: what was sent in a window before stands for minutes."""
LONG_S = 20.0
GOES_ON_S = 25.0
"""A window of ten seconds, twice `socket.timeout.ms`, and a busy machine."""
MANY = 40
"""More than were under way; a second's worth or two."""
CONF = {"socket.timeout.ms": 5_000, "log_level": 2}
PAYLOAD = os.urandom(1_000)


@pytest.fixture(scope="module", autouse=True)
def asking_often() -> Iterator[None]:
    """Every second in place of every minute: a limit that has been seen is followed until another one is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "REFRESH_MS", 1_000)
        patch.setattr(limits, "MIN_REFRESH_MS", 200)
        yield


class Mistake:
    """A quota that is undone, for what it was before, as soon as it has brought a throttle of minutes, or soon."""

    def __init__(self, cluster: Any, app: str, byte_rates: dict[str, int]) -> None:
        self._cluster, self._app, self._byte_rates = cluster, app, byte_rates
        self._is_told = threading.Event()
        self.at: list[float] = []
        cluster.set_quota(client_id=app, **byte_rates)

    def throttled(self, event: Any) -> None:
        """What librdkafka says of throttles, for hours or not."""
        if event.throttle_time > LONG_S:
            self._is_told.set()

    def make(self, go_on: Callable[[], object]) -> float:
        """Set it, and undo it; after how many seconds so many have come again."""
        self._until(go_on, lambda: len(self.at) > MANY)
        self._cluster.set_quota(client_id=self._app, **dict.fromkeys(self._byte_rates, MISTAKE))
        # Who knows the limit may be quick to follow it, and meet no throttle: fetches wait for a limit that they fit.
        self._until(go_on, self._is_told.is_set, within_s=15, asserts=False)
        self._cluster.set_quota(client_id=self._app, **self._byte_rates)
        undone = time.monotonic()
        there = len(self.at)
        self._until(go_on, lambda: len(self.at) > there + MANY)
        return self.at[-1] - undone

    @staticmethod
    def _until(
        go_on: Callable[[], object], is_over: Callable[[], bool], within_s: float = 40, *, asserts: bool = True
    ) -> None:
        deadline = time.monotonic() + within_s
        while not is_over() and time.monotonic() < deadline:
            go_on()
        assert is_over() or not asserts


def sends(cluster: Any, source: str) -> None:
    topic, app = named("orders"), named("app")
    cluster.create_topic(topic, 1)
    mistake = Mistake(cluster, app, {"producer_byte_rate": 30_000})
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": app, "quota.limit.source": source, **CONF}
    producer = Producer({**conf, "throttle_cb": mistake.throttled, "quota.backoff": "raise"})

    def go_on() -> None:
        with suppress(BufferError):
            producer.produce(topic, PAYLOAD, on_delivery=lambda error, _: error or mistake.at.append(time.monotonic()))
        producer.poll(0.04)

    assert mistake.make(go_on) < GOES_ON_S
    producer.purge()
    producer.close()


def reads(cluster: Any, source: str) -> None:
    topic, app = named("orders"), named("app")
    cluster.create_topic(topic, 1)
    filling = Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.num.messages": 20, "log_level": 2})
    for _ in range(4_000):
        filling.produce(topic, PAYLOAD)
    assert filling.flush(60) == 0
    mistake = Mistake(cluster, app, {"consumer_byte_rate": 50_000})
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": app, "quota.limit.source": source, **CONF}
    group = {"group.id": app, "auto.offset.reset": "earliest", "throttle_cb": mistake.throttled}
    consumer = Consumer({**conf, **group})
    consumer.subscribe([topic])

    def go_on() -> None:
        mistake.at += [time.monotonic() for message in consumer.consume(10, 0.1) if message.error() is None]

    assert mistake.make(go_on) < GOES_ON_S
    consumer.close()
    filling.close()


def sends_and_knows(cluster: Any) -> None:
    sends(cluster, "auto")


def sends_and_learns(cluster: Any) -> None:
    sends(cluster, "learned")


def reads_and_knows(cluster: Any) -> None:
    reads(cluster, "auto")


def reads_and_learns(cluster: Any) -> None:
    reads(cluster, "learned")


SCENES = [sends_and_knows, sends_and_learns, reads_and_knows, reads_and_learns]


@pytest.mark.parametrize("scene", SCENES)
def test_it_goes_on_within_a_window_and_another_connection(scenes: Scenes, scene: Callable[[Any], None]) -> None:
    scenes(scene)
