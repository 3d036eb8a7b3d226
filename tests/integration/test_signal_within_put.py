"""A signal's handler that flushes or closes comes while its thread puts a message into the queue, and holds a lock."""

import signal
import threading
from collections import deque
from typing import Any

import pytest

from kclient_quota import Producer
from kclient_quota.testing.kafka_broker import KafkaBroker


class Signalling(deque[Any]):
    """A signal comes with the first message, between two lines of `produce()`."""

    has_come = False

    def append(self, item: Any) -> None:
        super().append(item)
        if item is not None and not self.has_come and threading.current_thread() is threading.main_thread():
            self.has_come = True
            signal.raise_signal(signal.SIGUSR1)


def test_its_flush_does_not_wait_for_a_sender_that_waits_for_it(kafka_broker: KafkaBroker) -> None:
    """It waited for its whole time, for ever without one."""
    conf = {
        "bootstrap.servers": kafka_broker.bootstrap_servers,
        "producer_byte_rate": 100_000,
        "enable.metrics.push": False,
    }
    left: list[int] = []
    before = signal.getsignal(signal.SIGUSR1)
    with Producer(conf) as producer:
        producer.produce("t", b"first")
        producer.flush(30)
        inbox = producer._kq_outbox.inbox
        inbox.items = Signalling(inbox.items)
        signal.signal(signal.SIGUSR1, lambda *_: left.append(producer.flush(20)))
        try:
            producer.produce("t", b"second")
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert left == [0]
        assert producer.flush(30) == 0
    assert [record.value for record in kafka_broker.records("t")] == [b"first", b"second"]


class Before(set[str]):
    """A signal comes just before the message is put in."""

    def add(self, bar: str) -> None:
        signal.raise_signal(signal.SIGUSR1)
        super().add(bar)


def test_what_is_put_in_after_its_close_is_refused_as_plain_refuses_it(kafka_broker: KafkaBroker) -> None:
    """It was taken, and never sent nor reported."""
    conf = {
        "bootstrap.servers": kafka_broker.bootstrap_servers,
        "producer_byte_rate": 100_000,
        "enable.metrics.push": False,
    }
    closed: list[bool] = []
    before = signal.getsignal(signal.SIGUSR1)
    producer = Producer(conf)
    producer.produce("t", b"first")
    producer.flush(30)
    producer._kq_outbox.spare_bars = Before(producer._kq_outbox.spare_bars)
    signal.signal(signal.SIGUSR1, lambda *_: closed.append(closed != [] or producer.close()))
    try:
        with pytest.raises(RuntimeError, match="Producer has been closed"):
            producer.produce("t", b"second")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert closed[-1]
    assert [record.value for record in kafka_broker.records("t")] == [b"first"]
