"""Neighbours of the usual: numbers of other types, callables that are false, errors that are fatal; under a quota."""

import threading
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from kclient_quota import Producer, QuotaThrottledError
from kclient_quota.broker import EmbeddedBroker
from tests.consuming import consumer_of
from tests.index import Index

QUOTA = 20_000


class Only(IntEnum):
    """Of partitions."""

    FIRST = 0


class Reports(list[str]):
    """A list that is called: false as long as nothing has been."""

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.append(str(error))


@pytest.fixture
def limited(broker: EmbeddedBroker) -> EmbeddedBroker:
    broker.create_topic("t", 1)
    broker.set_quota(client_id="app", producer_byte_rate=QUOTA)
    return broker


def conf(broker: EmbeddedBroker, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", **more}


@pytest.mark.parametrize(
    "odd",
    [
        {"partition": Index(0)},
        {"partition": Only.FIRST},
        {"partition": False},
        {"partition": 0, "timestamp": Index(1_700_000_000_000)},
        {"partition": 0, "timestamp": -5},
        {"key": b"any"},
        {},
    ],
    ids=["index", "enum", "bool", "timestamp", "before-1970", "key", "neither"],
)
def test_what_differs_in_its_arguments_waits_and_keeps_its_order_in_the_only_partition(
    limited: EmbeddedBroker, odd: dict[str, Any]
) -> None:
    with Producer(conf(limited)) as producer:
        producer.produce("t", b"0000")
        assert producer.flush(60) == 0
        for number in range(1, 41):
            # one that is not held back overtakes those that are
            producer.produce("t", b"%04d" % number + b"x" * 996, **({"partition": 0} if number % 2 else odd))
    consumer = consumer_of(limited, "t", "reader")
    found = [consumer.poll(60) for _ in range(41)]
    assert [int((message.value() or b"")[:4]) for message in found if message is not None] == list(range(41))
    consumer.close()


def test_a_callable_that_is_false_is_called(limited: EmbeddedBroker) -> None:
    given, default, batch = Reports(), Reports(), Reports()
    with Producer(conf(limited, on_delivery=default)) as producer:
        for _ in range(3):
            producer.produce("t", b"x", on_delivery=given)
            producer.produce("t", b"x")
        assert producer.produce_batch("t", [{"value": b"x", "callback": batch}] * 3) == 3
        assert producer.flush(60) == 0
    assert (len(given), len(default), len(batch)) == (3, 3, 3)


def raised(call: Callable[..., Any], *args: Any) -> str | None:
    """What a call raises, if anything, and whether that is fatal."""
    try:
        call(*args)
    except KafkaException as error:
        return f"{error.args[0].name()} {error.args[0].fatal()}"
    return None


def fenced(make: Any, servers: dict[str, Any]) -> list[str | None]:
    """What a producer's calls raise after another one has taken its place, in a transaction of many messages."""
    producer = make({**servers, "transactional.id": "one"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("t", b"x")
    assert producer.flush(60) == 0
    successor = confluent_kafka.Producer({**servers, "transactional.id": "one"})
    successor.init_transactions(60)
    # A call that waits for the quota hears of it as poll() does. Between the moment it is fatal and the one its event
    # is served in, produce() says only that it is, with either of the two.
    calls = [*[partial(producer.produce, "t", b"x" * 500)] * 12, *[partial(producer.poll, 0.1)] * 600]
    first = next((heard for heard in map(raised, calls) if heard not in (None, "_FATAL False")), None)
    heard = [first, raised(producer.produce, "t", b"x"), raised(producer.commit_transaction, 60)]
    producer.purge()
    return heard


def test_a_fatal_error_is_the_application_s_to_hear(limited: EmbeddedBroker) -> None:
    found = [fenced(make, conf(limited)) for make in (confluent_kafka.Producer, Producer)]
    assert found == [["_FENCED True", "_FATAL False", "_FENCED True"]] * 2


@pytest.mark.parametrize("quota", [QUOTA, 1_000_000_000], ids=["used-up", "to-spare"])
def test_every_message_is_reported_that_other_threads_get_in_while_the_producer_is_closed(
    limited: EmbeddedBroker, quota: int
) -> None:
    limited.set_quota(client_id="app", producer_byte_rate=quota)
    producer = Producer(conf(limited, **{"max.block.ms": 500}))
    reports: list[KafkaError | None] = []
    taken: list[None] = []
    refused: list[str] = []

    def produce() -> None:
        while not refused:
            try:
                producer.produce("t", bytes(300), on_delivery=lambda error, _: reports.append(error))
                taken.append(None)
            except BufferError:
                producer.poll(0)
            except RuntimeError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(taken) < 100:
        producer.poll(0.001)
    assert producer.close()
    for thread in threads:
        thread.join(60)
    assert len(reports) == len(taken)
    assert set(refused) == {"Producer has been closed"}


def test_what_a_callback_sends_again_while_the_producer_is_closed_is_reported_too(limited: EmbeddedBroker) -> None:
    producer = Producer(conf(limited, **{"max.block.ms": 300}))
    first: list[KafkaError | None] = []
    again: list[KafkaError | None] = []

    def report(error: KafkaError | None, _message: Message) -> None:
        first.append(error)
        if error is not None:
            producer.produce("t", b"lost", on_delivery=lambda error, _: again.append(error))

    producer.produce("t", b"first")
    assert producer.flush(60) == 0
    limited.stop_broker(1)
    for _ in range(10):
        producer.produce("t", b"x", on_delivery=report)
    assert producer.close()
    assert len(first) == len(again) == 10
    assert all(first)
    assert all(again)


@pytest.mark.parametrize("block_ms", [60_000, 300], ids=["taken", "purged"])
def test_a_message_that_waits_while_a_callback_closes_the_producer_is_sent_and_reported_or_refused(
    limited: EmbeddedBroker, block_ms: int
) -> None:
    producer = Producer(conf(limited, **{"max.block.ms": block_ms, "quota.max.delay.ms": 100}))
    heard: list[KafkaError | None] = []
    is_closed: list[bool] = []
    produced = 0

    def report(error: KafkaError | None, _message: Message) -> None:
        heard.append(error)
        if len(heard) == 1:
            is_closed.append(producer.close())

    while not is_closed:
        try:
            producer.produce("t", bytes(1_000), on_delivery=report)  # nobody else serves the callback
            produced += 1
        except QuotaThrottledError:
            pass
    assert is_closed == [True]
    assert len(heard) == produced
