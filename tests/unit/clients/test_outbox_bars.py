"""Which way a message goes when an interrupt, or another thread, comes while that is being changed."""

import sys
import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from kclient_quota import Producer
from kclient_quota.clients.producer import outbox as outbox_module
from kclient_quota.clients.producer import producer as producer_module
from kclient_quota.clients.producer.outbox import Outbox
from kclient_quota.clients.producer.sender.hearing import Hearing
from kclient_quota.clients.producer.sender.sender import Sender
from kclient_quota.clients.throttle_log import WorthLog
from kclient_quota.config import Backoff
from kclient_quota.testing.clock import ManualClock
from tests.unit.clients.producer_world import LIMITED, NONE, core_of

CONF = {
    "bootstrap.servers": "localhost:1",
    "enable.idempotence": False,
    "enable.metrics.push": False,
    "producer_byte_rate": 10_000_000,
    "message.timeout.ms": 1_000,
    "log_level": 0,
}


def interrupted(outbox: Outbox, name: str, it: bool, at: int) -> bool:
    """Change this; a Ctrl-C comes before so many lines. Whether it came."""
    before, lines = sys.gettrace(), 0

    def trace(frame: Any, event: str, _arg: object) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != outbox_module.__file__:
            return None
        lines += event == "line"
        if lines == at:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        setattr(outbox, name, it)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("name", ["is_open", "is_spare"])
def test_an_interrupt_leaves_no_message_a_way_that_is_closed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    straight: list[Any] = []
    monkeypatch.setattr(Sender, "run", lambda *_: None)
    monkeypatch.setattr(producer_module, "PRODUCE_IN_C", lambda *args: straight.append(args))
    producer = Producer(CONF)
    outbox = producer._kq_outbox
    outbox.stops, outbox.is_lull = True, False
    at = 0
    while True:
        at += 1
        outbox.is_open = outbox.is_spare = False
        outbox.spare = 1_000_000
        setattr(outbox, name, True)
        has_come = interrupted(outbox, name, False, at)
        is_open = getattr(outbox, name)
        producer.produce("t", b"v")
        assert bool(straight) is is_open, f"before line {at}"
        straight.clear()
        if not has_come:
            break
    assert at > 2, "it came somewhere"


class Notices:
    """Another thread brings one just after it was looked whether there are any."""

    def __init__(self, comes: Any) -> None:
        self.comes = comes
        self.all: deque[Any] = deque()
        self.looks = 0

    def __bool__(self) -> bool:
        there = bool(self.all)
        self.looks += 1
        if self.looks == 2:  # hear() has looked before
            other = threading.Thread(target=self.comes)
            other.start()
            other.join()
        return there

    def append(self, notice: Any) -> None:
        self.all.append(notice)

    def popleft(self) -> Any:
        return self.all.popleft()


def test_a_quota_that_comes_while_a_producer_is_being_opened_closes_it() -> None:
    """Messages went straight, above the quota, until the broker throttled."""
    outbox, clock = Outbox(), ManualClock(0)
    hearing = Hearing(outbox, "app", NONE, Backoff.BLOCK, clock)
    transaction: Any = SimpleNamespace(lost=None, possible=False, is_late=lambda _now_ms: False)
    metrics: Any = SimpleNamespace(lanes=[""])
    worth = WorthLog("app", "none", 1_000)
    lock = threading.RLock()
    sender = Sender(outbox, core_of(NONE), transaction, clock=clock, lock=lock, metrics=metrics, worth=worth)
    outbox.is_running = True
    outbox.notices = Notices(lambda: hearing.on_limit(LIMITED))  # type: ignore[assignment]
    assert not sender._opens()
    assert not outbox.is_open
