"""What is done before a process ends: one that multiprocessing has forked, too, which calls no exit handlers."""

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import Final

Work = Callable[[], None]

_LAST: Final = -100
"""Finalizers of multiprocessing's, and of others, which may still flush, have higher priorities."""

_works: Final[list[Work]] = []
_expected: Final[list[None]] = []
"""One entry, where this process's end has been prepared."""


def at_end(work: Work) -> Work:
    """Do something before a process ends in which `expect_end()` was called; what is told of last comes first."""
    _works.append(work)
    return atexit.register(work)


def expect_end() -> None:
    """There is something to do; called where a client is made, as a child drops what it was told of before it began."""
    processes, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if _expected or processes is None or util is None or processes.parent_process() is None:
        return
    _expected.append(None)
    util.Finalize(None, _end_child, exitpriority=_LAST)


def _end_child() -> None:
    me = threading.current_thread()
    if all(thread.daemon or thread is me for thread in threading.enumerate()):  # others go on, for as long as they like
        for work in reversed(_works):
            work()


os.register_at_fork(after_in_child=_expected.clear)
