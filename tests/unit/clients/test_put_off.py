"""What a thread cannot wait for is done by another; the process does not end before that."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kclient_quota.clients import calls
from kclient_quota.clients.calls import CallApart, put_off


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    calls.do_put_off()
    yield
    calls.do_put_off()


def test_the_end_of_the_process_does_it_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 starts none once it has begun to end, with `flush()` still to come: what waited was lost."""
    done: list[int] = []

    def refuse(*_args: Any) -> int:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    def raise_it() -> None:
        done.append(1)
        raise ValueError

    monkeypatch.setattr("_thread.start_new_thread", refuse)
    put_off(raise_it)
    put_off(put_off, done.append, 2)
    assert not done
    calls.do_put_off()
    assert done == [1, 2]


def test_the_end_of_the_process_waits_for_what_comes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took the place of what had been waited for, and was passed over."""
    gate, begun = threading.Event(), threading.Event()
    wait, waited = CallApart.wait, []

    def late() -> None:
        begun.set()
        gate.wait()
        waited.append("late")

    def waiting(call: CallApart, timeout_s: float) -> bool:
        if begun.is_set():
            gate.set()
        is_done = wait(call, timeout_s)
        if not begun.is_set():
            put_off(late)
            begun.wait()
        return is_done

    monkeypatch.setattr(CallApart, "wait", waiting)
    put_off(int)
    try:
        calls.do_put_off()
        assert waited == ["late"]
    finally:
        gate.set()
