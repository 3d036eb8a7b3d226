"""Partitions that go away in the midst of a batch: what librdkafka had put into it before belongs to others.

librdkafka serves a rebalance between two messages of one `consume`, and returns the earlier ones all the same. Here the
callback is called right after them, which is the same to everything that comes later.
"""

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.consumer import Consumer
from kclient_quota.pacing.fetching.fetch_sizes import sizes_for

EACH = 200


def _then(consumer: Consumer, call: Callable[[], Any]) -> None:
    """Have the next batch followed by this."""
    pull = consumer._kq_pull

    def pulled(count: int, timeout_s: float) -> list[confluent_kafka.Message]:
        messages = pull(count, timeout_s)
        if len(messages) > 1:
            consumer._kq_pull = pull  # type: ignore[method-assign]
            call()
        return messages

    consumer._kq_pull = pulled  # type: ignore[method-assign]


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


@pytest.mark.parametrize("how", ["ahead", "late quota"])
@pytest.mark.parametrize("call", ["poll", "consume"])
def test_who_was_silent_for_too_long_is_told_first_and_gets_nothing_that_others_may_have(how: str, call: str) -> None:
    with EmbeddedBroker(topics={"orders": 1}, properties={"group.min.session.timeout.ms": "100"}) as broker:
        filler = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
        for _ in range(2 * EACH):
            filler.produce("orders", b"x" * 100)
        assert filler.flush(60) == 0
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 1_500,
                "max.poll.interval.ms": 1_500,
                "heartbeat.interval.ms": 200,
            }
        )
        consumer.subscribe(["orders"])
        until = time.monotonic() + 60
        while not consumer._kq_held.there:
            assert time.monotonic() < until
            consumer.poll(0.1)
        if how == "late quota":
            consumer._kq_change_sizes(sizes_for(1_000_000))
            assert consumer._kq_held.there > 100
        time.sleep(2.5)
        told: list[confluent_kafka.Message] = []
        while len(told) < 2:
            assert time.monotonic() < until
            message = consumer.poll(0.1) if call == "poll" else next(iter(consumer.consume(1, 0.1)), None)
            if message is not None:
                told.append(message)
        error = told[0].error()
        assert error is not None
        assert error.code() == KafkaError._MAX_POLL_EXCEEDED
        # Nothing was committed: the group begins at the beginning.
        assert (told[1].error(), told[1].offset()) == (None, 0)
        consumer.close()


@pytest.mark.parametrize("meanwhile", [True, False], ids=["assigned anew meanwhile", "still to be taken away"])
def test_what_was_assigned_anew_is_held_back_for_no_silence_of_before(meanwhile: bool) -> None:
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    silent = confluent_kafka.Message(error=KafkaError(KafkaError._MAX_POLL_EXCEEDED))
    consumer._kq_held.add([confluent_kafka.Message(error=KafkaError(KafkaError._ALL_BROKERS_DOWN))])
    if meanwhile:
        consumer._kq_held.gone.add(("orders", 0))
    consumer._kq_hold([silent])
    assert consumer._kq_was_silent is not meanwhile
    consumer.close()
