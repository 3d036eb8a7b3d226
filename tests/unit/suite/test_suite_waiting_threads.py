"""What the report of a test says that has failed for want of time."""

import threading
from types import SimpleNamespace

import pytest

from tests.suite.waiting_threads import LONG_S, WaitingThreads


def reported(outcome: str, seconds: float) -> list[tuple[str, str]]:
    report = SimpleNamespace(failed=outcome == "failed", sections=[])
    hook = WaitingThreads().pytest_runtest_makereport(SimpleNamespace(duration=seconds))
    next(hook)
    with pytest.raises(StopIteration) as end:
        hook.send(report)
    assert end.value.value is report
    return report.sections


def wait_for_nobody(until: threading.Event) -> None:
    until.wait()


def test_one_that_has_waited_for_long_tells_where_all_threads_are():
    until = threading.Event()
    thread = threading.Thread(target=wait_for_nobody, args=(until,), name="somebody")
    thread.start()
    try:
        [(title, text)] = reported("failed", LONG_S)
    finally:
        until.set()
        thread.join()
    assert title == "threads when it had failed"
    assert "somebody:\n" in text
    assert "in wait_for_nobody" in text
    assert "MainThread:\n" in text


@pytest.mark.parametrize(("outcome", "seconds"), [("passed", LONG_S), ("failed", LONG_S - 1)])
def test_others_do_not(outcome, seconds):
    assert reported(outcome, seconds) == []
