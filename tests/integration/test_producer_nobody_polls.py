"""A producer that nobody polls for hours keeps no statistics, and `len()` counts none as messages."""

import threading
import time
from typing import Any

import pytest

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.producer.sender.straight import MANY, SELDOM

EVENTS_MS = 50
"""In place of seconds."""


@pytest.mark.parametrize("quota", [None, 20_000_000])
@pytest.mark.parametrize(("count", "flushes"), [(1, False), (SELDOM + 100, True)])
def test_what_librdkafka_tells_is_not_kept_for_who_never_polls(quota: int | None, count: int, flushes: bool) -> None:
    callers: list[str] = []
    with EmbeddedBroker(topics={"seldom": 1}) as cluster:
        if quota:
            cluster.set_quota(client_id="seldom", producer_byte_rate=quota)
        conf: dict[str, Any] = {"stats_cb": lambda _text: None, "statistics.interval.ms": EVENTS_MS}
        conf |= {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "seldom"}
        with Producer(conf) as producer:
            for _ in range(count):
                producer.produce("seldom", b"x", callback=lambda *_: callers.append(threading.current_thread().name))
            if flushes:
                assert producer.flush(10) == 0
            time.sleep(2 * MANY * EVENTS_MS / 1_000)
            producer._kq_outbox.wake()  # as once a minute
            until = time.monotonic() + 10
            while producer.with_librdkafka() > MANY and time.monotonic() < until:
                time.sleep(0.01)
            assert producer.with_librdkafka() <= MANY
            assert callers == ["MainThread"] * count * flushes
            assert producer.flush(10) == 0  # on a busy machine it is delivered only now
            assert callers == ["MainThread"] * count


def test_callbacks_that_librdkafka_may_have_are_left_to_the_application() -> None:
    with EmbeddedBroker(topics={"often": 1}) as cluster:
        callers: list[str] = []
        conf: dict[str, Any] = {"stats_cb": lambda _text: None, "statistics.interval.ms": EVENTS_MS}
        with Producer({**conf, "bootstrap.servers": cluster.bootstrap_servers}) as producer:
            for _ in range(SELDOM + 100):
                producer.produce("often", b"x", callback=lambda *_: callers.append(threading.current_thread().name))
            time.sleep(2 * MANY * EVENTS_MS / 1_000)
            producer._kq_outbox.wake()  # as once a minute
            time.sleep(0.2)
            assert producer.with_librdkafka() > MANY
            producer.poll(0)
            assert callers == ["MainThread"] * (SELDOM + 100)
            until = time.monotonic() + 10
            while producer._kq_outbox.is_mixed and time.monotonic() < until:
                producer.poll(0)
            assert not producer._kq_outbox.is_mixed, "from now on it is served"
