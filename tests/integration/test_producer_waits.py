"""What a producer says of its waiting, how it is bounded, and what a sender that has yet to begin does not miss."""

import asyncio
import logging
import threading
import time
from _thread import start_new_thread
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaException

from kclient_quota import AIOConsumer, AIOProducer, Consumer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.producer import Producer
from kclient_quota.clients.producer import producer as module
from kclient_quota.errors import QuotaThrottledError
from tests.integration.made_producers import Reports, made, over_produce

SLOW = 5_000
HOUR_MS = 3_600_000


def slow(broker: EmbeddedBroker, **more: Any) -> Producer:
    """A producer that may send five messages a second."""
    servers = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "linger.ms": 0}
    return made({**servers, "producer_byte_rate": SLOW, **more})


def produce_until_it_has_waited(producer: Producer) -> None:
    before, end = producer.metric("quota-wait-time-total"), time.monotonic() + 60
    while producer.metric("quota-wait-time-total") < before + 100:
        assert time.monotonic() < end
        producer.produce("orders", b"x" * 1_000)


def test_waiting_in_an_event_loop_is_warned_of_once_and_elsewhere_not(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    producer = slow(broker)
    produce_until_it_has_waited(producer)
    assert "event loop" not in caplog.text

    async def careless() -> None:
        produce_until_it_has_waited(producer)

    asyncio.run(careless())
    (warned,) = [record for record in caplog.records if "event loop" in record.getMessage()]
    assert warned.levelno == logging.WARNING
    assert "kclient_quota.AIOProducer" in warned.getMessage()
    assert warned.client_id == "app"
    producer.purge()


def test_a_long_wait_is_told_when_it_is_long_and_when_it_ends(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kclient_quota")

    class EnoughError(Exception):
        pass

    began: list[float] = []

    def beat() -> None:
        began.append(time.monotonic())
        if "goes on waiting" in caplog.text and began[-1] - began[0] > 1.6:
            raise EnoughError

    producer = slow(broker)
    broker.throttle_next(0, HOUR_MS)
    producer.produce("orders", b"first")
    assert producer.flush(60) == 0
    caplog.clear()
    producer._kq_heartbeat = beat
    with pytest.raises(EnoughError):
        over_produce(producer)
    producer._kq_heartbeat = None
    told = [
        record for record in caplog.records if "of waiting" in record.getMessage() or "waited" in record.getMessage()
    ]
    assert [record.levelno for record in told] == [logging.INFO, logging.INFO]
    assert "goes on waiting" in told[0].getMessage()
    assert 1_000 <= told[0].waited_ms < told[1].waited_ms
    assert told[1].waited_ms >= 1_500


def test_a_metric_is_found_by_its_name(broker: EmbeddedBroker) -> None:
    producer = slow(broker)
    assert producer.metric("quota-wait-time-total") == 0
    assert producer.metric("produce-throttle-time-avg") == 0
    produce_until_it_has_waited(producer)
    assert producer.metric("quota-wait-time-total") > 0
    assert producer.metric("quota-wait-time-max") >= producer.metric("quota-wait-time-avg") > 0
    with pytest.raises(KeyError, match="no-such-metric"):
        producer.metric("no-such-metric")
    producer.purge()


async def test_consumers_and_the_asyncio_pair_have_it_too(broker: EmbeddedBroker) -> None:
    conf = {"bootstrap.servers": broker.bootstrap_servers}
    group = {**conf, "group.id": "g"}
    with Consumer(group) as consumer:
        assert consumer.metric("fetch-throttle-time-avg") == 0
        with pytest.raises(KeyError, match="no-such-metric"):
            consumer.metric("no-such-metric")
    async with AIOProducer(conf) as aio_producer:
        assert aio_producer.metric("produce-throttle-time-max") == 0
    async with AIOConsumer(group) as aio_consumer:
        assert aio_consumer.metric("quota-wait-time-total") == 0


def test_blocking_is_bounded_within_its_context_and_in_its_thread_only(broker: EmbeddedBroker) -> None:
    producer = slow(broker, **{"max.block.ms": HOUR_MS})
    broker.throttle_next(0, HOUR_MS)
    producer.produce("orders", b"first")
    assert producer.flush(60) == 0
    refused: list[float] = []
    others: list[str] = []

    def elsewhere() -> None:
        try:
            producer.produce("orders", b"x" * 1_000)
        except QuotaThrottledError:
            others.append("refused")

    other = threading.Thread(target=elsewhere, daemon=True)
    for most_s in (0.3, 0.0):
        begin = time.monotonic()
        with producer.blocking_at_most(most_s) as same, pytest.raises(QuotaThrottledError):
            over_produce(same)
        if not other.ident:
            other.start()
        refused.append(time.monotonic() - begin)
        assert same is producer
    assert 0.29 <= refused[0] < 45
    assert refused[1] < 45
    # The other thread's call is bounded by max.block.ms, as before.
    assert other.is_alive()
    assert others == []
    producer.purge()
    other.join(60)
    assert not other.is_alive()


def test_a_throttle_shorter_than_the_delay_that_messages_may_have_is_not_waited_for(broker: EmbeddedBroker) -> None:
    """`quota.max.delay.ms`: what is longer has callers wait, what is shorter lets messages wait in the queue."""
    for most_ms, block_ms in ((90_000, 30_000), (100, 500)):
        times = {"quota.max.delay.ms": most_ms, "max.block.ms": block_ms, "client.id": f"app-{most_ms}"}
        producer = slow(broker, producer_byte_rate=1_000_000, **times)
        broker.throttle_next(0, 50_000)
        producer.produce("orders", b"first")
        assert producer.flush(60) == 0
        # A call that waited for such a throttle would not have the time.
        with pytest.raises(QuotaThrottledError) if most_ms == 100 else nullcontext():
            producer.produce("orders", b"next")
        producer.purge()


def test_a_key_that_nobody_knows_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(KafkaException, match=r"did you mean 'linger\.ms'"):
        Producer({"bootstrap.servers": "127.0.0.1:1", "linger.mss": 1, "quota.limit.source": "learned"})


def test_a_purge_reaches_messages_whose_sender_has_yet_to_begin(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a busy machine, where a thread begins late."""
    begun: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(module, "start_new_thread", lambda *sender: begun.append(sender))
        producer, reports = slow(broker), Reports()
    start, put, purging = partial(start_new_thread, *begun[0]), producer._kq_outbox.inbox.put, threading.Event()

    def begin_late() -> None:
        if purging.wait(60):
            start()

    def told(what: Any) -> None:
        put(what)
        purging.set()

    late = threading.Thread(target=begin_late)
    producer._kq_outbox.start = late.start
    producer.produce("orders", b"first", on_delivery=reports)
    producer._kq_outbox.start = start
    producer._kq_outbox.inbox.put = told  # type: ignore[method-assign]
    producer.purge()
    late.join(60)
    producer.poll(0)
    assert reports.seen == {"_PURGE_QUEUE": 1}
    assert len(producer) == 0


def test_the_reports_of_a_purge_are_there_when_it_returns(broker: EmbeddedBroker) -> None:
    """Those of messages that librdkafka has as well."""
    for _ in range(10):
        producer, reports = made({"bootstrap.servers": "127.0.0.1:1", "quota.limit.source": "learned"}), Reports()
        producer.produce("orders", b"first", on_delivery=reports)
        time.sleep(0.05)
        producer.purge()
        producer.poll(0)
        assert reports.seen == {"_PURGE_QUEUE": 1}


def test_without_any_delay_everything_arrives(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(topics={"orders": 3}) as broker:
        broker.set_quota(client_id="orders", producer_byte_rate=51_200)
        conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "orders", "quota.max.delay.ms": 0}
        with Producer(conf) as producer:
            for number in range(60):
                producer.produce("orders", b"x" * 1_000, key=str(number))
            assert producer.flush(60) == 0
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
