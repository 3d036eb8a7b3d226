"""Locks that a Ctrl-C does not leave held.

Up to CPython 3.13 `with lock:` enters without a look for signals. From 3.14 on to enter is a call like any other, after
which Python looks for them: what a handler raises then comes when the lock has been taken and the block that lets go
of it has not begun, so that whoever wants it waits for ever. To leave is a call of C's, and the look comes after it.
"""

import _thread
import sys
import threading


def take(lock: "threading.RLock") -> None:
    """Take it, or not: a loop calls without looking for signals afterwards, and so does a return to Python's code."""
    for _ in iter(lock.acquire, None):
        break


class _Whole(_thread.RLock):  # type: ignore[misc] # final in typeshed only
    """Taken, or not taken, with `with`: nothing that a handler raises comes in between."""

    __slots__ = ()

    def __enter__(self) -> bool:  # type: ignore[override] # `with` gives nothing
        take(self)
        return True


def reentrant_lock() -> "threading.RLock":
    """A lock of `threading`'s, or of what stands in its place (gevent), to be held with `with`."""
    lock = threading.RLock()
    return _Whole() if sys.version_info >= (3, 14) and type(lock) is _thread.RLock else lock
