"""A callback in which Ctrl-C arrives."""

import logging
import signal
import time

import pytest

from kclient_quota.clients.interrupts import interruptible


def test_events_are_handed_on() -> None:
    seen: list[object] = []
    callback = interruptible(seen.append)
    callback(1)
    callback("two")
    assert seen == [1, "two"]


def test_an_interrupt_in_the_callback_is_given_again_outside_of_it() -> None:
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    entered: list[object] = []

    def handle(event: object) -> None:
        entered.append(event)
        signal.raise_signal(signal.SIGINT)

    callback = interruptible(handle)
    try:
        callback("event")
        with pytest.raises(KeyboardInterrupt):
            time.sleep(5)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert entered == ["event"]


def test_what_a_callback_raises_is_logged_and_the_next_event_is_served(caplog: pytest.LogCaptureFixture) -> None:
    callback = interruptible(lambda event: 1 // event)
    with caplog.at_level(logging.ERROR, "kclient_quota"):
        callback(0)
        callback(1)
    assert "ZeroDivisionError" in caplog.text
