"""Transactions of a producer whose broker throttles for seconds, for hours, or is gone."""

import logging
import threading
import time
import warnings
from contextlib import suppress

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.producer import Producer
from kclient_quota.errors import QuotaThrottledError
from tests.integration.made_producers import Reports, made, over_produce, stuck

HALF_A_DAY_MS = 12 * 3600 * 1000
PRODUCE = 0


def in_transaction(
    broker: EmbeddedBroker, policy: str, throttle_ms: int, timeout_ms: int = 10_000
) -> tuple[Producer, Reports]:
    """A transaction with a message that the broker reads only when its throttle is over."""
    conf = {"transactional.id": "t", "transaction.timeout.ms": timeout_ms, "quota.transaction.timeout": policy}
    reports = Reports()
    producer = made({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "linger.ms": 0, **conf})
    producer.init_transactions(60)
    producer.begin_transaction()
    broker.throttle_next(PRODUCE, throttle_ms)
    producer.produce("orders", b"first", on_delivery=reports)
    assert producer.flush(60) == 0
    stuck(producer, reports)
    return producer, reports


@pytest.mark.parametrize("call", ["commit_transaction", "flush", "produce"])
def test_a_transaction_that_a_throttle_would_have_time_out_is_aborted_before_where_that_was_asked_for(
    broker: EmbeddedBroker, call: str
) -> None:
    producer, reports = in_transaction(broker, "abort", 5_500)
    with pytest.raises(KafkaException, match="it was aborted before the broker would have") as caught:
        over_produce(producer) if call == "produce" else getattr(producer, call)()
    assert caught.value.args[0].txn_requires_abort()
    assert sum(reports.seen.values()) == 2
    if call != "commit_transaction":
        with pytest.raises(KafkaException, match="it was aborted"):
            producer.commit_transaction()
    producer.abort_transaction()
    # It waits until what was sent before is out of the way of a new one.
    producer.begin_transaction()
    producer.produce("orders", b"next")
    producer.commit_transaction(60)


def test_a_commit_says_why_librdkafka_refuses_the_transactions_messages(broker: EmbeddedBroker) -> None:
    broker.set_quota(client_id="refused", producer_byte_rate=50_000)
    broker.faults.inject_error("AddPartitionsToTxn", "TOPIC_AUTHORIZATION_FAILED", count=1)
    conf = {"transactional.id": "refused", "client.id": "refused", "log_level": 0, "compression.type": "none"}
    producer, reports = Producer({"bootstrap.servers": broker.bootstrap_servers, **conf}), Reports()
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(200):  # more than is handed over before the first of them is refused
        producer.produce("orders", b"x" * 600, on_delivery=reports)
    with pytest.raises(KafkaException, match="Topic authorization failed") as caught:
        producer.commit_transaction(60)
    error = caught.value.args[0]
    assert reports.seen["_STATE"], "what comes after the first, which librdkafka keeps until the abort"
    assert (error.name(), error.txn_requires_abort()) == ("TOPIC_AUTHORIZATION_FAILED", True)
    with suppress(KafkaException):
        producer.abort_transaction(60)  # fatal: the broker has heard of no transaction
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning), suppress(KafkaException):
        producer.close()  # which says that nothing was aborted, and the fatal error once more


def test_a_batch_stops_at_the_message_whose_transaction_was_aborted(broker: EmbeddedBroker) -> None:
    producer, _ = in_transaction(broker, "abort", 5_500)
    with pytest.raises(KafkaException, match="it was aborted"):
        producer.produce_batch("orders", [{"value": b"x" * 1_000} for _ in range(100)])
    producer.abort_transaction()


def test_what_waits_behind_a_throttle_of_half_a_day_is_given_up_in_time(broker: EmbeddedBroker) -> None:
    producer, reports = in_transaction(broker, "abort", HALF_A_DAY_MS, timeout_ms=12_000)
    begin = time.monotonic()
    with pytest.raises(KafkaException, match="it was aborted"):
        producer.commit_transaction()
    assert time.monotonic() - begin < 45
    assert reports.seen["ok"] == 1
    # The abort purges what has not timed out yet.
    assert sum(reports.seen[name] for name in ("_MSG_TIMED_OUT", "_PURGE_QUEUE", "_PURGE_INFLIGHT")) == 1


def aborted_for_half_a_day(broker: EmbeddedBroker) -> Producer:
    """One whose broker throttles for so long that its transaction was aborted, and the next one is waited for."""
    producer, _ = in_transaction(broker, "abort", HALF_A_DAY_MS, timeout_ms=12_000)
    producer._kq_max_block_ms = 1_000
    with pytest.raises(KafkaException, match="it was aborted"):
        producer.commit_transaction()
    producer.abort_transaction()
    return producer


def test_no_transaction_is_begun_that_would_have_to_be_aborted(broker: EmbeddedBroker) -> None:
    producer = aborted_for_half_a_day(broker)
    begin = time.monotonic()
    with pytest.raises(QuotaThrottledError, match="would have to be aborted") as caught:
        producer.begin_transaction()
    assert 0.9 < time.monotonic() - begin < 45
    assert caught.value.retry_after_ms > HALF_A_DAY_MS / 2


