"""Whoever serves librdkafka: callbacks run in the application's own calls, in the order of their messages."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.producer.caller.waiting import WaitingProducer
from kclient_quota.clients.producer.sender.straight import MANY, SELDOM

EVENTS_MS = 50
"""In place of seconds."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"seldom": 1}) as cluster:
        yield cluster


def producer_of(broker: EmbeddedBroker, **more: Any) -> Producer:
    conf: dict[str, Any] = {"stats_cb": lambda _text: None, "statistics.interval.ms": EVENTS_MS}
    return Producer({**conf, "bootstrap.servers": broker.bootstrap_servers, "client.id": "seldom", **more})


def be_silent(producer: Producer) -> None:
    """Until the sender has looked, as it does once a minute."""
    wait_until(lambda: producer.with_librdkafka() > 3 + MANY)
    producer._kq_outbox.wake()
    wait_until(lambda: producer.with_librdkafka() <= MANY and not producer._kq_outbox.is_running)


def wait_until(so: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not so() and time.monotonic() < until:
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["poll", "flush", "close"])
def test_what_the_sender_has_heard_of_is_told_before_what_librdkafka_has_since(
    broker: EmbeddedBroker, how: str
) -> None:
    heard: list[int] = []
    producer = producer_of(broker)
    for number in range(3):
        producer.produce("seldom", b"x", callback=lambda *_, number=number: heard.append(number))
    be_silent(producer)
    assert producer._kq_outbox.reports
    producer.produce("seldom", b"x", callback=lambda *_: heard.append(3))
    time.sleep(0.3)
    getattr(producer, how)(*([] if how == "close" else [5]))
    producer.close()
    assert heard == [0, 1, 2, 3]


def test_a_poll_that_has_called_back_waits_for_no_more(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def poll_direct(_producer: object, timeout_s: float, *_args: object, **_named: object) -> int:
        waited.append(timeout_s)
        return 0

    with producer_of(broker) as producer:
        producer._kq_outbox.reports.append((int,))
        with monkeypatch.context() as patched:
            patched.setattr(WaitingProducer, "_kq_poll_direct", poll_direct)
            assert producer.poll(5) == 1
        assert waited == [0]


def test_who_does_without_pacing_is_called_in_his_own_calls(broker: EmbeddedBroker) -> None:
    callers: list[str] = []
    with producer_of(broker, **{"quota.backoff": "off", "statistics.interval.ms": 0}) as producer:
        for turn in (1, 2):
            for _ in range(2 * SELDOM):
                producer.produce("seldom", b"x", callback=lambda *_: callers.append(threading.current_thread().name))
            while turn == 1 and len(callers) < 2 * SELDOM:
                producer.poll(0.1)
            producer._kq_outbox.wake()  # as once a minute
            time.sleep(1)
        assert not producer._kq_outbox.is_running, "nobody sends"
        producer.flush(10)
        assert callers == ["MainThread"] * 4 * SELDOM


def test_a_batch_s_callbacks_are_known_of_before_librdkafka_has_them(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with producer_of(broker) as producer:
        seen: list[bool] = []

        def produce_batch(*_args: Any) -> int:
            seen.append(producer._kq_outbox.is_mixed)
            return 1

        owner = next(cls for cls in Producer.__mro__ if cls.__name__ == "TakingProducer")
        monkeypatch.setattr(owner, "produce_batch", produce_batch, raising=False)
        producer.produce_batch("seldom", [{"value": b"x"}])
        assert seen == [True]


def test_a_producer_that_was_never_made_refuses_a_batch_as_plain_does() -> None:
    class Forgets(Producer):
        def __init__(self) -> None: ...

    class Plain(confluent_kafka.Producer):
        def __init__(self) -> None: ...

    for made in (Plain(), Forgets()):
        with pytest.raises(RuntimeError):
            made.produce_batch("seldom", [{"value": b"x"}])
