"""A signal's handler that flushes or closes comes while its thread puts a message into the queue, and holds a lock."""

import signal
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from kclient_quota import Producer
from kclient_quota.testing.kafka_broker import KafkaBroker
from tests.signals import handled


class Signalling(deque[Any]):
    """A signal comes with the first message, between two lines of `produce()`."""

    has_come = False

    def append(self, item: Any) -> None:
        super().append(item)
        if item is not None and not self.has_come and threading.current_thread() is threading.main_thread():
            self.has_come = True
            signal.raise_signal(signal.SIGUSR1)


@pytest.fixture
def producer(kafka_broker: KafkaBroker) -> Iterator[Producer]:
    """Under a quota, with a sender that has sent a message."""
    conf = {
        "bootstrap.servers": kafka_broker.bootstrap_servers,
        "producer_byte_rate": 100_000,
        "enable.metrics.push": False,
    }
    with Producer(conf) as made:
        made.produce("t", b"first")
        made.flush(30)
        yield made


def values(broker: KafkaBroker) -> list[bytes | None]:
    return [record.value for record in broker.records("t")]


def test_its_flush_does_not_wait_for_a_sender_that_waits_for_it(kafka_broker: KafkaBroker, producer: Producer) -> None:
    """It waited for its whole time, for ever without one."""
    left: list[int] = []
    inbox = producer._kq_outbox.inbox
    inbox.items = Signalling(inbox.items)
    with handled(lambda: left.append(producer.flush(20))):
        producer.produce("t", b"second")
    assert left == [0]
    assert producer.flush(30) == 0
    assert values(kafka_broker) == [b"first", b"second"]


class Before(set[str]):
    """A signal comes just before the message is put in."""

    def add(self, bar: str) -> None:
        signal.raise_signal(signal.SIGUSR1)
        super().add(bar)


def test_what_is_put_in_after_its_close_is_refused_as_plain_refuses_it(
    kafka_broker: KafkaBroker, producer: Producer
) -> None:
    """It was taken, and never sent nor reported."""
    closed: list[bool] = []
    producer._kq_outbox.spare_bars = Before(producer._kq_outbox.spare_bars)
    with (
        handled(lambda: closed.append(closed != [] or producer.close())),
        pytest.raises(RuntimeError, match="Producer has been closed"),
    ):
        producer.produce("t", b"second")
    assert closed[-1]
    assert values(kafka_broker) == [b"first"]
