"""What waits for the disk itself does so in a thread of its own, so that nobody who asks the broker waits with it."""

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

MOST_WAITING: Final = 64
"""Each may hold a file open, and a disk is no faster for a longer queue."""

_LOG = logging.getLogger(__name__)


class WriteBack:
    """Does one thing after the other, in the order in which they were given; its thread begins with the first.

    Args:
        most: more than these are waited for.
    """

    def __init__(self, most: float = MOST_WAITING) -> None:
        self._most = most
        self._thread = ThreadPoolExecutor(1, "kclient-quota-disk")
        self._given: deque[Future[None]] = deque()
        self._is_closed = False

    def later(self, work: Callable[[], None]) -> None:
        """Do this once what was given before is done, or at once after `close`; an OSError of it is logged."""
        if self._is_closed:
            _done(work)
            return
        while self._given and (self._given[0].done() or len(self._given) >= self._most):
            wait([self._given.popleft()])
        self._given.append(self._thread.submit(_done, work))

    @property
    def is_busy(self) -> bool:
        """Whether something is still to be done."""
        return bool(self._given) and not self._given[-1].done()

    def wait(self) -> None:
        """Until everything is done."""
        if self._given:
            self._given[-1].result()

    def close(self) -> None:
        """Do what is left."""
        self._thread.shutdown()
        self._is_closed = True


def _done(work: Callable[[], None]) -> None:
    try:
        work()
    except OSError as error:
        _LOG.error("data could not be synced: %s", error)
