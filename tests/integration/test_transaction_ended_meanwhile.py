"""A transaction that a rebalance callback ends while a call waits in it: what waited goes into no other one."""

from collections.abc import Callable

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.producer import Producer
from tests.integration.made_producers import Reports, made, over_produce, stuck
from tests.read_committed import committed

PRODUCE = 0
THROTTLE_MS = 3_000
Call = Callable[[Producer], object]


def produce_batch(producer: Producer) -> None:
    producer.produce_batch("orders", [{"value": b"batch" + b"x" * 1_000} for _ in range(100)])


def send_offsets(producer: Producer) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:9", "group.id": "g"})
    try:
        producer.send_offsets_to_transaction([TopicPartition("orders", 0, 1)], consumer.consumer_group_metadata())
    finally:
        consumer.close()


def abort(producer: Producer) -> None:
    producer.abort_transaction(60)


def abort_and_begin(producer: Producer) -> None:
    producer.abort_transaction(60)
    producer.begin_transaction()


def commit_and_begin(producer: Producer) -> None:
    producer.commit_transaction(60)
    producer.begin_transaction()


def throttled(broker: EmbeddedBroker, end: Call) -> Producer:
    """In a transaction, behind a throttle that lasts for a while; the first heartbeat meets a rebalance."""
    producer = made({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "transactional.id": "t"})
    producer.init_transactions(60)
    producer.begin_transaction()
    broker.throttle_next(PRODUCE, THROTTLE_MS)
    producer.produce("orders", b"first")
    assert producer.flush(60) == 0
    ends = [end]

    def beat() -> None:
        if ends:
            ends.pop()(producer)

    producer._kq_heartbeat = beat
    return producer


@pytest.mark.parametrize(
    ("call", "end"),
    [
        (over_produce, abort),
        (over_produce, abort_and_begin),
        (over_produce, commit_and_begin),
        (produce_batch, abort_and_begin),
        (send_offsets, abort_and_begin),
    ],
)
def test_what_waits_in_a_transaction_that_is_over_is_refused(broker: EmbeddedBroker, call: Call, end: Call) -> None:
    producer = throttled(broker, end)
    with pytest.raises(KafkaException, match="while this call waited") as caught:
        call(producer)
    error = caught.value.args[0]
    assert error.txn_requires_abort()
    assert not error.fatal()
    # What every transactional loop does then; where none is open it has nothing left to do.
    producer.abort_transaction(60)
    producer.begin_transaction()
    producer.produce("orders", b"next")
    producer.commit_transaction(60)
    assert committed(broker, "orders") == ([b"first"] if end is commit_and_begin else []) + [b"next"]


@pytest.mark.parametrize("call", [Producer.flush, Producer.commit_transaction])
def test_flush_and_commit_tell_that_it_was_not_this_one(broker: EmbeddedBroker, call: Call) -> None:
    producer = throttled(broker, abort_and_begin)
    stuck(producer, Reports())
    with pytest.raises(KafkaException, match="while this call waited"):
        call(producer)
    producer.abort_transaction(60)
    assert committed(broker, "orders") == []


def test_who_does_not_abort_is_told_again(broker: EmbeddedBroker) -> None:
    producer = throttled(broker, abort)
    for call in (over_produce, Producer.commit_transaction):
        with pytest.raises(KafkaException, match="while this call waited"):
            call(producer)
    producer.begin_transaction()
    producer.produce("orders", b"next")
    producer.commit_transaction(60)
    assert committed(broker, "orders") == [b"next"]
