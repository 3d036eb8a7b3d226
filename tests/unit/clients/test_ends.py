"""What is done before a process ends that multiprocessing has forked."""

import threading

import pytest

from kclient_quota.clients import ends


@pytest.fixture(autouse=True)
def _only_threads_that_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests may have left some, as pools do until the process ends."""
    found, me = threading.enumerate, threading.current_thread()
    others = set(found()) - {me}
    monkeypatch.setattr(threading, "enumerate", lambda: [each for each in found() if each not in others])


def test_it_is_done_in_order() -> None:
    done: list[str] = []
    ends._end_child([lambda: done.append("first"), lambda: done.append("last")])
    assert done == ["first", "last"]


def test_it_does_not_end_yet_while_threads_go_on() -> None:
    """Their producers would be left without senders."""
    done: list[str] = []
    works = [lambda: done.append("done")]
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait, daemon=False)
    thread.start()
    try:
        ends._end_child(works)
        assert not done
    finally:
        gate.set()
        thread.join()
    ends._end_child(works)
    assert done


def test_of_one_that_is_not_multiprocessings_nothing_is_expected() -> None:
    ends.expect_end([])
    assert not ends._expected
