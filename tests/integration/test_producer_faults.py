"""What a producer does when its broker throttles for hours, vanishes or does not know the topic."""

import contextlib
import logging
import os
import signal
import threading
import time
from typing import Any

import confluent_kafka
import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.producer import Producer
from kclient_quota.clients.producer.sender.answers import Answers
from kclient_quota.errors import ConfigError, QuotaThrottledError
from kclient_quota.pacing.sending.turns import Waiting
from tests.integration.made_producers import Reports, made, over_produce, stuck
from tests.read_committed import ids, read_ids

LONG_MS = 50_000
"""Longer than anybody here waits, and no longer than a throttle counts, by `longest_throttle_ms()`."""
PRODUCE = 0


def throttled(broker: EmbeddedBroker, **conf: Any) -> tuple[Producer, Reports]:
    """A producer whose broker has just answered with a long throttle, with messages behind it."""
    reports = Reports()
    producer = made({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "linger.ms": 0, **conf})
    broker.throttle_next(PRODUCE, LONG_MS)
    producer.produce("orders", b"first", on_delivery=reports)
    assert producer.flush(60) == 0
    deadline = time.monotonic() + 60
    while not any(entry.throttled_until_ms for entry in producer.quota_state().values()):
        assert time.monotonic() < deadline
        producer.poll(0.05)
    assert any(entry.throttled_until_ms > LONG_MS - 40_000 for entry in producer.quota_state().values())
    return producer, reports


def test_produce_raises_after_max_block_ms_and_says_when_to_come_back(broker: EmbeddedBroker) -> None:
    producer, _ = throttled(broker, **{"max.block.ms": 300})
    begin = time.monotonic()
    with pytest.raises(QuotaThrottledError, match=r"max\.block\.ms") as raised:
        over_produce(producer)
    assert 0.29 <= time.monotonic() - begin < 45
    assert raised.value.retry_after_ms > LONG_MS - 40_000


def test_how_long_to_wait_is_told_as_of_the_end_of_the_wait(broker: EmbeddedBroker) -> None:
    producer, _ = throttled(broker, **{"max.block.ms": 2_000})
    before_ms = max(entry.throttled_until_ms for entry in producer.quota_state().values())
    with pytest.raises(QuotaThrottledError) as raised:
        over_produce(producer)
    after_ms = max(entry.throttled_until_ms for entry in producer.quota_state().values())
    assert after_ms <= raised.value.retry_after_ms <= before_ms - 1_900
    assert f"try again in {raised.value.retry_after_ms} ms" in str(raised.value)


def test_raise_does_not_wait(broker: EmbeddedBroker) -> None:
    producer, _ = throttled(broker, **{"quota.backoff": "raise"})
    begin = time.monotonic()
    with pytest.raises(BufferError) as raised:
        over_produce(producer)
    assert time.monotonic() - begin < 45
    assert isinstance(raised.value, QuotaThrottledError)
    assert raised.value.retry_after_ms > 0


def test_raise_raises_on_a_busy_machine_too(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    producer, _ = throttled(broker, **{"quota.backoff": "raise"})
    claim = Answers.claim

    def late(answers: Answers, message: Waiting) -> bool:
        """As of a thread that does not get its turn."""
        time.sleep(0.05)
        return claim(answers, message)

    monkeypatch.setattr(Answers, "claim", late)
    retry_after_ms = []
    for _ in range(20):
        try:
            producer.produce("orders", b"x" * 100_000)
        except QuotaThrottledError as error:
            retry_after_ms.append(error.retry_after_ms)
    assert len(retry_after_ms) >= 10
    assert min(retry_after_ms) > LONG_MS - 40_000


def test_off_passes_everything_through(broker: EmbeddedBroker) -> None:
    producer, _ = throttled(broker, **{"quota.backoff": "off"})
    for _ in range(1000):
        producer.produce("orders", b"x" * 1000)
    producer.purge()
    producer.flush(60)


def test_flush_honours_its_timeout_in_a_throttle_of_half_a_day(broker: EmbeddedBroker) -> None:
    producer, reports = throttled(broker)
    stuck(producer, reports)
    begin = time.monotonic()
    assert producer.flush(1) == 1
    assert 0.9 < time.monotonic() - begin < 45


def test_close_purges_at_once_when_the_throttle_outlasts_it_and_reports_every_message(broker: EmbeddedBroker) -> None:
    producer, reports = throttled(broker, **{"max.block.ms": 20_000})
    for _ in range(5):
        stuck(producer, reports)
    begin = time.monotonic()
    assert producer.close() is True
    assert time.monotonic() - begin < 15
    assert reports.seen["ok"] == 1
    assert sum(reports.seen.values()) == 6
    assert producer.close() is True


def test_leaving_the_context_is_bounded_too(broker: EmbeddedBroker) -> None:
    producer, reports = throttled(broker, **{"max.block.ms": 20_000})
    begin = time.monotonic()
    with producer:
        stuck(producer, reports)
    assert time.monotonic() - begin < 15
    assert sum(reports.seen.values()) == 2


def test_ctrl_c_ends_a_waiting_produce_at_once(broker: EmbeddedBroker) -> None:
    producer, _ = throttled(broker)
    sent_at = []

    def interrupt() -> None:
        sent_at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.5, interrupt)
    # A test run in the background inherits that Ctrl-C is ignored.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            over_produce(producer)
    finally:
        signal.signal(signal.SIGINT, former)
    assert time.monotonic() - sent_at[0] < 45
    timer.join()


