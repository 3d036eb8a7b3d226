"""Time goes on while a test has stopped it for everybody else."""

import ast
import sys
import threading
import time
from pathlib import Path

import pytest

import kclient_quota
from kclient_quota import clock

STOPPED_S = 1_000.0
GO_ON = ("clients", "cluster", "wire", "pacing", "broker/network")
"""What waits in an application's process, and must not wait for ever."""


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("monotonic", "time"):
        monkeypatch.setattr(time, name, lambda: STOPPED_S)
        monkeypatch.setattr(time, f"{name}_ns", lambda: int(STOPPED_S) * 10**9)


@pytest.mark.usefixtures("stopped")
def test_no_clock_stands_still() -> None:
    began, began_ns = clock.monotonic(), clock.monotonic_ns()
    assert began != STOPPED_S
    while clock.monotonic() == began or clock.monotonic_ns() == began_ns:
        pass
    assert clock.unix_ms() > 10**12


def test_freezegun_does_not_find_our_functions() -> None:
    # It puts its own wherever a module has one of these.
    assert clock.monotonic is not time.monotonic
    assert clock.monotonic_ns is not time.monotonic_ns


def test_monotonic_is_none_of_the_functions_that_time_machine_moves_in_every_copy() -> None:
    # Those of its versions 2.13 to 2.19.
    assert {clock.monotonic.__name__, clock.monotonic_ns.__name__} == {"perf_counter", "perf_counter_ns"}


class _TimeMachine:
    """time-machine's way past itself, which is there as soon as its pytest plugin is, and works only on a journey."""

    def __init__(self, *, travelling: bool, back: bool = False) -> None:
        self.escape_hatch = self.time = self
        self.is_travelling = lambda: travelling
        self._is_back = back or not travelling

    def time_ns(self) -> int:
        if self._is_back:
            raise ValueError("Not currently time-travelling.")
        return 7_000_000


def test_time_of_day_is_asked_past_time_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "time_machine", _TimeMachine(travelling=True))
    assert clock.unix_ms() == 7


def test_time_of_day_while_time_machine_is_there_and_nobody_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "time_machine", _TimeMachine(travelling=False))
    assert clock.unix_ms() > 10**12


def test_time_of_day_while_somebody_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "time_machine", _TimeMachine(travelling=True, back=True))
    assert clock.unix_ms() > 10**12


def test_a_patched_sleep_is_not_called_unless_greenlets_wait_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    me = threading.get_ident()

    def sleep(seconds: float) -> None:
        if threading.get_ident() == me:  # PySpark has a thread that sleeps, in the process of these tests too
            slept.append(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    clock.sleep(0)
    assert slept == []
    sleep.__module__ = "gevent.hub"
    clock.sleep(0)
    assert slept == [0]


def test_nothing_that_waits_asks_time_itself() -> None:
    root = Path(kclient_quota.__file__).parent
    named = [
        path for name in GO_ON for path in ([root / name] if name.endswith(".py") else (root / name).rglob("*.py"))
    ]
    asking = [
        path
        for path in named
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Import) and any(alias.name == "time" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "time")
    ]
    assert len(named) > len(GO_ON)
    assert asking == []
