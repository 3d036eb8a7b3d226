"""Ctrl-C at random moments while callbacks are served from C, which loses what is raised in them."""

import _thread
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import pytest

from kclient_quota.clients import interrupts
from kclient_quota.clients.interrupts import interruptible

INTERRUPTS = 50


@pytest.fixture
def own_handler() -> Iterator[None]:
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def caller() -> None:
    """As a user's callback: some calls, where signals are noticed."""
    sum(map(len, ("a", "bc")))


@pytest.mark.usefixtures("own_handler")
@pytest.mark.parametrize("users", [False, True])
def test_no_interrupt_comes_out_of_a_callback_and_none_is_lost(users: bool) -> None:
    callback = interruptible(lambda _event: caller(), (lambda _event: caller()) if users else None)
    chance = random.Random(1)
    for _ in range(INTERRUPTS):
        timer = threading.Timer(chance.uniform(0.0005, 0.005), _thread.interrupt_main)
        with pytest.raises(KeyboardInterrupt) as caught:
            serve_until_interrupted(callback, timer)
        timer.join()
        assert interrupts.__file__ not in files(caught.value)


def serve_until_interrupted(callback: Callable[[Any], Any], timer: threading.Timer) -> None:
    timer.start()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        # The loop is C's, as confluent_kafka's poll is; half the time goes by outside.
        list(map(callback, repeat("event", 4)))
        for _ in range(500):
            pass


def files(error: BaseException) -> set[str]:
    found: set[str] = set()
    step = error.__traceback__
    while step is not None:
        found.add(step.tb_frame.f_code.co_filename)
        step = step.tb_next
    return found
