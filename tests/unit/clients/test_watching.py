"""Who looks after consumers that nobody polls; looked after by hand here."""

import logging
import threading

import pytest

from kclient_quota.clients.consumer.watching import PollWatch, Watching
from kclient_quota.clients.heartbeat import Heartbeat
from kclient_quota.testing.clock import ManualClock


def watched(clock: ManualClock, client_id: str = "app", interval_ms: int = 300_000) -> PollWatch:
    return PollWatch(client_id, Heartbeat(interval_ms, clock.now_ms()), clock)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watching:
    """One whose thread does nothing: the test looks by itself."""
    monkeypatch.setattr(Watching, "_run", lambda *_: None)
    return Watching()


def test_a_warning_before_the_limit_and_none_for_who_polls(watch: Watching, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    silent, busy = watched(clock, "silent"), watched(clock, "busy")
    watch.add(silent)
    watch.add(busy)
    waits = []
    with caplog.at_level(logging.WARNING, "kclient_quota"):
        for _ in range(400):
            clock.sleep_ms(1_000)
            busy.heartbeat.on_poll(clock.now_ms())
            waits.append(watch.check())
            if clock.now_ms() < 240_000:
                assert caplog.text == ""
    (record,) = caplog.records
    assert "'silent' has not polled for 240000 ms" in record.getMessage()
    assert "in 60000 ms" in record.getMessage()
    assert "max.poll.interval.ms=300000" in record.getMessage()
    assert min(waits) > 0
    assert max(waits) <= 60_000


def test_who_is_removed_is_forgotten(watch: Watching, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    one = watched(clock)
    watch.add(one)
    watch.add(one)
    watch.remove(one)
    watch.remove(one)
    clock.sleep_ms(10**6)
    assert watch.check() == 60_000
    assert caplog.text == ""


def test_the_thread_ends_with_the_last_consumer_and_begins_anew() -> None:
    watch, clock = Watching(), ManualClock()
    for _ in range(2):
        one, two = watched(clock), watched(clock)
        watch.add(one)
        watch.add(two)
        thread = watch._thread
        assert thread is not None
        assert thread.daemon
        watch.remove(one)
        assert thread.is_alive()
        watch.remove(two)
        thread.join(60)
        assert not thread.is_alive()
        assert thread not in threading.enumerate()


def test_one_that_fails_is_told_of_and_the_others_are_looked_after(
    watch: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread of all consumers ended with it."""

    class Failing:
        def look(self) -> int:
            raise ValueError("on purpose")

    clock = ManualClock()
    watch.add(Failing())
    watch.add(watched(clock))
    clock.sleep_ms(270_000)
    with caplog.at_level(logging.WARNING, "kclient_quota"):
        watch.check()
        assert watch.check() > 0
    first, second, third = caplog.records
    assert first.getMessage() == third.getMessage()
    assert "ValueError: on purpose" in (first.exc_text or "")
    assert "has not polled" in second.getMessage()
