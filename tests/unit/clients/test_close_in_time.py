"""A close on a machine so busy that each wait takes longer than it was to, and the sender does not answer."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kclient_quota import Producer
from kclient_quota.clients.producer.caller import waiting
from kclient_quota.clients.producer.sender.sender import Sender

LATE_MS = 400
BLOCK_MS = 8_000
CONF = {
    "bootstrap.servers": "localhost:1",
    "enable.metrics.push": False,
    "producer_byte_rate": 10_000,
    "max.block.ms": BLOCK_MS,
    "log_level": 0,
}


class BusyTime:
    """Passes with waits, and faster than they should take."""

    def __init__(self) -> None:
        self.ms = 1_000
        self.outbox: Any = None

    def now_ms(self) -> int:
        return self.ms

    def wait(self, timeout_s: float) -> None:
        """Until a bell is rung, which none is."""
        self.ms += round(timeout_s * 1000) + LATE_MS
        if self.outbox.stops:
            self.outbox.is_running = False

    def acquire(self, timeout: float | None = None) -> bool:
        """A lock that nobody releases; it is free at first."""
        if timeout is not None:
            self.wait(timeout)
        return timeout is None

    def ring(self) -> None:
        """Nobody hears it."""

    release = ring


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> BusyTime:
    passing = BusyTime()
    monkeypatch.setattr(Sender, "run", lambda *_: None)
    monkeypatch.setattr(waiting, "threading", SimpleNamespace(Lock=lambda: passing))
    return passing


@pytest.fixture
def producer(time: BusyTime) -> Iterator[Producer]:
    """One with messages that wait, whose sender is held up for good."""
    made = Producer(CONF)
    outbox = time.outbox = made._kq_outbox
    made._kq_clock = made._kq_sender.clock = time  # type: ignore[assignment] # all that is asked of it here
    outbox.news = time  # type: ignore[assignment] # the same
    outbox.is_running = True
    yield made
    outbox.is_running = False


def test_waits_of_a_close_do_not_add_up(producer: Producer, time: BusyTime) -> None:
    """Reports of what is purged were waited for six times, in slices that were counted: half a minute in all."""
    reports: list[Any] = []
    for _ in range(3):
        producer.produce("t", b"x", on_delivery=lambda error, _: reports.append(error and error.name()))
    began_ms = time.ms
    assert producer.close()
    assert time.ms - began_ms <= BLOCK_MS + waiting.PURGE_MS + 4 * (waiting.SLICE_MS + LATE_MS)
    assert reports == ["_PURGE_QUEUE"] * 3, "each is told all the same"
