"""A transaction that is being committed or aborted: whoever produces in another thread meanwhile is refused.

One that was taken would have the commit wait for it and for all that follow, or be handed over when it is too late:
into the next transaction, or to librdkafka, which refuses it, though the commit succeeds.
"""

import threading
from contextlib import suppress
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

import kclient_quota
from kclient_quota.broker import EmbeddedBroker
from tests.read_committed import committed

MESSAGES = 12
END_TXN = 26
REFUSED = f"Unable to produce message: {KafkaError(KafkaError._STATE).str()}"
KINDS = pytest.mark.parametrize(
    ("kind", "quota"),
    [(confluent_kafka.Producer, None), (kclient_quota.Producer, None), (kclient_quota.Producer, 20_000)],
    ids=["plain", "free", "limited"],
)


class Other:
    """Another thread, which produces once; what it was told."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self.told: list[tuple[int, str]] = []

    def produce(self) -> None:
        try:
            self._producer.produce("orders", b"of another thread")
        except KafkaException as error:
            self.told.append((error.args[0].code(), error.args[0].str()))

    def produce_batch(self) -> None:
        messages: list[dict[str, Any]] = [{"value": b"of another thread"}]
        if not self._producer.produce_batch("orders", messages):
            self.told.append((messages[0]["_error"].code(), REFUSED))

    def run(self, name: str) -> None:
        thread = threading.Thread(target=getattr(self, name))
        thread.start()
        thread.join(30)


def begun(broker: EmbeddedBroker, kind: Any, quota: int | None) -> Any:
    broker.set_quota(client_id="app", producer_byte_rate=quota)
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "transactional.id": "t"}
    producer = kind({**conf, "linger.ms": 500})
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer


@pytest.mark.usefixtures("patiently_asked")
@pytest.mark.parametrize("name", ["produce", "produce_batch"])
@KINDS
def test_while_messages_are_delivered(broker: EmbeddedBroker, kind: Any, quota: int | None, name: str) -> None:
    producer = begun(broker, kind, quota)
    other = Other(producer)
    reports: list[Any] = []

    def on_delivery(error: Any, _message: Any) -> None:
        reports.append(error)
        if len(reports) == 1:  # within the commit, as nobody polls before
            other.run(name)

    for _ in range(MESSAGES):
        producer.produce("orders", b"x" * 300, on_delivery=on_delivery)
    producer.commit_transaction(60)
    assert other.told == [(KafkaError._STATE, REFUSED)]
    assert reports == [None] * MESSAGES
    producer.close()
    assert committed(broker, "orders") == [b"x" * 300] * MESSAGES


@pytest.mark.usefixtures("patiently_asked")
@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
@KINDS
def test_while_the_coordinator_is_asked(broker: EmbeddedBroker, kind: Any, quota: int | None, end: str) -> None:
    producer = begun(broker, kind, quota)
    other = Other(producer)
    producer.produce("orders", b"first")
    producer.flush(60)
    ended = threading.Thread(target=getattr(producer, end), args=(60,))
    asked = threading.Event()
    broker.control(END_TXN, lambda _request: asked.set(), times=None)
    broker.faults.delay_on("EndTxn", 500)
    ended.start()
    assert asked.wait(60)
    other.run("produce")
    broker.faults.clear()
    ended.join(60)
    assert other.told == [(KafkaError._STATE, REFUSED)]
    producer.begin_transaction()
    producer.produce("orders", b"next")
    producer.commit_transaction(60)
    producer.close()
    assert committed(broker, "orders") == [b"first"] * (end == "commit_transaction") + [b"next"]


@pytest.mark.usefixtures("patiently_asked")
def test_who_goes_on_producing_does_not_keep_a_commit_waiting(broker: EmbeddedBroker) -> None:
    producer = begun(broker, kclient_quota.Producer, 20_000)
    ends = threading.Event()
    delivered: list[bytes] = []

    def on_delivery(error: Any, message: Any) -> None:
        if error is None:
            delivered.append(message.value())

    def go_on() -> None:
        number = 0
        while not ends.is_set():
            with suppress(BufferError, KafkaException):
                producer.produce("orders", b"%300d" % number, on_delivery=on_delivery)
                number += 1
            ends.wait(0.001)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        while not delivered:
            producer.poll(0.1)
        producer.commit_transaction(30)
    finally:
        ends.set()
        thread.join(60)
    producer.close()
    assert sorted(committed(broker, "orders")) == sorted(delivered)


def test_a_commit_that_is_refused_refuses_nobody(broker: EmbeddedBroker) -> None:
    """A producer without transactions has none that ends; confluent_kafka says so, and others go on producing."""
    producer = kclient_quota.Producer({"bootstrap.servers": broker.bootstrap_servers})
    other = Other(producer)
    with producer._kq_ending():  # as long as the refusal takes
        other.run("produce")
        other.run("produce_batch")
    with pytest.raises(KafkaException, match="_NOT_CONFIGURED"):
        producer.commit_transaction(1)
    assert other.told == []
    assert producer.flush(30) == 0
    producer.close()
