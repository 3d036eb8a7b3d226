"""A `close()` that is going on: whoever produces meanwhile is refused, and does not have it wait for ever more."""

import threading
from typing import Any

import confluent_kafka
import pytest

import kclient_quota
from kclient_quota.broker import EmbeddedBroker

MESSAGES = 12


def produce(producer: Any) -> None:
    producer.produce("orders", b"of another thread")


def produce_batch(producer: Any) -> None:
    producer.produce_batch("orders", [{"value": b"of another thread"}])


@pytest.mark.usefixtures("patiently_asked")
@pytest.mark.parametrize("call", [produce, produce_batch])
@pytest.mark.parametrize(
    ("kind", "quota"),
    [(confluent_kafka.Producer, None), (kclient_quota.Producer, None), (kclient_quota.Producer, 20_000)],
    ids=["plain", "free", "limited"],
)
def test_another_thread_is_refused_at_once(broker: EmbeddedBroker, kind: Any, quota: int | None, call: Any) -> None:
    broker.set_quota(client_id="app", producer_byte_rate=quota)
    producer = kind({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "linger.ms": 500})
    refused: list[str] = []
    told: list[Any] = []

    def attempt() -> None:
        try:
            call(producer)
        except RuntimeError as error:
            refused.append(str(error))

    def on_delivery(error: Any, _message: Any) -> None:
        told.append(error)
        if len(told) == 1:  # within close(), as nobody polls before
            another = threading.Thread(target=attempt)
            another.start()
            another.join(30)

    for _ in range(MESSAGES):
        producer.produce("orders", b"x" * 300, on_delivery=on_delivery)
    assert producer.close()
    assert refused == ["Producer has been closed"]
    assert told == [None] * MESSAGES, "what was taken before is delivered"
