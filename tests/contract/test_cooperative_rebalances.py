"""Cooperative rebalances, plain clients beside ours, with a quota and without, on both brokers.

A second member comes and goes while the first one reads: only what moves is revoked, nobody hands over what is
another's, and every message is received once.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka import Producer, TopicPartition

import kclient_quota

Unique = Callable[[str], str]
PARTITIONS, EACH = 4, 250
QUOTA = 150_000
PATIENCE_S = 60.0
KINDS = {"plain": confluent_kafka.Consumer, "ours": kclient_quota.Consumer, "under a quota": kclient_quota.Consumer}


class Member:
    """A consumer that notes what it is told and what it receives.

    Attributes:
        told: of the group, in order.
        mine: partitions that it has.
        received: values.
        strays: partitions it has received of without having them.
    """

    def __init__(self, kind: str, conf: dict[str, Any], topic: str, *, by_hand: bool) -> None:
        self.told: list[tuple[str, int]] = []
        self.mine: set[int] = set()
        self.received: list[bytes] = []
        self.strays: list[int] = []
        self._by_hand = by_hand
        self.consumer: Any = KINDS[kind](conf)
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        if self._by_hand:
            consumer.incremental_assign(partitions)
        self._note("assign", partitions)
        self.mine |= {part.partition for part in partitions}

    def _revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        if self._by_hand:
            consumer.commit(asynchronous=False)
            consumer.incremental_unassign(partitions)
        self._note("revoke", partitions)
        self.mine -= {part.partition for part in partitions}

    def _note(self, what: str, partitions: list[TopicPartition]) -> None:
        if partitions:
            self.told.append((what, len(partitions)))

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is None:
            return
        assert message.error() is None, message.error()
        if message.partition() not in self.mine:
            self.strays.append(message.partition())
        self.received.append(message.value())


@contextmanager
def beside(member: Member) -> Iterator[None]:
    """A member that is polled in a thread of its own, and closed at the end."""
    ends, failures = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            while not ends.is_set():
                member.poll()
            member.consumer.close()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("by_hand", [False, True], ids=["assigned by itself", "assigned in the callback"])
@pytest.mark.parametrize("kind", KINDS)
def test_who_comes_and_goes_takes_and_gives_back_only_what_moves_and_nothing_is_received_twice(
    cluster: Any, unique: Unique, kind: str, by_hand: bool
) -> None:
    topic, app = unique("moves"), unique("reader")
    cluster.create_topic(topic, PARTITIONS)
    if kind == "under a quota":
        cluster.set_quota(client_id=app, consumer_byte_rate=QUOTA)
    conf = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": topic,
        "client.id": app,
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500,
    }
    first = Member(kind, conf, topic, by_hand=by_hand)
    until(first, lambda: len(first.mine) == PARTITIONS)
    fill(cluster, topic)
    until(first, lambda: len(first.received) > EACH // 4)
    second = Member(kind, conf, topic, by_hand=by_hand)
    with beside(second):
        until(first, lambda: len(first.mine) == PARTITIONS // 2 and len(second.mine) == PARTITIONS // 2)
        fill(cluster, topic)
        until(first, lambda: len(second.received) > EACH // 4)
    until(first, lambda: len(first.mine) == PARTITIONS and len(first.received) + len(second.received) >= whole())
    first.consumer.close()

    half = PARTITIONS // 2
    assert first.told == [("assign", PARTITIONS), ("revoke", half), ("assign", half), ("revoke", PARTITIONS)]
    assert second.told == [("assign", half), ("revoke", half)]
    assert first.strays == second.strays == []
    twice = {value: count for value, count in Counter(first.received + second.received).items() if count > 1}
    assert twice == {}
    assert len(set(first.received + second.received)) == whole()
    assert committed(conf, topic) == [2 * EACH] * PARTITIONS


def whole() -> int:
    return 2 * PARTITIONS * EACH


def until(member: Member, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, (member.told, member.mine, len(member.received))
        member.poll()


def fill(cluster: Any, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 16_384})
    for number in range(PARTITIONS * EACH):
        value = uuid4().bytes + b"x" * 484
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def committed(conf: dict[str, Any], topic: str) -> list[int]:
    consumer = confluent_kafka.Consumer(conf)
    found = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], PATIENCE_S)
    consumer.close()
    return [part.offset for part in found]
