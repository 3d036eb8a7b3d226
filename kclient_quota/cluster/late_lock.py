"""A lock of the whole process that is made when it is first needed."""

import threading


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

    def __enter__(self) -> None:
        # `setdefault` is one step: of two threads that are the first both get the same lock.
        self._made.setdefault("lock", threading.RLock()).acquire()

    def __exit__(self, *_: object) -> None:
        self._made["lock"].release()
