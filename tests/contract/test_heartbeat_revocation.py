"""A rebalance callback that outlasts max.poll.interval.ms: what happens, and that it is told before, on both."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, TopicPartition

from kclient_quota.clients.consumer import Consumer

Unique = Callable[[str], str]


def test_a_revocation_that_takes_too_long_is_warned_of_and_then_loses_its_partitions(
    cluster: Any, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    topic, app = unique("orders"), unique("slow")
    cluster.create_topic(topic, 2)
    limits = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500, "max.poll.interval.ms": 6_000}
    group = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, **limits}
    mine: list[int] = []
    theirs: list[int] = []
    began: list[float] = []
    lost: list[float] = []
    refused: list[KafkaException] = []
    taken_over = threading.Event()

    def on_assign(_consumer: Any, partitions: list[TopicPartition]) -> None:
        mine.extend(part.partition for part in partitions)

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        began.append(time.time())
        # Work that ends only when the group has waited no longer.
        assert taken_over.wait(60)
        try:
            consumer.commit(
                offsets=[TopicPartition(topic, part.partition, 0) for part in partitions], asynchronous=False
            )
        except KafkaException as error:
            refused.append(error)

    def note(_consumer: Any, partitions: list[TopicPartition]) -> None:
        theirs[:] = [part.partition for part in partitions]
        if len(theirs) == 2:
            lost.append(time.time())
            taken_over.set()

    def poll_other() -> None:
        while not done.is_set():
            other.poll(0.2)

    slow = Consumer({**group, "client.id": app})
    slow.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
    poll_until(slow, lambda: len(mine) == 2)
    caplog.clear()
    other = confluent_kafka.Consumer(group)
    other.subscribe([topic], on_assign=note)
    done = threading.Event()
    thread = threading.Thread(target=poll_other)
    thread.start()
    try:
        poll_until(slow, lambda: bool(refused))
        (warned,) = [record for record in caplog.records if f"'{app}' has not polled" in record.getMessage()]
        assert warned.levelno == logging.WARNING
        # The latest sign of life may be as old as statistics are.
        assert began[0] + 2.0 < warned.created < lost[0]
        # It goes on, as a new member.
        mine.clear()
        poll_until(slow, lambda: len(mine) == 1)
    finally:
        done.set()
        thread.join(60)
        other.close()
        slow.close()


def poll_until(consumer: Consumer, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline
        consumer.poll(0.2)
