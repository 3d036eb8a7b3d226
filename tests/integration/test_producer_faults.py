"""What a producer does when its broker throttles for hours, vanishes or does not know the topic."""

import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.producer import Producer
from kclient_quota.errors import ConfigError, QuotaThrottledError
from tests.integration.made_producers import made

HALF_A_DAY_MS = 12 * 3600 * 1000
PRODUCE = 0


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        yield cluster


class Reports:
    """Delivery reports, by error name or "ok"."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def __call__(self, error: Any, message: Any) -> None:
        self.seen["ok" if error is None else error.name()] += 1


def throttled(broker: EmbeddedBroker, **conf: Any) -> tuple[Producer, Reports]:
    """A producer whose broker has just answered with a throttle of half a day, with messages behind it."""
    reports = Reports()
    producer = made({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "linger.ms": 0, **conf})
    broker.throttle_next(PRODUCE, HALF_A_DAY_MS)
    producer.produce("orders", b"first", on_delivery=reports)
    assert producer.flush(5) == 0
    for _ in range(20):
        state = producer.quota_state()
        if any(entry.throttled_until_ms for entry in state.values()):
            break
        producer.poll(0.05)
    assert any(entry.throttled_until_ms > HALF_A_DAY_MS - 60_000 for entry in producer.quota_state().values())
    return producer, reports


def stuck(producer: Producer, reports: Reports) -> None:
    """Put a message behind the throttle that librdkafka has accepted already."""
    confluent_kafka.Producer.produce(producer, "orders", b"stuck", on_delivery=reports)


def over_produce(producer: Producer) -> None:
    """More than a grant holds, so that one call meets the gate."""
    for _ in range(100):
        producer.produce("orders", b"x" * 1000)


def test_produce_raises_after_max_block_ms_and_says_when_to_come_back(broker: EmbeddedBroker) -> None:
    producer, _ = throttled(broker, **{"max.block.ms": 300})
    begin = time.monotonic()
    with pytest.raises(QuotaThrottledError, match=r"max\.block\.ms") as raised:
        over_produce(producer)
    assert 0.29 <= time.monotonic() - begin < 1.5
    assert raised.value.retry_after_ms > HALF_A_DAY_MS - 60_000


def test_raise_does_not_wait(broker: EmbeddedBroker) -> None:
    producer, _ = throttled(broker, **{"quota.backoff": "raise"})
    begin = time.monotonic()
    with pytest.raises(BufferError) as raised:
        over_produce(producer)
    assert time.monotonic() - begin < 1.2
    assert isinstance(raised.value, QuotaThrottledError)
    assert raised.value.retry_after_ms > 0


def test_off_passes_everything_through(broker: EmbeddedBroker) -> None:
    producer, _ = throttled(broker, **{"quota.backoff": "off"})
    for _ in range(1000):
        producer.produce("orders", b"x" * 1000)
    producer.purge()
    producer.flush(5)


def test_flush_honours_its_timeout_in_a_throttle_of_half_a_day(broker: EmbeddedBroker) -> None:
    producer, reports = throttled(broker)
    stuck(producer, reports)
    begin = time.monotonic()
    assert producer.flush(1) == 1
    assert 0.9 < time.monotonic() - begin < 3


def test_close_purges_at_once_when_the_throttle_outlasts_it_and_reports_every_message(broker: EmbeddedBroker) -> None:
    producer, reports = throttled(broker)
    for _ in range(5):
        stuck(producer, reports)
    begin = time.monotonic()
    assert producer.close() is True
    assert time.monotonic() - begin < 3
    assert reports.seen["ok"] == 1
    assert sum(reports.seen.values()) == 6
    assert producer.close() is True


def test_leaving_the_context_is_bounded_too(broker: EmbeddedBroker) -> None:
    producer, reports = throttled(broker)
    begin = time.monotonic()
    with producer:
        stuck(producer, reports)
    assert time.monotonic() - begin < 3
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
    assert time.monotonic() - sent_at[0] < 1
    timer.join()


def test_a_callback_that_produces_is_told_instead_of_waiting(broker: EmbeddedBroker) -> None:
    producer, _ = throttled(broker, **{"max.block.ms": 100})
    told: list[BaseException] = []

    def again(error: Any, message: Any) -> None:
        try:
            over_produce(producer)
        except QuotaThrottledError as refused:
            told.append(refused)
        try:
            producer.poll(0)
        except RuntimeError as refused:
            told.append(refused)

    confluent_kafka.Producer.produce(producer, "orders", b"stuck", on_delivery=again)
    producer.purge()
    producer.flush(2)
    assert [type(error) for error in told] == [QuotaThrottledError, RuntimeError]


def test_back_off_survives_a_killed_connection(broker: EmbeddedBroker) -> None:
    producer, _ = throttled(broker, **{"max.block.ms": 200})
    assert broker.kill_connections() > 0
    producer.poll(0.5)
    with pytest.raises(QuotaThrottledError) as raised:
        over_produce(producer)
    assert raised.value.retry_after_ms > HALF_A_DAY_MS - 60_000


def test_nothing_is_lost_or_doubled_when_the_broker_restarts(broker: EmbeddedBroker) -> None:
    broker.set_quota(client_id="app", producer_byte_rate=100_000)
    reports = Reports()
    producer = made({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app"})
    for number in range(300):
        if number == 100:
            broker.restart(1)
        if number == 200:
            broker.kill_connections()
        producer.produce("orders", b"%05d" % number + b"x" * 995, on_delivery=reports)
    assert producer.flush(20) == 0
    assert reports.seen == {"ok": 300}
    producer.close()
    assert read_back(broker, 300) == {b"%05d" % number: 1 for number in range(300)}


def read_back(broker: EmbeddedBroker, expected: int) -> Counter[bytes]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
    seen: Counter[bytes] = Counter()
    deadline = time.monotonic() + 10
    while seen.total() < expected and time.monotonic() < deadline:
        seen.update(message.value()[:5] for message in consumer.consume(1000, 0.2) if message.error() is None)
    seen.update(message.value()[:5] for message in consumer.consume(1000, 0.3) if message.error() is None)
    consumer.close()
    return seen


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
        producer.flush(10)
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
        producer.flush(5)
        producer.poll(0.4)
    deadline = time.monotonic() + 20
    while "has ended" not in caplog.text and time.monotonic() < deadline:
        producer.poll(0.5)
    producer.close()
    assert caplog.text.count("throttles client 'app'") == 1
    assert caplog.text.count("Throttling of client 'app' has ended") == 1


def in_transaction(
    broker: EmbeddedBroker, policy: str, throttle_ms: int, timeout_ms: int = 4_000
) -> tuple[Producer, Reports]:
    """A transaction with a message that the broker reads only when its throttle is over."""
    conf = {"transactional.id": "t", "transaction.timeout.ms": timeout_ms, "quota.transaction.timeout": policy}
    reports = Reports()
    producer = made({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "linger.ms": 0, **conf})
    producer.init_transactions(10)
    producer.begin_transaction()
    broker.throttle_next(PRODUCE, throttle_ms)
    producer.produce("orders", b"first", on_delivery=reports)
    assert producer.flush(2) == 0
    stuck(producer, reports)
    return producer, reports


@pytest.mark.parametrize("call", ["commit_transaction", "flush", "produce"])
def test_a_transaction_that_a_throttle_would_have_time_out_is_aborted_before_where_that_was_asked_for(
    broker: EmbeddedBroker, call: str
) -> None:
    producer, reports = in_transaction(broker, "abort", 2_400)
    begin = time.monotonic()
    with pytest.raises(KafkaException, match="it was aborted") as caught:
        over_produce(producer) if call == "produce" else getattr(producer, call)()
    assert time.monotonic() - begin < 4
    assert caught.value.args[0].txn_requires_abort()
    assert sum(reports.seen.values()) == 2
    if call != "commit_transaction":
        with pytest.raises(KafkaException, match="it was aborted"):
            producer.commit_transaction()
    producer.abort_transaction()
    # It waits until what was sent before is out of the way of a new one.
    producer.begin_transaction()
    producer.produce("orders", b"next")
    producer.commit_transaction(10)


def test_a_batch_stops_at_the_message_whose_transaction_was_aborted(broker: EmbeddedBroker) -> None:
    producer, _ = in_transaction(broker, "abort", 2_400)
    with pytest.raises(KafkaException, match="it was aborted"):
        producer.produce_batch("orders", [{"value": b"x" * 1_000} for _ in range(100)])
    producer.abort_transaction()


def test_what_waits_behind_a_throttle_of_half_a_day_is_given_up_in_time(broker: EmbeddedBroker) -> None:
    producer, reports = in_transaction(broker, "abort", HALF_A_DAY_MS, timeout_ms=9_000)
    begin = time.monotonic()
    with pytest.raises(KafkaException, match="it was aborted"):
        producer.commit_transaction()
    assert time.monotonic() - begin < 9
    assert reports.seen["ok"] == 1
    # The abort purges what has not timed out yet.
    assert sum(reports.seen[name] for name in ("_MSG_TIMED_OUT", "_PURGE_QUEUE", "_PURGE_INFLIGHT")) == 1


def test_no_transaction_is_begun_that_would_have_to_be_aborted(broker: EmbeddedBroker) -> None:
    producer, _ = in_transaction(broker, "abort", HALF_A_DAY_MS, timeout_ms=9_000)
    producer._max_block_ms = 1_000
    with pytest.raises(KafkaException, match="it was aborted"):
        producer.commit_transaction()
    producer.abort_transaction()
    begin = time.monotonic()
    with pytest.raises(QuotaThrottledError, match="would have to be aborted") as caught:
        producer.begin_transaction()
    assert 0.9 < time.monotonic() - begin < 5
    assert caught.value.retry_after_ms > HALF_A_DAY_MS / 2


@pytest.mark.parametrize("policy", ["abort", "report"])
def test_offsets_are_sent_when_the_throttle_is_over_and_the_heartbeat_goes_on(
    broker: EmbeddedBroker, policy: str
) -> None:
    beats: list[float] = []
    producer, reports = in_transaction(broker, policy, 1_500, timeout_ms=20_000)
    producer._heartbeat = lambda: beats.append(time.monotonic())
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    offsets = [TopicPartition("orders", 0, 1)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 10)
    producer.commit_transaction(10)
    assert consumer.committed(offsets, 10)[0].offset == 1
    consumer.close()
    assert reports.seen == {"ok": 2}
    assert len(beats) > 5


def test_offsets_that_a_throttle_holds_up_abort_the_transaction_in_time(broker: EmbeddedBroker) -> None:
    producer, reports = in_transaction(broker, "abort", HALF_A_DAY_MS, timeout_ms=9_000)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    begin = time.monotonic()
    with pytest.raises(KafkaException, match="it was aborted"):
        producer.send_offsets_to_transaction([TopicPartition("orders", 0, 1)], consumer.consumer_group_metadata())
    assert time.monotonic() - begin < 9
    consumer.close()
    assert reports.seen["ok"] == 1


def test_near_its_end_a_transaction_goes_on_but_one_answer_at_a_time(broker: EmbeddedBroker) -> None:
    broker.set_quota(client_id="app", producer_byte_rate=1_000_000)
    conf = {"transactional.id": "t", "quota.transaction.timeout": "abort", "linger.ms": 0}
    times = {"transaction.timeout.ms": 12_000, "message.timeout.ms": 6_000}
    producer = made({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", **conf, **times})
    producer.init_transactions(10)
    producer.begin_transaction()
    begin = time.monotonic()
    early, late = [], []
    while time.monotonic() - begin < 4.2:
        producer.produce("orders", b"x" * 1_000)
        (late if time.monotonic() - begin > 3.5 else early).append(len(producer))
    producer.commit_transaction()
    assert max(early) > 1
    assert max(late) == 1


def test_where_it_was_not_asked_for_the_transaction_is_told_of_and_waited_for(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    producer, reports = in_transaction(broker, "report", 2_400)
    with caplog.at_level(logging.WARNING, "kclient_quota"):
        producer.commit_transaction()
    assert caplog.text.count("transaction.timeout.ms=4000") == 1
    assert reports.seen == {"ok": 2}


def test_a_commit_within_its_time_waits_for_the_quota(broker: EmbeddedBroker) -> None:
    broker.set_quota(client_id="app", producer_byte_rate=20_000)
    conf = {"transactional.id": "t", "quota.transaction.timeout": "abort", "linger.ms": 0}
    producer = made({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", **conf})
    producer.init_transactions(10)
    producer.begin_transaction()
    for _ in range(15):
        producer.produce("orders", b"x" * 1_000)
    producer.commit_transaction(10)
    with pytest.raises(KafkaException, match=r"[Ss]tate"):
        producer.commit_transaction(1)


def test_closing_with_a_transaction_open_does_not_wait_for_a_cluster_that_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        conf = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t", "max.block.ms": 500}
        producer = made(conf)
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce("orders", b"v")
        assert producer.flush(10) == 0
    with caplog.at_level(logging.WARNING, logger="kclient_quota"):
        assert not producer.close()
    assert [text for text in caplog.messages if "transaction open" in text]
    assert not producer.close()


def test_closing_aborts_a_transaction_that_is_open(broker: EmbeddedBroker) -> None:
    conf = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"}
    producer = made(conf)
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("orders", b"v")
    assert producer.close()
    settings = {**conf, "group.id": "g", "auto.offset.reset": "earliest", "enable.partition.eof": True}
    del settings["transactional.id"]
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["orders"])
    message = consumer.poll(20)
    assert message is not None
    assert message.error().name() == "_PARTITION_EOF"
    consumer.close()
