"""Partitions that go away in the midst of a batch: what librdkafka had put into it before belongs to others.

librdkafka serves a rebalance between two messages of one `consume`, and returns the earlier ones all the same. Here the
callback is called right after them, which is the same to everything that comes later.
"""

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.consumer import Consumer

EACH = 200


def _then(consumer: Consumer, call: Callable[[], Any]) -> None:
    """Have the next batch followed by this."""
    pull = consumer._pull

    def pulled(count: int, timeout_s: float) -> list[confluent_kafka.Message]:
        messages = pull(count, timeout_s)
        if len(messages) > 1:
            consumer._pull = pull  # type: ignore[method-assign]
            call()
        return messages

    consumer._pull = pulled  # type: ignore[method-assign]


@pytest.mark.parametrize("again", [False, True], ids=["gone", "begun anew"])
def test_nothing_comes_twice(again: bool) -> None:
    first_part, second_part = TopicPartition("orders", 0, 0), TopicPartition("orders", 1, 0)
    with EmbeddedBroker(topics={"orders": 2}) as broker:
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        filler = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(2 * EACH):
            filler.produce("orders", b"x" * 100, partition=number % 2)
        assert filler.flush(60) == 0
        consumer = Consumer({**conf, "consumer_byte_rate": 50_000_000})
        consumer.incremental_assign([first_part, second_part])
        seen: dict[int, list[int]] = {0: [], 1: []}
        done = []

        def lose() -> None:
            consumer.incremental_unassign([first_part])
            done.append(len(seen[0]))
            if again:
                consumer.incremental_assign([TopicPartition("orders", 0, len(seen[0]))])

        _then(consumer, lose)
        until = time.monotonic() + 60
        while len(seen[1]) < EACH or (again and len(seen[0]) < EACH):
            assert time.monotonic() < until, {number: len(found) for number, found in seen.items()}
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None
                seen[message.partition() or 0].append(message.offset() or 0)
        consumer.close()
    assert done
    assert seen[1] == list(range(EACH))
    assert seen[0] == list(range(EACH if again else done[0]))
