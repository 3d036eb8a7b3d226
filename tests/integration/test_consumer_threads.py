"""Threads that share one consumer: each message is received once, in order, as with plain confluent_kafka."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

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


@pytest.fixture
def quick_turns() -> Iterator[None]:
    """Threads take turns after every few lines, as they otherwise do on a busy machine only."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def committing(consumer: Any) -> None:
    with suppress(KafkaException):  # nothing new
        consumer.commit(asynchronous=True)


def asking(consumer: Any) -> None:
    consumer.position(consumer.assignment())


def pausing(consumer: Any) -> None:
    assigned = consumer.assignment()
    consumer.pause(assigned)
    consumer.resume(assigned)
    time.sleep(0.05)


@pytest.mark.parametrize("rate", [None, 1_000_000])
@pytest.mark.parametrize("way", [committing, asking, pausing])
@pytest.mark.usefixtures("quick_turns")
def test_what_one_thread_does_beside_one_that_polls_loses_and_doubles_nothing(
    cluster: EmbeddedBroker, way: Callable[[Any], None], rate: int | None
) -> None:
    group = f"beside-{time.monotonic_ns()}"
    if rate is not None:
        cluster.set_quota(client_id=group, consumer_byte_rate=rate)
    consumer = consumer_of(cluster, "t", group, **{"enable.auto.commit": False})
    found: dict[Any, list[Any]] = {number: [] for number in range(PARTITIONS)}  # none comes while they are counted
    raised: list[BaseException] = []
    until = time.monotonic() + 100  # who commits without a pause may have most of a busy machine

    def count() -> int:
        return sum(map(len, found.values()))

    def work_beside() -> None:
        try:
            while count() < COUNT and time.monotonic() < until:
                way(consumer)
        except BaseException as error:  # noqa: BLE001 - whatever it is
            raised.append(error)

    beside = threading.Thread(target=work_beside)
    beside.start()
    while count() < COUNT and time.monotonic() < until:
        message = consumer.poll(0.2)
        if message is not None:
            found[message.partition()].append(message.offset())
    beside.join()
    assert not raised
    assert found == {number: list(range(COUNT // PARTITIONS)) for number in range(PARTITIONS)}
    with suppress(KafkaException):  # nothing new
        consumer.commit(asynchronous=False)
    committed = consumer.committed([TopicPartition("t", number) for number in range(PARTITIONS)])
    assert [part.offset for part in committed] == [COUNT // PARTITIONS] * PARTITIONS
    consumer.close()


def test_what_another_thread_asks_for_does_not_wait_until_a_poll_ends(cluster: EmbeddedBroker) -> None:
    """With plain confluent_kafka it does."""
    consumer = consumer_of(cluster, "t", "asked", **{"auto.offset.reset": "latest"})
    while not (assigned := consumer.assignment()):
        consumer.poll(0.1)
    thread = threading.Thread(target=consumer.poll, args=(4,))
    thread.start()
    time.sleep(0.5)
    began = time.monotonic()
    consumer.pause(assigned)
    consumer.position(assigned)
    assert time.monotonic() - began < 1
    assert thread.is_alive()
    thread.join()
    consumer.close()


def test_a_close_ends_what_other_threads_do_and_waits_for_none(cluster: EmbeddedBroker) -> None:
    """Rebalance callbacks run within the close, and want what others are about to change."""
    for number in range(8):
        group = f"closing-{number}-{time.monotonic_ns()}"
        cluster.set_quota(client_id=group, consumer_byte_rate=1_000_000)
        told: list[int] = []
        conf = {"on_commit": lambda *_, told=told: told.append(1)}
        consumer = consumer_of(cluster, "t", group, **conf)
        others = consumer_of(cluster, "t", group) if number % 2 else None  # has the group rebalance meanwhile
        unheard: list[BaseException] = []

        def repeat(way: Callable[[Any], Any], consumer: Any = consumer, unheard: list[Any] = unheard) -> None:
            try:
                while True:
                    way(consumer)
            except RuntimeError as error:
                if "closed" not in str(error).lower():
                    unheard.append(error)
            except BaseException as error:  # noqa: BLE001 - whatever it is
                unheard.append(error)

        ways = (polled, consumed, committing, asking, pausing)
        threads = [threading.Thread(target=repeat, args=(way,), daemon=True) for way in ways]
        for thread in threads:
            thread.start()
        time.sleep(0.1 * number)
        closers = [threading.Thread(target=consumer.close, daemon=True) for _ in range(2)]
        for thread in closers:
            thread.start()
        for thread in closers + threads:
            thread.join(20)
            assert not thread.is_alive()
        if others is not None:
            others.close()
        assert not unheard
