"""A signal and its handler: when a test raises it, or between two given lines of a call, wherever they are."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Stop(Exception):  # noqa: N818 - as `KeyboardInterrupt`, no error
    """What the handler of a signal raises."""


@contextmanager
def handled(handler: Callable[[], object]) -> Iterator[None]:
    """The signal is handled so."""
    before = signal.signal(signal.SIGUSR1, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def interrupted(work: Callable[[], object], handler: Callable[[], object], at: int) -> bool:
    """Do `work` in the main thread, with a signal before its line number `at`, in the order in which they run.

    Returns:
        whether there were so many lines.
    """
    left, had = at, sys.gettrace()

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left < 0:
                sys.settrace(None)
                signal.raise_signal(signal.SIGUSR1)
                return None
        return trace

    with handled(handler):
        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(had)
    return left < 0
