"""A signal's handler that flushes, polls or closes comes between any two lines of a call that looks, or waits."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kclient_quota import Producer
from kclient_quota.testing.kafka_broker import KafkaBroker
from tests.signals import interrupted

CALLS: dict[str, Callable[[Producer], object]] = {
    "quota_state": Producer.quota_state,
    "metrics": Producer.metrics,
    "throttled": lambda producer: producer._kq_throttled_for_ms(max),
    "set_sasl_credentials": lambda producer: producer.set_sasl_credentials("another", "secret"),
}


@pytest.fixture
def producer(kafka_broker: KafkaBroker) -> Iterator[Producer]:
    """Under a quota, with a sender that has sent a message."""
    conf = {
        "bootstrap.servers": kafka_broker.bootstrap_servers,
        "producer_byte_rate": 1_000_000,
        "enable.metrics.push": False,
        "statistics.interval.ms": 20,
        "log_level": 0,
    }
    with Producer(conf) as made:
        made.produce("t", b"first")
        made.flush(30)
        yield made


@pytest.mark.parametrize("call", CALLS)
def test_its_flush_delivers_wherever_it_comes(producer: Producer, call: str) -> None:
    """It waited for its whole time, for ever without one, as the sender waited for a lock of the call's."""
    left: list[Any] = []

    def handler() -> None:
        producer.produce("t", b"again")
        left.append(producer.flush(20))

    at = 0
    while interrupted(lambda: CALLS[call](producer), handler, at):
        assert left == [0] * (at + 1), f"at line {at} of {call}()"
        at += 1
    assert at > 5
