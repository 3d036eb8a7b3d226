"""Whatever becomes of a producer's sender, what it was given is sent, and `flush()` comes to its end."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.producer import Producer
from tests.integration.made_producers import made

COUNT = 20


@pytest.fixture
def producer(broker: EmbeddedBroker) -> Producer:
    broker.set_quota(client_id="app", producer_byte_rate=20_000)
    return made({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app"})


def once(call: Callable[..., Any], error: BaseException) -> Callable[..., Any]:
    """The same, but that the first call raises."""
    errors = [error]

    def do(*args: Any) -> Any:
        if errors:
            raise errors.pop()
        return call(*args)

    return do


def produced(producer: Producer) -> list[str]:
    told: list[str] = []
    for number in range(COUNT):
        producer.produce(
            "orders",
            b"%d" % number + b"x" * 1_000,
            on_delivery=lambda error, _: told.append("ok" if error is None else error.name()),
        )
    assert producer.flush(30) == 0
    return told


@pytest.mark.parametrize("name", ["hand_to_librdkafka", "ask_librdkafka"])
@pytest.mark.parametrize("error", [SystemExit(3), ValueError("of an agent")], ids=["SystemExit", "ValueError"])
def test_what_an_agent_raises_there_costs_the_message_that_it_was_for(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException
) -> None:
    monkeypatch.setattr(producer, name, once(getattr(producer, name), error))
    failed = int(name == "hand_to_librdkafka")
    assert sorted(produced(producer)) == ["_FAIL"] * failed + ["ok"] * (COUNT - failed)


@pytest.mark.parametrize("error", [SystemExit(3), ValueError("of ours")], ids=["SystemExit", "ValueError"])
def test_it_goes_on_after_any_error(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    sender = producer._kq_sender
    monkeypatch.setattr(sender, "_empty_inbox", once(sender._empty_inbox, error))
    assert produced(producer) == ["ok"] * COUNT
    assert "A producer's sender goes on after an error" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_who_flushes_starts_another_one_when_it_has_ended(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a handler of logs that calls `sys.exit()`, for example, where the sender has something to say."""
    sender = producer._kq_sender
    monkeypatch.setattr(sender, "_empty_inbox", once(sender._empty_inbox, ValueError("of ours")))
    monkeypatch.setattr(sender, "go_on", once(sender.go_on, SystemExit(3)))
    assert produced(producer) == ["ok"] * COUNT


def test_what_has_ended_it_is_raised_by_the_next_call_and_logged_by_one_that_closes(
    producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    """It came out of close() as well where the sender met it later than the application, which had been told."""
    fenced = KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))
    producer._kq_sender.go_on(fenced)
    with pytest.raises(KafkaException, match="fenced"):
        producer.poll(0)
    producer._kq_sender.go_on(fenced)
    assert producer.close()
    assert caplog.text.count("Producer closes after a fatal error") == 1


def test_what_ends_it_while_it_closes_is_logged_whoever_hears_of_it(
    producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    """Where librdkafka is served by the application's call, it is that which hears."""
    producer._kq_outbox.raised = KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))
    assert producer.close()
    assert caplog.text.count("Producer closes after a fatal error") == 1
