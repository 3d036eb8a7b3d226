"""What threads have started and must not outlive an interruption, such as Ctrl-C while they wait for it."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from functools import partial
from typing import TypeVar

from kclient_quota.errors import KclientQuotaError

T = TypeVar("T")

_LOOK_S = 0.1


def as_they_end(futures: Iterable[Future[T]]) -> Iterator[Future[T]]:
    """Futures as they end. Waits a moment at a time: who waits for a lock without end may not hear of Ctrl-C."""
    left = set(futures)
    while left:
        done, left = wait(left, _LOOK_S, FIRST_COMPLETED)
        yield from done


class Children:
    """Starts things, and ends all of them at once; afterwards nothing is started any more."""

    def __init__(self) -> None:
        self._ends: list[Callable[[], object]] = []
        self._is_over = False
        self._lock = threading.Lock()

    def start(self, begin: Callable[[], T], end: Callable[[T], object]) -> T:
        """Start something.

        Args:
            begin: starts it.
            end: ends it, from any thread; it may have ended by itself by then. An OSError is passed over.

        Raises:
            KclientQuotaError: all has been ended.
        """
        with self._lock:  # whoever ends all waits for what is just being started
            if self._is_over:
                raise KclientQuotaError("interrupted")
            child = begin()
            self._ends.append(partial(end, child))
        return child

    def end(self) -> None:
        """End everything."""
        with self._lock:
            self._is_over = True
        for end in self._ends:
            with suppress(OSError):
                end()
