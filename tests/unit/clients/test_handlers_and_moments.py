"""Whether a signal's handler may come into a call, and when one that waits outside of confluent_kafka looks."""

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from kclient_quota.clients import calls
from kclient_quota.clients.calls import LEAST_NAP_S, MOST_NAP_S, may_be_a_handlers, moments


@pytest.mark.parametrize(
    ("handler", "expected"),
    [(print, True), (signal.default_int_handler, False), (0, False), (1, False), (None, False)],
    ids=["one of the application's", "Python's for Ctrl-C", "the default", "ignored", "not Python's"],
)
def test_only_handlers_in_python_come_into_a_call(monkeypatch, handler, expected):
    monkeypatch.setattr(calls, "getsignal", lambda number: handler if number == signal.SIGTERM else 0)
    assert may_be_a_handlers() is expected
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(may_be_a_handlers).result(), "they run in the main thread only"


def test_a_handler_is_found_as_signal_has_it():
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        assert may_be_a_handlers()
        assert calls.getsignal(signal.SIGUSR1) is signal.getsignal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


class Time:
    """Passes when somebody sleeps."""

    def __init__(self):
        self.now, self.naps = 100.0, []

    def monotonic(self):
        return self.now

    def sleep(self, duration_s):
        self.naps.append(duration_s)
        self.now += duration_s


@pytest.mark.parametrize(
    ("timeout_s", "waited_s", "first_s"),
    [(1.0, 0.0, LEAST_NAP_S), (1.0, 0.05, 0.0025), (1.0, 60.0, MOST_NAP_S), (0.0002, 60.0, 0.0002)],
)
def test_naps_are_a_twentieth_of_what_was_waited_so_far(monkeypatch, timeout_s, waited_s, first_s):
    time = Time()
    monkeypatch.setattr(calls, "monotonic", time.monotonic)
    monkeypatch.setattr(calls, "sleep", time.sleep)
    looks = sum(1 for _ in moments(timeout_s, waited_s))
    assert looks == len(time.naps) + 1
    assert time.naps[0] == pytest.approx(first_s)
    assert sum(time.naps) == pytest.approx(timeout_s)
    assert max(time.naps) <= MOST_NAP_S


@pytest.mark.parametrize("timeout_s", [0.0, -0.003])
def test_who_may_not_wait_looks_once(timeout_s):
    assert sum(1 for _ in moments(timeout_s, 0.0)) == 1
