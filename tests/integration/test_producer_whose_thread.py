"""Whoever serves librdkafka: callbacks run in the application's own calls."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.producer.sender.straight import SELDOM

EVENTS_MS = 50
"""In place of seconds."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"seldom": 1}) as cluster:
        yield cluster


def producer_of(broker: EmbeddedBroker, **more: Any) -> Producer:
    conf: dict[str, Any] = {"stats_cb": lambda _text: None, "statistics.interval.ms": EVENTS_MS}
    return Producer({**conf, "bootstrap.servers": broker.bootstrap_servers, "client.id": "seldom", **more})


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
