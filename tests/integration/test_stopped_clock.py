"""Clients and broker in a test that has stopped the clock, as freezegun and `mock.patch("time.monotonic")` do."""

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from kclient_quota import Producer
from kclient_quota.testing.kafka_broker import KafkaBroker
from tests.consuming import consumer_of

STOPPED_S = 1_700_000_000.0
QUOTA = 20_000
COUNT = 40


@contextmanager
def stopped(strangers: Collection[threading.Thread]) -> Iterator[None]:
    """Time stands still for whoever asks `time`, and nobody may sleep but the threads of others (PySpark has one)."""
    real_sleep = time.sleep

    def sleep(seconds: float) -> None:
        if threading.current_thread() not in strangers:
            raise AssertionError("slept")
        real_sleep(seconds)

    fakes: dict[str, Any] = {
        "time": lambda: STOPPED_S,
        "monotonic": lambda: STOPPED_S,
        "time_ns": lambda: int(STOPPED_S) * 10**9,
        "monotonic_ns": lambda: int(STOPPED_S) * 10**9,
        "sleep": sleep,
    }
    with mock.patch.multiple(time, **fakes):
        yield


@pytest.fixture(params=["from the beginning", "with the clients"])
def limited(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    """A broker with a quota, while the clock stands still."""
    strangers = set(threading.enumerate()) - {threading.current_thread()}
    if request.param == "from the beginning":
        with stopped(strangers), KafkaBroker(topics={"t": 1}) as broker:
            broker.set_quota(client_id="app", producer_byte_rate=QUOTA, consumer_byte_rate=QUOTA)
            yield broker
        return
    with KafkaBroker(topics={"t": 1}) as broker:
        broker.set_quota(client_id="app", producer_byte_rate=QUOTA, consumer_byte_rate=QUOTA)
        with stopped(strangers):
            yield broker


def test_a_producer_waits_for_its_quota_and_no_longer(limited: KafkaBroker) -> None:
    errors: list[Any] = []
    with Producer({"bootstrap.servers": limited.bootstrap_servers, "client.id": "app"}) as producer:
        for _ in range(COUNT):
            producer.produce("t", b"x" * 1_000, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(30) == 0
        assert producer.poll(0.05) == 0
    assert errors == [None] * COUNT
    times = [record.timestamp_ms for record in limited.records("t")]
    assert len(times) == COUNT
    assert min(times) > STOPPED_S * 1000, "a broker may refuse messages of another time"


def test_a_consumer_waits_for_its_quota_and_no_longer(limited: KafkaBroker) -> None:
    with Producer({"bootstrap.servers": limited.bootstrap_servers, "client.id": "fills"}) as producer:
        for _ in range(COUNT):
            producer.produce("t", b"x" * 1_000)
    consumer = consumer_of(limited, "t", "app")
    received = 0
    while received < COUNT:
        received += len(consumer.consume(COUNT, 0.5))
    assert consumer.poll(0.05) is None
    consumer.close()


def test_a_thread_of_others_goes_on_while_the_clock_stands_still() -> None:
    go, slept = threading.Event(), threading.Event()

    def run() -> None:
        go.wait(30)
        time.sleep(0.001)
        slept.set()

    stranger = threading.Thread(target=run)
    stranger.start()
    with stopped({stranger}):
        go.set()
        assert slept.wait(30)
        with pytest.raises(AssertionError, match="slept"):
            time.sleep(0.001)
    stranger.join()
