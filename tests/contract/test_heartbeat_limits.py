"""Limits that would end a transaction are told before they do, quotas that change are followed; on both brokers."""

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from kclient_quota.clients import limits
from kclient_quota.clients.producer import Producer

Unique = Callable[[str], str]


def test_an_open_transaction_is_warned_of_before_it_times_out(
    cluster: Any, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    topic, app = unique("orders"), unique("app")
    cluster.create_topic(topic, 1)
    cluster.set_quota(client_id=app, producer_byte_rate=4_000)
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": app, "transactional.id": app}
    producer = Producer({**conf, "transaction.timeout.ms": 6_000})
    producer.init_transactions(20)
    producer.begin_transaction()
    begin = time.time()
    caplog.clear()
    while time.time() - begin < 4.5:
        producer.produce(topic, b"x" * 1_000)
    producer.abort_transaction(20)
    producer.close()
    (warned,) = [record for record in caplog.records if "transaction.timeout.ms=6000" in record.getMessage()]
    assert warned.levelno == logging.WARNING
    assert 1.0 < warned.created - begin < 5.0


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
            assert time.monotonic() - begin < 6
            producer.produce(topic, b"x" * 1_000, on_delivery=report)
            sent += 1
    assert producer.flush(20) == 0
    producer.close()
    assert failed == []
    assert delivered == sent
