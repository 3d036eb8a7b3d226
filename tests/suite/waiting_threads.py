"""What all threads were at when a test failed that had waited for long: who it waited for shows there only."""

import sys
import threading
import traceback
from collections.abc import Generator
from typing import Any

import pytest

LONG_S = 30.0
"""What fails earlier has not waited for a deadline."""


class WaitingThreads:
    """A plug-in that adds them to such a test's report."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if report.failed and call.duration >= LONG_S:
            report.sections.append(("threads when it had failed", stacks()))
        return report


def stacks() -> str:
    """Where each thread of this process is, those that Python's `threading` does not know among them."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = []
    for ident, frame in sys._current_frames().items():
        found.append(f"{names.get(ident, 'a thread of no name')}:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(found)
