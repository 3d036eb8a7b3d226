"""Automatic commits go on while an application works without calling, and never pass what it has received."""

import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients import PlainConsumer
from kclient_quota.clients.consumer import Consumer

MESSAGES = 20_000
PARTITIONS = 2
WITHIN_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as cluster:
        cluster.create_topic("work", PARTITIONS)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(MESSAGES):
            producer.produce("work", b"x" * 100, partition=number % PARTITIONS)
            producer.poll(0)
        assert producer.flush(60) == 0
        yield cluster


def consumer_of(broker: EmbeddedBroker, group: str, cls: type = Consumer, **conf: Any) -> Any:
    return cls(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            "enable.metrics.push": False,
            **conf,
        }
    )


def committed(broker: EmbeddedBroker, group: str) -> int:
    """How many messages the group would not read again."""
    asking = consumer_of(broker, group, PlainConsumer)
    try:
        parts = asking.committed([TopicPartition("work", number) for number in range(PARTITIONS)], 60)
    finally:
        asking.close()
    return sum(max(0, part.offset) for part in parts)


def receive(consumer: Any, count: int) -> None:
    deadline = time.monotonic() + WITHIN_S
    while count:
        assert time.monotonic() < deadline, f"{count} messages did not come"
        if (message := consumer.poll(1.0)) is not None:
            assert message.error() is None
            count -= 1


@pytest.mark.parametrize("cls", [Consumer, PlainConsumer], ids=["ours", "plain"])
@pytest.mark.parametrize("limit", [{}, {"consumer_byte_rate": 1_000_000}], ids=["unlimited", "limited"])
@pytest.mark.parametrize("how", ["subscribe", "assign"])
def test_what_was_received_is_committed_while_the_application_works(
    broker: EmbeddedBroker, cls: type, limit: dict[str, int], how: str
) -> None:
    """The plain consumer's rows say that this is what an application may rely upon."""
    group = f"works-{cls.__module__}-{bool(limit)}-{how}"
    consumer = consumer_of(broker, group, cls, **(limit if cls is Consumer else {}))
    if how == "subscribe":
        consumer.subscribe(["work"])
    else:
        consumer.assign([TopicPartition("work", number, 0) for number in range(PARTITIONS)])
    receive(consumer, 777)
    deadline = time.monotonic() + WITHIN_S
    while (found := committed(broker, group)) != 777:
        assert found < 777
        assert time.monotonic() < deadline, f"{found} of 777 were committed while nobody called"
        time.sleep(0.05)
    consumer.close()
    assert committed(broker, group) == 777


def test_a_consumer_without_automatic_commits_stores_nothing_beside(broker: EmbeddedBroker) -> None:
    consumer = consumer_of(broker, "by-hand", **{"enable.auto.commit": False})
    consumer.assign([TopicPartition("work", 0, 0)])
    before = threading.active_count()
    receive(consumer, 10)
    consumer._kq_store_from_beside()
    assert consumer._kq_stored == {}
    assert threading.active_count() == before
    consumer.close()


FORKS = """
import json, os, sys, time
from kclient_quota import Consumer

servers = sys.argv[1]

def consumer_of(group):
    conf = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100, "enable.metrics.push": False}
    consumer = Consumer(conf)
    consumer.subscribe(["work"])
    while consumer.poll(1.0) is None:
        pass
    return consumer

parents = consumer_of("parents")
child = os.fork()
if child == 0:
    mine = consumer_of("childs")
    time.sleep(2.0)  # works; the parent's consumer is none of its business
    os._exit(0)
_, status = os.waitpid(child, 0)
print(status)
parents.close()
"""


def test_what_a_forked_child_received_is_committed_while_it_works(broker: EmbeddedBroker) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS, broker.bootstrap_servers], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "0", done.stderr
    assert committed(broker, "childs") == 1
    assert committed(broker, "parents") == 1


def by_poll(consumer: Any) -> list[Any]:
    message = consumer.poll(0.1)
    return [] if message is None else [message]


def by_consume(consumer: Any) -> list[Any]:
    return list(consumer.consume(7, 0.1))


