"""A member joins while a transactional produce() waits, and the revocation aborts within it; on both brokers."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, TopicPartition

from kclient_quota.clients.consumer import Consumer
from kclient_quota.clients.producer import Producer
from tests.read_committed import committed

Unique = Callable[[str], str]
GROUP = {"session.timeout.ms": 15_000, "heartbeat.interval.ms": 500, "max.poll.interval.ms": 15_000}
PAD = b"x" * 1_000


@pytest.mark.parametrize("anew", [False, True], ids=["abort", "abort-and-begin"])
def test_a_revocation_aborts_the_transaction_in_which_produce_waits(cluster: Any, unique: Unique, anew: bool) -> None:
    topic, app = unique("orders"), unique("app")
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    cluster.create_topic(topic, 2)
    cluster.create_topic(f"{topic}-copy", 1)
    cluster.set_quota(client_id=app, producer_byte_rate=4_000)
    moves: list[tuple[str, int, int]] = []

    def on_assign(_consumer: Any, partitions: list[TopicPartition]) -> None:
        moves.append(("assign", len(partitions), waiting(producer)))

    def on_revoke(_consumer: Any, partitions: list[TopicPartition]) -> None:
        if len(moves) == 1:
            producer.abort_transaction(60)
            if anew:
                producer.begin_transaction()
        moves.append(("revoke", len(partitions), waiting(producer)))

    consumer = Consumer({**servers, **GROUP, "group.id": topic, "enable.metrics.push": False})
    conf = {"client.id": app, "transactional.id": app, "enable.metrics.push": False}
    producer = Producer({**servers, **conf}, heartbeat=consumer)
    producer.init_transactions(60)
    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
    deadline = time.monotonic() + 60
    while not moves and time.monotonic() < deadline:
        assert consumer.poll(0.1) is None
    with other_member({**servers, **GROUP, "group.id": topic}, topic):
        error = over_produce(producer, f"{topic}-copy").args[0]
    assert error.txn_requires_abort()
    assert "while this call waited" in error.str()
    # The revocation came within the produce() that waited.
    assert moves[:2] == [("assign", 2, 0), ("revoke", 2, 1)]
    # What every transactional loop does.
    producer.abort_transaction(60)
    producer.begin_transaction()
    for number in range(3):
        producer.produce(f"{topic}-copy", b"kept %d" % number)
    producer.commit_transaction(60)
    producer.close()
    consumer.close()
    assert committed(cluster, f"{topic}-copy") == [b"kept 0", b"kept 1", b"kept 2"]


def waiting(producer: Producer) -> int:
    return sum(state.waiting for state in producer.quota_state().values())


def over_produce(producer: Producer, topic: str) -> KafkaException:
    """Produce until it is refused."""
    producer.begin_transaction()
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            producer.produce(topic, PAD)
    except KafkaException as error:
        return error
    raise AssertionError("no rebalance in time")


@contextmanager
def other_member(conf: dict[str, Any], topic: str) -> Iterator[None]:
    done = threading.Event()

    def poll() -> None:
        member = confluent_kafka.Consumer(conf)
        member.subscribe([topic])
        while not done.is_set():
            member.poll(0.1)
        member.close()

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(60)
