"""Who of an asyncio consumer's calls may use it: one at a time, of whatever event loop."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kclient_telemetry.locks import reentrant_lock

from kclient_quota.clients.aio.loops import Waiter
from kclient_quota.clients.consumer.receiving.receiving import SLICE_S

if TYPE_CHECKING:
    import concurrent.futures


class Work:
    """A blocking call in a worker, which cannot be cancelled.

    Args:
        loop: where it was made.
        unreceived: takes its result where nobody waits for that any more; called by whoever uses the consumer then.

    Attributes:
        job: the worker's.
        is_lost: whether the call that made it does not have its result.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, unreceived: Callable[[Any], None] | None) -> None:
        self.loop = loop
        self.job: concurrent.futures.Future[Any] | None = None
        self.is_lost = False
        self._unreceived = unreceived
        self._results: list[Any] = []
        self._lock = reentrant_lock()

    @property
    def is_left(self) -> bool:
        """Whether it has ended, and its loop does not run, which so does not receive anything."""
        return self.job is not None and self.job.done() and not self.loop.is_running()

    def end(self, result: Any) -> Any:
        """In the worker: this has come of it."""
        with self._lock:
            self._results.append(result)
            if self.is_lost:
                self.give_back()
        return result

    def lose(self) -> bool:
        """Nobody waits for it any more; returns whether that is new."""
        with self._lock:
            was_lost, self.is_lost = self.is_lost, True
            return not was_lost

    def give_back(self) -> None:
        """Have its result taken, where there is one."""
        with self._lock:
            while self._results:
                result = self._results.pop()
                if self._unreceived is not None:
                    self._unreceived(result)

    def abandon(self) -> None:
        """The call that made it ends without it: what is to be done about that is done when, and where, it ends."""
        if self.lose():
            self.give_back()

    def then(self, call: Callable[[], None]) -> None:
        """Have the loop call this when it has ended, unless the loop itself has."""

        def tell(_job: object) -> None:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(call)

        if self.job is not None:
            self.job.add_done_callback(tell)


class CallTurns:
    """Whose turn it is: the first one's of those who wait in a loop that runs."""

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        self._work: Work | None = None
        self._waiters: deque[Waiter] = deque()

    def are_taken(self) -> bool:
        """Whether somebody uses the consumer."""
        with self._lock:
            return self._work is not None and not self._work.is_left

    async def take(self, work: Work) -> Work | None:
        """Wait for the turn, which lasts until `end()`; or until the work has ended, where its loop stands still.

        Returns:
            that of a loop which stands still: its result is to be given back first.
        """
        given = self._given(work, None)
        if given is None:
            waiter = Waiter()
            with self._lock:
                self._waiters.append(waiter)
            try:
                while (given := self._given(work, waiter)) is None:
                    with suppress(TimeoutError):  # another loop may stand still at any moment, and tells nobody
                        async with asyncio.timeout(SLICE_S):
                            await waiter.wait()
            finally:
                with self._lock:
                    self._waiters.remove(waiter)
                    self._wake()
        return given[0]

    def end(self, work: Work) -> None:
        """It needs its turn no more; from any thread."""
        with self._lock:
            if self._work is work:
                self._work = None
                self._wake()

    def _given(self, work: Work, waiter: Waiter | None) -> tuple[Work | None] | None:
        with self._lock:
            if self.are_taken() or self._first() is not waiter:
                return None
            left, self._work = self._work, work
            if left is not None and not left.lose():
                left = None
            return (left,)

    def _first(self) -> Waiter | None:
        # A copy: who is collected as garbage meanwhile leaves.
        return next((waiter for waiter in list(self._waiters) if waiter.loop.is_running()), None)

    def _wake(self) -> None:
        if not self.are_taken() and (first := self._first()) is not None:
            first.wake()
