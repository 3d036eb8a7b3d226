"""What is done before a process ends that multiprocessing has forked."""

import threading

import pytest

from kclient_quota.clients import ends


def test_what_was_told_of_last_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(ends, "_works", [lambda: done.append("first"), lambda: done.append("last")])
    ends._end_child()
    assert done == ["last", "first"]


def test_it_does_not_end_yet_while_threads_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their producers would be left without senders."""
    done: list[str] = []
    monkeypatch.setattr(ends, "_works", [lambda: done.append("done")])
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait, daemon=False)
    thread.start()
    try:
        ends._end_child()
        assert not done
    finally:
        gate.set()
        thread.join()
    ends._end_child()
    assert done


def test_of_one_that_is_not_multiprocessings_nothing_is_expected() -> None:
    ends.expect_end()
    assert not ends._expected