def test_a_callback_that_closes_ends_the_wait_for_a_transaction(broker: EmbeddedBroker) -> None:
    producer = aborted_for_half_a_day(broker)
    producer._kq_max_block_ms = 30_000
    begin = time.monotonic()
    threading.Timer(0.5, producer._kq_outbox.reports.append, [(producer.close,)]).start()
    with pytest.raises(RuntimeError, match="closed"):
        producer.begin_transaction()
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize("policy", ["abort", "report"])
def test_offsets_are_sent_when_the_throttle_is_over_and_the_heartbeat_goes_on(
    broker: EmbeddedBroker, policy: str
) -> None:
    beats: list[float] = []
    producer, reports = in_transaction(broker, policy, 5_000, timeout_ms=60_000)
    producer._kq_heartbeat = lambda: beats.append(time.monotonic())
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    offsets = [TopicPartition("orders", 0, 1)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
    producer.commit_transaction(60)
    assert consumer.committed(offsets, 60)[0].offset == 1
    consumer.close()
    assert reports.seen == {"ok": 2}
    assert beats[-1] - beats[0] > 1


def test_offsets_that_a_throttle_holds_up_abort_the_transaction_in_time(broker: EmbeddedBroker) -> None:
    producer, reports = in_transaction(broker, "abort", HALF_A_DAY_MS, timeout_ms=12_000)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    begin = time.monotonic()
    with pytest.raises(KafkaException, match="it was aborted"):
        producer.send_offsets_to_transaction([TopicPartition("orders", 0, 1)], consumer.consumer_group_metadata())
    assert time.monotonic() - begin < 45
    consumer.close()
    assert reports.seen["ok"] == 1


def test_near_its_end_a_transaction_goes_on_but_one_answer_at_a_time(broker: EmbeddedBroker) -> None:
    broker.set_quota(client_id="app", producer_byte_rate=1_000_000)
    conf = {"transactional.id": "t", "quota.transaction.timeout": "abort", "linger.ms": 0}
    times = {"transaction.timeout.ms": 24_000, "message.timeout.ms": 14_000}
    producer = made({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", **conf, **times})
    producer.init_transactions(60)
    producer.begin_transaction()
    begin = time.monotonic()
    early, late = [], []
    while (at_s := time.monotonic() - begin) < 6 or not late:
        producer.produce("orders", b"x" * 1_000)
        (late if at_s > 5.2 else early).append(len(producer._kq_outbox))
    producer.commit_transaction()
    assert max(early) > 1
    assert max(late) == 1


def test_where_it_was_not_asked_for_the_transaction_is_told_of_and_waited_for(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    producer, reports = in_transaction(broker, "report", 5_500)
    with caplog.at_level(logging.WARNING, "kclient_quota"):
        producer.commit_transaction()
    assert caplog.text.count("transaction.timeout.ms=10000") == 1
    assert reports.seen == {"ok": 2}


def test_a_commit_within_its_time_waits_for_the_quota(broker: EmbeddedBroker) -> None:
    broker.set_quota(client_id="app", producer_byte_rate=20_000)
    conf = {"transactional.id": "t", "quota.transaction.timeout": "abort", "linger.ms": 0}
    producer = made({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", **conf})
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(15):
        producer.produce("orders", b"x" * 1_000)
    producer.commit_transaction(60)
    with pytest.raises(KafkaException, match=r"[Ss]tate"):
        producer.commit_transaction(1)


def test_closing_with_a_transaction_open_does_not_wait_for_a_cluster_that_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        conf = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t", "max.block.ms": 500}
        producer = made(conf)
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("orders", b"v")
        assert producer.flush(60) == 0
    with caplog.at_level(logging.WARNING, logger="kclient_quota"):
        assert not producer.close()
    assert [text for text in caplog.messages if "transaction open" in text]
    assert not producer.close()


def test_closing_aborts_a_transaction_that_is_open(broker: EmbeddedBroker) -> None:
    conf = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"}
    producer = made(conf)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", b"v")
    assert producer.close()
    settings = {**conf, "group.id": "g", "auto.offset.reset": "earliest", "enable.partition.eof": True}
    del settings["transactional.id"]
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["orders"])
    message = consumer.poll(60)
    assert message is not None
    assert message.error().name() == "_PARTITION_EOF"
    consumer.close()


def test_an_abort_where_no_transaction_is_open_takes_no_message_that_waits(broker: EmbeddedBroker) -> None:
    broker.set_quota(client_id="app", producer_byte_rate=20_000)
    reports = Reports()
    producer = made({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "linger.ms": 0})
    for _ in range(60):
        producer.produce("orders", b"x" * 1_000, on_delivery=reports)
    assert len(producer) > producer._kq_outbox.in_flight
    with pytest.raises(KafkaException, match="Transactional API"):
        producer.abort_transaction()
    assert producer.flush(60) == 0
    assert reports.seen == {"ok": 60}
