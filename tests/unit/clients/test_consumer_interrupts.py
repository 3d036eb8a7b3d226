"""A callback in which Ctrl-C arrives."""

import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kclient_quota.clients.interrupts import interruptible


@pytest.fixture
def own_handler() -> Iterator[None]:
    """Ctrl-C is Python's own meanwhile."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def interrupted(_event: object) -> None:
    signal.raise_signal(signal.SIGINT)


def test_events_are_handed_on() -> None:
    seen: list[object] = []
    callback = interruptible(seen.append, lambda event: seen.append((event, "theirs")))
    callback(1)
    callback("two")
    assert seen == [1, (1, "theirs"), "two", ("two", "theirs")]


@pytest.mark.usefixtures("own_handler")
@pytest.mark.parametrize("pair", [(interrupted, None), (None, interrupted), (interrupted, interrupted)])
def test_an_interrupt_in_the_callback_is_given_again_when_its_result_is_dropped(pair: Any) -> None:
    callback = interruptible(*pair)
    for _ in range(3):
        results = [callback("event")]
        assert results != [None]
        with pytest.raises(KeyboardInterrupt):
            drop(results)
    assert interruptible(lambda _event: None)("event") is None


def drop(results: list[object]) -> None:
    """Python notices a signal at one of the next instructions."""
    results.clear()
    for _ in range(1_000):
        pass


@pytest.mark.usefixtures("own_handler")
def test_an_interrupt_reaches_who_polls_however_many_callbacks_come_before() -> None:
    callback = interruptible(interrupted)
    with pytest.raises(KeyboardInterrupt):
        # C drops each result before it makes the next call, in which the signal is met again.
        any(map(lambda event: callback(event) is not None and event == 9, range(10)))  # noqa: C417 - C's own loop


def test_what_our_callback_raises_is_logged_and_the_users_is_called_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[int] = []
    callback = interruptible(lambda event: 1 // event, seen.append)
    with caplog.at_level(logging.ERROR, "kclient_quota"):
        callback(0)
        callback(1)
    assert "ZeroDivisionError" in caplog.text
    assert seen == [0, 1]


def test_what_the_users_callback_raises_goes_to_whoever_polls_and_the_next_event_is_served() -> None:
    seen: list[int] = []

    def theirs(event: int) -> None:
        if event % 2:
            raise LookupError(event)
        seen.append(event)

    callback = interruptible(lambda _event: None, theirs)
    for event in range(6):
        if event % 2:
            with pytest.raises(LookupError):
                callback(event)
        else:
            callback(event)
    assert seen == [0, 2, 4]


def test_several_threads_may_be_in_the_callback_at_once() -> None:
    both = threading.Barrier(3)
    callback = interruptible(theirs=lambda _event: both.wait(20))
    failed: list[BaseException] = []

    def call() -> None:
        try:
            callback("event")
        except BaseException as error:  # noqa: BLE001 - told to the test
            failed.append(error)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    both.wait(20)
    for thread in threads:
        thread.join(20)
    assert failed == []
