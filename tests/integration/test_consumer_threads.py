"""Threads that receive from one consumer: each message goes to one of them, once, as with plain confluent_kafka."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kclient_quota.broker import EmbeddedBroker
from tests.consuming import consumer_of
from tests.filling import fill

PARTITIONS = 4
COUNT = 8_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": PARTITIONS}) as broker:
        fill(broker, "t", COUNT, 100, PARTITIONS, size=100)
        yield broker


def polled(consumer: Any) -> list[Any]:
    message = consumer.poll(0.1)
    return [] if message is None else [message]


def consumed(consumer: Any) -> list[Any]:
    found: list[Any] = consumer.consume(20, 0.1)
    return found


@pytest.mark.parametrize("rate", [None, 1_000_000])
@pytest.mark.parametrize(
    "ways", [[polled] * 2, [polled] * 4, [consumed] * 4, [polled, consumed] * 3], ids=["2", "4", "consume", "mixed"]
)
def test_each_message_goes_to_one_thread_once(cluster: EmbeddedBroker, ways: list[Any], rate: int | None) -> None:
    group = f"threads-{time.monotonic_ns()}"
    if rate is not None:
        cluster.set_quota(client_id=group, consumer_byte_rate=rate)
    consumer = consumer_of(cluster, "t", group)
    found: list[tuple[int, int]] = []
    raised: list[BaseException] = []
    until = time.monotonic() + 40

    def receive(way: Any) -> None:
        try:
            while len(found) < COUNT and time.monotonic() < until:
                found.extend((message.partition(), message.offset()) for message in way(consumer))
        except BaseException as error:  # noqa: BLE001 - whatever it is
            raised.append(error)

    threads = [threading.Thread(target=receive, args=(way,)) for way in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not raised
    assert (len(found), len(set(found))) == (COUNT, COUNT)
    assert consumer.poll(0.5) is None
    consumer.close()
    successor = consumer_of(cluster, "t", group)
    assert successor.poll(1.5) is None  # all of it is committed
    successor.close()


def test_who_stays_in_the_group_does_not_wait_for_who_receives(cluster: EmbeddedBroker) -> None:
    """A producer's heartbeat, in a thread of its own."""
    consumer = consumer_of(cluster, "t", "waits", **{"auto.offset.reset": "latest"})
    thread = threading.Thread(target=consumer.poll, args=(5,))
    thread.start()
    time.sleep(0.3)
    began = time.monotonic()
    for _ in range(100):
        consumer.keep_alive()
    assert time.monotonic() - began < 1
    thread.join()
    consumer.close()