def test_a_callback_may_produce_on_credit_poll_and_flush(broker: EmbeddedBroker) -> None:
    producer, reports = throttled(broker, **{"max.block.ms": 100})
    took_s: list[float] = []

    def again(error: Any, message: Any) -> None:
        begin = time.monotonic()
        for _ in range(100):
            producer.produce("orders", b"x" * 1000, on_delivery=reports)
        producer.poll(0)
        producer.flush(0)
        took_s.append(time.monotonic() - begin)

    with contextlib.suppress(QuotaThrottledError):
        for _ in range(10):
            producer.produce("orders", b"first", on_delivery=reports)
    stuck(producer, again)
    producer.purge()
    deadline = time.monotonic() + 60
    while not took_s:
        assert time.monotonic() < deadline
        producer.poll(0.1)
    assert took_s[0] < 45
    assert len(producer) == 100
    with pytest.raises(QuotaThrottledError):
        producer.produce("orders", b"not on credit")
    producer.purge()
    assert producer.flush(60) == 0
    assert reports.seen["_PURGE_QUEUE"] >= 100


def test_back_off_survives_a_killed_connection(broker: EmbeddedBroker) -> None:
    producer, _ = throttled(broker, **{"max.block.ms": 200})
    assert broker.kill_connections() > 0
    producer.poll(0.5)
    with pytest.raises(QuotaThrottledError) as raised:
        over_produce(producer)
    assert raised.value.retry_after_ms > LONG_MS - 40_000


def test_nothing_is_lost_or_doubled_when_the_broker_restarts(broker: EmbeddedBroker) -> None:
    broker.set_quota(client_id="app", producer_byte_rate=100_000)
    reports = Reports()
    producer = made({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app"})
    for number in range(300):
        if number == 100:
            broker.restart(1)
        if number == 200:
            broker.kill_connections()
        producer.produce("orders", b"%06d" % number + b"x" * 994, on_delivery=reports)
    assert producer.flush(60) == 0
    assert reports.seen == {"ok": 300}
    producer.close()
    assert read_ids(broker, "orders") == ids(300)


def test_an_unknown_topic_is_an_error_as_with_confluent_kafka() -> None:
    with EmbeddedBroker(properties={"auto.create.topics.enable": "false"}) as broker:
        broker.set_quota(client_id="app", producer_byte_rate=100_000)
        reports = Reports()
        conf = {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "app",
            "topic.metadata.propagation.max.ms": 0,
        }
        producer = made(conf)
        try:
            producer.produce("nowhere", b"x", on_delivery=reports)
        except confluent_kafka.KafkaException as error:
            reports(error.args[0], None)
        producer.flush(60)
        producer.close()
        assert set(reports.seen) <= {"_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"}
        assert reports.seen.total() == 1


@pytest.mark.parametrize(
    ("conf", "names"),
    [
        ({"max.blok.ms": 1}, "max.block.ms"),
        ({"producer_byte_rate": 0}, "producer_byte_rate"),
        ({"producer_byte_rate": -5}, "producer_byte_rate"),
        ({"quota.backoff": "sleep"}, "quota.backoff"),
        ({"quota.limit.source": "learned", "producer_byte_rate": 5}, "quota.limit.source"),
    ],
)
def test_bad_configuration_is_named(conf: dict[str, Any], names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        made({"bootstrap.servers": "127.0.0.1:1", **conf})


def test_throttling_is_logged_once_when_it_starts_and_once_when_it_ends(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kclient_quota")
    producer = made({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "linger.ms": 0})
    for _ in range(3):
        broker.throttle_next(PRODUCE, 300)
        producer.produce("orders", b"x")
        producer.flush(60)
        producer.poll(0.4)
    deadline = time.monotonic() + 60
    while "has ended" not in caplog.text and time.monotonic() < deadline:
        producer.poll(0.5)
    producer.close()
    assert caplog.text.count("throttles client 'app'") == 1
    assert caplog.text.count("Throttling of client 'app' has ended") == 1
