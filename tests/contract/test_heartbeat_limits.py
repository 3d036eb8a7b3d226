"""Limits that would end a transaction are told before they do, quotas that change are followed; on both brokers."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException

from kclient_quota.clients import limits
from kclient_quota.clients.producer import Producer
from tests.read_committed import committed

Unique = Callable[[str], str]


def test_an_open_transaction_is_warned_of_before_it_times_out(
    cluster: Any, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    topic, app = unique("orders"), unique("app")
    cluster.create_topic(topic, 1)
    cluster.set_quota(client_id=app, producer_byte_rate=4_000)
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": app, "transactional.id": app}
    producer = Producer({**conf, "transaction.timeout.ms": 12_000})
    producer.init_transactions(60)
    producer.begin_transaction()
    begin = time.time()
    caplog.clear()

    def warnings() -> list[logging.LogRecord]:
        return [record for record in caplog.records if "transaction.timeout.ms=12000" in record.getMessage()]

    while not warnings():
        assert time.time() - begin < 60
        producer.produce(topic, b"x" * 1_000)
    producer.abort_transaction(60)
    producer.close()
    (warned,) = warnings()
    assert warned.levelno == logging.WARNING
    assert 1.0 < warned.created - begin < 12


def test_a_transaction_that_would_time_out_is_aborted_in_the_applications_own_call_and_the_next_one_works(
    cluster: Any, unique: Unique
) -> None:
    topic, app = unique("orders"), unique("app")
    cluster.create_topic(topic, 1)
    cluster.set_quota(client_id=app, producer_byte_rate=4_000)
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": app, "transactional.id": app}
    producer = Producer({**conf, "transaction.timeout.ms": 12_000, "quota.transaction.timeout": "abort"})
    reports: list[Any] = []
    producer.init_transactions(60)
    producer.begin_transaction()
    begin = time.monotonic()
    with pytest.raises(KafkaException) as caught:
        produce_for(producer, topic, 60, lambda error, _message: reports.append(error))
    assert time.monotonic() - begin < 12
    error = caught.value.args[0]
    assert error.txn_requires_abort()
    assert "it was aborted" in error.str()
    # As every transactional loop does; it has nothing left to do.
    begin = time.monotonic()
    producer.abort_transaction(60)
    assert time.monotonic() - begin < 60
    # Each message got its report; none is left in librdkafka.
    assert len(producer) == 0
    assert len(reports) > 3
    producer.begin_transaction()
    producer.produce(topic, b"kept")
    producer.commit_transaction(60)
    producer.close()
    assert committed(cluster, topic) == [b"kept"]


def produce_for(producer: Producer, topic: str, seconds: float, report: Callable[[Any, Any], None]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        producer.produce(topic, b"x" * 1_000, on_delivery=report)


def test_a_quota_lowered_in_mid_transaction_has_it_aborted_in_time_and_nothing_read_late(
    cluster: Any, unique: Unique
) -> None:
    """Requests wait in flight behind a throttle that lasts longer than the transaction may."""
    topic, app = unique("orders"), unique("app")
    cluster.create_topic(topic, 1)
    cluster.set_quota(client_id=app, producer_byte_rate=10_000_000)
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": app, "enable.metrics.push": False}
    conf = {"transactional.id": app, "transaction.timeout.ms": 12_000, "quota.transaction.timeout": "abort"}
    producer = Producer({**servers, **conf, "linger.ms": 0})
    reports: Counter[str] = Counter()

    def report(error: Any, _message: Any) -> None:
        reports["ok" if error is None else error.name()] += 1

    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(400):
        producer.produce(topic, b"x" * 1_000, on_delivery=report)
    assert producer.flush(60) == 0
    cluster.set_quota(client_id=app, producer_byte_rate=20_000)
    producer.produce(topic, b"throttled", on_delivery=report)
    assert producer.flush(60) == 0
    for _ in range(3):
        # As if it had been handed over before the throttle was known.
        confluent_kafka.Producer.produce(producer, topic, b"stuck", on_delivery=report)
        producer.poll(0.05)
    begin = time.monotonic()
    with pytest.raises(KafkaException, match="it was aborted"):
        producer.commit_transaction()
    assert time.monotonic() - begin < 11
    # The abort drops what librdkafka has not sent yet: on a busy machine the last of the three.
    assert reports.pop("ok") == 401
    assert set(reports) <= {"_MSG_TIMED_OUT", "_PURGE_QUEUE"}
    assert reports["_MSG_TIMED_OUT"] >= 1
    assert reports.total() == 3
    producer.abort_transaction()
    producer.begin_transaction()
    producer.produce(topic, b"kept")
    producer.commit_transaction(60)
    producer.close()
    # By now the broker has read what waited.
    assert committed(cluster, topic) == [b"kept"]
    assert b"stuck" not in committed(cluster, topic, "read_uncommitted")


def test_raised_and_lowered_quotas_are_followed(cluster: Any, unique: Unique, monkeypatch: pytest.MonkeyPatch) -> None:
    # A minute, and five seconds, in an application.
    monkeypatch.setattr(limits, "REFRESH_MS", 1_000)
    monkeypatch.setattr(limits, "MIN_REFRESH_MS", 500)
    topic, app = unique("orders"), unique("app")
    cluster.create_topic(topic, 1)
    cluster.set_quota(client_id=app, producer_byte_rate=40_000)
    failed: list[Any] = []
    delivered = 0

    def report(error: Any, _message: Any) -> None:
        nonlocal delivered
        delivered += 1
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": app})
    sent = 0
    for limit in (40_000, 120_000, 20_000):
        cluster.set_quota(client_id=app, producer_byte_rate=limit)
        begin = time.monotonic()
        while {state.limit for state in producer.quota_state().values()} != {limit}:
            assert time.monotonic() - begin < 60
            producer.produce(topic, b"x" * 1_000, on_delivery=report)
            sent += 1
    assert producer.flush(60) == 0
    producer.close()
    assert failed == []
    assert delivered == sent
