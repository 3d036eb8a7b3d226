"""What is done before a process ends that multiprocessing has forked, which calls no exit handlers."""

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final

_LAST: Final = -100
"""Finalizers of multiprocessing's, and of others, which may still flush, have higher priorities."""

_expected: Final[list[None]] = []
"""One entry, where this process's end has been prepared."""


def expect_end(works: Sequence[Callable[[], None]]) -> None:
    """Have this done, in this order; called where a client is made, as a child drops what was told of before it began.

    Elsewhere than in such a child exit handlers do it.
    """
    processes, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if _expected or processes is None or util is None or processes.parent_process() is None:
        return
    _expected.append(None)
    util.Finalize(None, _end_child, args=(works,), exitpriority=_LAST)


def _end_child(works: Sequence[Callable[[], None]]) -> None:
    me = threading.current_thread()
    if all(thread.daemon or thread is me for thread in threading.enumerate()):  # others go on, for as long as they like
        for work in works:
            work()


os.register_at_fork(after_in_child=_expected.clear)
