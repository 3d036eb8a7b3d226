"""Ctrl-C at random moments while callbacks are served from C, which loses what is raised in them."""

import _thread
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import pytest

from kclient_quota.broker import EmbeddedBroker
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
def test_no_interrupt_comes_out_of_a_callback_and_none_is_lost(users: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "AGAIN_S", 0.002)
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


SCRIPT = """
import signal, sys
from kclient_quota.clients.producer import Producer
signal.signal(signal.SIGINT, signal.default_int_handler)

def slow(_event):
    sum(range(200_000))

producer = Producer({"bootstrap.servers": sys.argv[1], "enable.metrics.push": False, "error_cb": slow,
    "throttle_cb": slow, "stats_cb": slow, "statistics.interval.ms": 10})
producer.poll(0.1)
print("waits", flush=True)
for _ in range(10):
    try:
        while True:
            producer.poll(60)
    except KeyboardInterrupt:
        print("stopped", flush=True)
producer.close()
"""


def test_ctrl_c_ends_a_loop_of_polls_of_a_producer_that_is_busy_with_the_users_own_callbacks() -> None:
    with (
        EmbeddedBroker() as broker,
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, broker.bootstrap_servers], stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "waits"
        for attempt in range(10):
            time.sleep(0.03 + attempt * 0.013)
            begin = time.monotonic()
            os.kill(process.pid, signal.SIGINT)
            assert process.stdout.readline().strip() == "stopped"
            # Lost ones would never be answered; the bound is for a busy machine.
            assert time.monotonic() - begin < 10
        assert process.wait(20) == 0
