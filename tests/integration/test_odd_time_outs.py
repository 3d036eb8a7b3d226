"""Time-outs and counts that are numbers without being Python's own, and those that are no time: as confluent_kafka."""

import sys
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from kclient_quota import Consumer, Producer
from kclient_quota.broker import EmbeddedBroker
from tests.consuming import consumer_of
from tests.index import Index

ENDLESS = {"inf": float("inf"), "nan": float("nan"), "negative": -0.5, "the largest": sys.float_info.max}
QUOTA = 20_000


@pytest.fixture
def limited(broker: EmbeddedBroker) -> EmbeddedBroker:
    broker.create_topic("t", 1)
    broker.set_quota(client_id="app", producer_byte_rate=QUOTA, consumer_byte_rate=QUOTA)
    return broker


def producer_of(broker: EmbeddedBroker, **conf: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", **conf})


@pytest.mark.parametrize("timeout", [*ENDLESS.values(), Decimal(60), Index(60)], ids=[*ENDLESS, "Decimal", "an index"])
def test_flush_waits_for_what_the_quota_holds_back(limited: EmbeddedBroker, timeout: Any) -> None:
    delivered: list[Any] = []
    with producer_of(limited) as producer:
        for _ in range(20):
            producer.produce("t", b"x" * 1_000, on_delivery=lambda error, _: delivered.append(error))
        assert producer.flush(timeout) == 0
        assert delivered == [None] * 20


@pytest.mark.parametrize("timeout", [*ENDLESS.values(), Decimal(60)], ids=[*ENDLESS, "Decimal"])
def test_a_producer_polls_until_there_is_a_report(limited: EmbeddedBroker, timeout: Any) -> None:
    with producer_of(limited) as producer:
        producer.produce("t", b"x" * 1_000)
        assert producer.poll(timeout) == 1


@pytest.mark.parametrize("timeout", [2_147_483.7, 10**300], ids=["more milliseconds than C counts", "a long int"])
def test_a_transaction_ends_within_any_time(limited: EmbeddedBroker, timeout: float) -> None:
    producer = producer_of(limited, **{"transactional.id": "t"})
    producer.init_transactions()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("t", b"x")
        end(timeout)
    assert producer.close()


def test_a_report_counts_once_though_the_message_is_handed_over_while_the_application_is_within_librdkafka(
    limited: EmbeddedBroker,
) -> None:
    with producer_of(limited) as producer:
        outbox, start, poll_direct = producer._kq_outbox, producer._kq_outbox.start, producer._kq_poll_direct

        def until_handed_over(*args: Any, **more: Any) -> int:
            start()
            producer._kq_poll_direct = poll_direct  # type: ignore[method-assign]
            served = 0
            while not served and not outbox.finished:
                served = poll_direct(*args, **more)
            return served

        outbox.start = int  # the sender takes its time
        producer._kq_poll_direct = until_handed_over  # type: ignore[method-assign]
        producer.produce("t", b"x" * 1_000)
        assert producer.poll(60) + producer.poll(0.5) == 1


@pytest.mark.parametrize("conf", [{}, {"delivery.report.only.error": True}], ids=["all", "errors only"])
def test_poll_returns_for_a_report_that_nobody_wants_to_hear_of(
    limited: EmbeddedBroker, conf: dict[str, object]
) -> None:
    """As many do after each message, without a callback."""
    with producer_of(limited, **conf) as producer:
        for _ in range(3):
            producer.produce("t", b"x" * 300)
            assert producer.poll(60) >= 1
        producer.produce("t", b"x")
        assert producer.flush(60) == 0
        assert producer.poll(0) == 0


RECEIVE: dict[str, Callable[[Consumer, Any], Any]] = {
    "poll": lambda consumer, timeout: consumer.poll(timeout),
    "consume": lambda consumer, timeout: consumer.consume(1, timeout)[0],
    "consume an index": lambda consumer, timeout: consumer.consume(Index(1), timeout)[0],
}


@pytest.mark.parametrize("receive", RECEIVE.values(), ids=RECEIVE)
@pytest.mark.parametrize("timeout", [float("nan"), Decimal(60)], ids=["nan", "Decimal"])
def test_a_consumer_waits_at_its_quota_s_pace(
    limited: EmbeddedBroker, receive: Callable[[Consumer, Any], Any], timeout: Any
) -> None:
    # batches of a fifth of a second: what has come of longer ones is handed over at once
    with Producer({"bootstrap.servers": limited.bootstrap_servers, "batch.num.messages": 4}) as producer:
        for number in range(40):
            producer.produce("t", b"%04d" % number + b"x" * 996)
    consumer = consumer_of(limited, "t", "app")
    first = receive(consumer, timeout)
    began = time.monotonic()
    others = [receive(consumer, timeout) for _ in range(20)]
    assert [int(message.value()[:4]) for message in (first, *others)] == list(range(21))
    assert time.monotonic() - began > 0.7 * 20_000 / QUOTA
    consumer.close()


def test_threads_may_close_a_producer_at_once(limited: EmbeddedBroker) -> None:
    delivered: list[Any] = []
    found: list[Any] = []
    producer = producer_of(limited)
    for _ in range(20):
        producer.produce("t", b"x" * 1_000, on_delivery=lambda error, _: delivered.append(error))

    def close() -> None:
        try:
            found.append(producer.close())
        except RuntimeError as error:
            found.append(error)

    threads = [threading.Thread(target=close) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (found, delivered) == ([True] * 3, [None] * 20)


def test_a_callback_may_close_what_is_being_closed(limited: EmbeddedBroker) -> None:
    """As a signal's handler may, which runs inside the application's calls as a callback does."""
    producer = producer_of(limited)
    found: list[Any] = []
    handlers = [producer.close]

    def beat() -> None:
        if handlers:
            found.append(handlers.pop()())

    for _ in range(10):
        producer.produce("t", b"x" * 1_000)
    producer._kq_heartbeat = beat
    assert producer.close()
    assert found == [True]


def test_without_end_is_a_time_out_of_doors_that_are_ours_alone(limited: EmbeddedBroker) -> None:
    forever = ENDLESS["inf"]
    with producer_of(limited) as producer, producer.blocking_at_most(forever) as patient:
        assert patient.client_instance_id(forever)
        patient.produce("t", b"x" * 1_000)
