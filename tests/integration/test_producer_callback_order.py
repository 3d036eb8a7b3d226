"""Callbacks of a partition come in the order of its messages, whoever has handed them to librdkafka.

Those of the sender are told by the sender, those of callers by librdkafka itself: what the latter have handed over
must not be told of while the sender has anything of before to tell.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients import limits
from kclient_quota.testing.proxies import Proxies

WAY_MS = 20
PARTITIONS = 2


class Told:
    """What callbacks have been told of, and how many of them came after one of a later message."""

    def __init__(self) -> None:
        self.count = self.late = 0
        self._last: dict[Any, int] = {}

    def __call__(self, error: object, message: Any) -> None:
        assert error is None
        self.count += 1
        partition, offset = message.partition(), message.offset()
        self.late += offset < self._last.get(partition, -1)
        self._last[partition] = max(offset, self._last.get(partition, -1))


@contextmanager
def polled(producer: Producer, *, apart: bool) -> Iterator[Callable[[float], object]]:
    """How to let time pass: where another thread polls, by no poll, for two have a batch's callbacks in turns."""
    if not apart:
        yield producer.poll
        return
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.is_set():
            producer.poll(0.1)

    poller = threading.Thread(target=poll)
    poller.start()
    yield time.sleep
    is_over.set()
    poller.join()


@pytest.mark.parametrize("apart", [False, True], ids=["its-own-poll", "another-thread-polls"])
def test_a_large_quota_that_is_used_in_bursts(apart: bool) -> None:
    told, is_straight, rng = Told(), set(), random.Random(7)
    with EmbeddedBroker(topics={"orders": PARTITIONS}) as cluster:
        cluster.set_quota(client_id="app", producer_byte_rate=20_000_000)
        with Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "app"}) as producer:
            until, number = time.monotonic() + 8, 0
            with polled(producer, apart=apart) as pause:
                while time.monotonic() < until:
                    for _ in range(rng.choice([1, 5, 50, 300, 1_000])):
                        is_straight.add(producer._kq_outbox.has_spare)
                        producer.produce("orders", b"x" * 1_000, on_delivery=told)
                        pause(0)
                        number += 1
                    pause(rng.choice([0.01, 0.1, 0.3]))
                assert producer.flush(30) == 0
    assert is_straight == {False, True}
    assert (told.count, told.late) == (number, 0)


@pytest.mark.parametrize("batch", [1, 2], ids=["one-by-one", "batches"])
@pytest.mark.parametrize("apart", [False, True], ids=["its-own-poll", "another-thread-polls"])
def test_a_quota_that_is_taken_away(apart: bool, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REFRESH_MS", 500)
    monkeypatch.setattr(limits, "MIN_REFRESH_MS", 100)
    told, left = Told(), 300
    with Proxies(1) as proxies, EmbeddedBroker(topics={"orders": PARTITIONS}) as cluster:
        proxies.stand_before(cluster)
        proxies.each(lambda proxy: proxy.delay(to_broker_ms=WAY_MS, to_client_ms=WAY_MS))
        cluster.set_quota(client_id="app", producer_byte_rate=200_000)
        with Producer({"bootstrap.servers": proxies.bootstrap_servers, "client.id": "app"}) as producer:
            began, number = time.monotonic(), 0
            with polled(producer, apart=apart) as pause:
                while left and time.monotonic() < began + 30:
                    if batch == 1:
                        producer.produce("orders", b"x" * 1_000, on_delivery=told)
                    else:
                        producer.produce_batch("orders", [{"value": b"x" * 1_000}] * batch, on_delivery=told)
                    pause(0)
                    number += batch
                    if number == 300:
                        cluster.set_quota(client_id="app", producer_byte_rate=None)
                    left -= producer._kq_outbox.is_open
                    time.sleep(0.004 * batch)
                assert producer.flush(30) == 0
    assert not left, "it has never been let go"
    assert (told.count, told.late) == (number, 0)