def with_pauses(consumer: Any) -> list[Any]:
    part = TopicPartition("work", 0)
    consumer.pause([part])
    messages = by_consume(consumer)
    consumer.resume([part])
    return messages + by_poll(consumer)


@pytest.mark.parametrize("take", [by_poll, by_consume, with_pauses])
@pytest.mark.parametrize("limit", [{}, {"consumer_byte_rate": 2_000_000}], ids=["unlimited", "limited"])
def test_nothing_is_stored_beside_that_was_not_received(
    broker: EmbeddedBroker, take: Callable[[Any], list[Any]], limit: dict[str, int]
) -> None:
    """Another thread stores as often as it can, and threads take turns as often as they can."""
    consumer = consumer_of(broker, f"ahead-{take.__name__}-{bool(limit)}", **limit)
    received: dict[int, int] = defaultdict(int)
    stored: list[int] = []
    ahead: list[str] = []
    store = consumer._kq_store

    def checked(positions: list[TopicPartition]) -> None:
        for part in positions:
            # a call that has just returned may not have been counted: two of at most seven messages
            if part.offset > received[part.partition] + 14:
                ahead.append(f"{part.offset} stored of {part.partition}, {received[part.partition]} received")
        stored.append(sum(max(0, part.offset) for part in positions))
        store(positions)

    consumer._kq_store = checked
    is_over = threading.Event()

    def store_all_the_time() -> None:
        while not is_over.is_set():
            consumer._kq_store_from_beside()

    beside = threading.Thread(target=store_all_the_time)
    consumer.assign([TopicPartition("work", number, 0) for number in range(PARTITIONS)])
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    beside.start()
    try:
        deadline = time.monotonic() + WITHIN_S
        while sum(received.values()) < MESSAGES // 2 and not ahead:
            assert time.monotonic() < deadline, "too few messages came"
            for message in take(consumer):
                received[message.partition()] = message.offset() + 1
            time.sleep(1e-5)
    finally:
        is_over.set()
        beside.join()
        sys.setswitchinterval(interval)
    assert not ahead
    assert len(stored) > 10
    consumer.close()


def test_nothing_is_stored_beside_while_messages_are_being_taken(broker: EmbeddedBroker) -> None:
    """The application's thread takes five messages after the other one has begun to look; they are not held yet."""
    consumer = consumer_of(broker, "being-taken")
    consumer.assign([TopicPartition("work", 0, 0)])
    receive(consumer, 3)
    stored: list[TopicPartition] = []
    consumer._kq_store = stored.extend
    positions = consumer._kq_positions
    taken: list[Any] = []

    def meanwhile(partitions: list[TopicPartition]) -> Any:
        consumer._kq_doubt(5)
        taken.extend(consumer._kq_pull(5, 60.0))
        return positions(partitions)

    consumer._kq_positions = meanwhile
    consumer._kq_store_from_beside()
    consumer._kq_positions = positions
    assert [message.offset() for message in taken] != []
    assert stored == []
    consumer._kq_hold(taken)
    consumer._kq_store_from_beside()
    assert [part.offset for part in stored] == [3]
    del consumer._kq_store
    consumer.close()


def test_who_waits_for_the_next_message_commits_as_often_as_a_plain_one() -> None:
    """It was once a second: what had come since was read again by who took over."""
    commits: dict[str, int] = {}
    with EmbeddedBroker(topics={"work": 1}) as broker:

        def read(cls: type) -> None:
            told: set[int] = set()
            conf = {"on_commit": lambda _, parts: told.update(part.offset for part in parts)}
            consumer = consumer_of(broker, cls.__module__, cls, **conf)
            consumer.subscribe(["work"])
            until = time.monotonic() + 4.0
            while time.monotonic() < until:
                consumer.poll(1.0)
            commits[cls.__module__] = len(told)
            consumer.close()

        readers = [threading.Thread(target=read, args=(cls,)) for cls in (Consumer, PlainConsumer)]
        for reader in readers:
            reader.start()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        while any(reader.is_alive() for reader in readers):
            producer.produce("work", b"x" * 100)
            producer.poll(0.01)
            time.sleep(0.01)
    ours, plain = commits[Consumer.__module__], commits[PlainConsumer.__module__]
    assert ours >= plain / 2, commits
