"""A lock of the whole process that is made when it is first needed."""

import threading
from collections.abc import Callable

from kclient_telemetry.locks import take


class LateLock:
    """A lock for what all of a process have in common; use it with `with`.

    A signal's handler that comes in between may make a client, too: its own thread is let in again.

    gevent and eventlet put locks of their own in the place of threading's, often after this was imported. One that was
    made before would block all greenlets at once, or tell them that it is not theirs.
    """

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Be held by nobody. A forked child calls this: a thread of its parent's may have held it."""
        self._made: dict[str, threading.RLock] = {}

    def _lock(self) -> threading.RLock:
        # `setdefault` is one step: of two threads that are the first both get the same lock.
        return self._made.setdefault("lock", threading.RLock())

    def __enter__(self) -> None:
        take(self._lock())

    def _leave(self) -> Callable[..., object]:
        return self._lock().__exit__

    # Looked up before the lock is held; its own, so that no line of Python's comes before it is free again.
    __exit__ = property(_leave)
