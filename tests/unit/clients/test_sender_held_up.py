"""An abort while something holds up the producer's thread, which may have begun to hand over what is to be dropped."""

import pytest
from confluent_kafka import KafkaException

from kclient_quota import Producer
from kclient_quota.clients.producer.caller import transacting, waiting
from kclient_quota.clients.producer.sender.sender import Sender
from kclient_quota.clients.producer.transaction import Event

CONF = {
    "bootstrap.servers": "localhost:1",
    "transactional.id": "x",
    "transaction.timeout.ms": 1_000,
    "message.timeout.ms": 500,
    "enable.metrics.push": False,
    "producer_byte_rate": 10_000,
    "log_level": 0,
}


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    """One in the midst of a transaction, whose sender does not come back."""
    monkeypatch.setattr(Sender, "run", lambda *_: None)
    made = Producer(CONF)
    monkeypatch.setattr(waiting, "SLICE_MS", 10)
    monkeypatch.setattr(transacting, "PURGE_MS", 30)
    made._kq_transaction.timeout_ms = 50
    made._kq_outbox.is_running = True
    made._kq_outbox.has_no_thread = False
    made._kq_transaction.on(Event.BEGIN, 0)
    return made


def test_a_transaction_is_not_aborted_before_its_messages_are_dropped(producer: Producer) -> None:
    """The sender went on with them afterwards, in the next transaction, which was then committed with them."""
    for timeout in (0, 0.05, -1):
        with pytest.raises(KafkaException, match=r"abort_transaction: something holds up .* try again") as caught:
            producer.abort_transaction(timeout)
        assert caught.value.args[0].retriable()
    assert producer._kq_transaction.is_open
    assert producer._kq_transaction.ended is None
    producer._kq_outbox.is_running = False
