"""What `AIOProducer` does beside its calls: one task hands messages over, the pump, and another polls for reports.

Blocking calls run in workers. A task may be cancelled with all others, at the end of a loop or of an application, while
its worker goes on: whatever that has is kept, and is seen to by whoever comes next.
"""

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException

from kclient_quota.clients.aio.buffer import Buffer, hand_over
from kclient_quota.clients.aio.pending import Pending, Report
from kclient_quota.clients.aio.transactions import AIOTransactions
from kclient_quota.clients.producer.waiting import SLICE_MS

if TYPE_CHECKING:
    from kclient_quota.clients.producer.sorting import Place

MOST_AT_ONCE: Final = 1_000
"""Messages one worker hands over before the event loop hears of it."""


class Handing(AIOTransactions):
    """What stands between the buffer and the futures of delivered messages; all state belongs to the event loop."""

    executor: concurrent.futures.Executor
    _loop: asyncio.AbstractEventLoop
    _buffer: Buffer
    _in_hand: list[Pending]  # what the worker has that hands over, `_handing`
    _handing: "concurrent.futures.Future[dict[Place, BufferError]] | None"
    _reports: deque[Report]
    _timer: asyncio.TimerHandle | None
    _pump: "asyncio.Task[None] | None"
    _poller: "asyncio.Task[None] | None"
    _closing: "asyncio.Task[None] | None"
    _retry_after_ms: int
    _full: "Mapping[Place, BufferError]"
    _has_news: asyncio.Event
    _purged: bool

    # Handing over -------------------------------------------------------------------------------------------------

    def _hand_now(self, pending: Pending) -> None:
        """Hand one message over or raise, without an await: a call that is cancelled has not sent anything.

        It takes microseconds, and up to 20 ms where the sender has to be asked whether there is room.
        """
        error = hand_over(self._producer, [pending], self._reports).get(pending.place) or pending.error
        self._start_poller()
        if error is not None and (self._producer.overdue is None or not isinstance(error, Exception)):
            raise error  # also what a signal's handler has raised: this is its thread

    def _start_pump(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting() and self._pump is None:
            self._pump = self._loop.create_task(self._run_pump())

    async def _run_pump(self) -> None:
        me = asyncio.current_task()
        try:
            while self._waiting():
                wait_ms = await self._pump_once()
                if wait_ms:
                    began_ms = self._clock.now_ms()
                    self._beats.start()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(min(wait_ms, SLICE_MS) / 1000):
                            await self._has_news.wait()
                    self._producer.note_wait(self._clock.now_ms() - began_ms)
        except asyncio.CancelledError:
            # With all other tasks, at the end of a loop or of an application. Messages go on with whatever comes next.
            if self._pump is me and self._timer is None:
                self._timer = self._loop.call_later(SLICE_MS / 1000, self._start_pump)
            raise
        except Exception:
            # The executor was shut down, and nobody hands these over; not a pump of a loop before.
            if self._pump is me:
                self._drop(lambda delivered: delivered.cancel())
                for pending in self._in_hand:
                    pending.drop()
                self._in_hand, self._handing = [], None
            raise
        finally:
            if self._pump is me:
                self._pump = None

    async def _pump_once(self) -> int:
        """Hand over what may go; returns after how many milliseconds to try again."""
        if self._handing is None:
            self._purged = False
            self._has_news.clear()
            self._in_hand = self._buffer.take(MOST_AT_ONCE)
        # Otherwise a pump before was cancelled, whose worker goes on or has not begun: what that has comes first.
        if self._handing is None or self._handing.cancelled():
            self._handing = self.executor.submit(hand_over, self._producer, self._in_hand, self._reports)
        refused = await asyncio.wrap_future(self._handing)
        batch, self._in_hand, self._handing = self._in_hand, [], None
        now_ms = self._clock.now_ms()
        rest = []
        for pending in batch:
            if pending.handed:
                self._buffer.handed(pending, now_ms)
                pending.fail(pending.error)
            else:
                rest.append(pending)
        if len(rest) < len(batch):
            self._start_poller()
        if self._purged:
            for pending in rest:
                self._buffer.release(pending)
                pending.drop()
            return 0
        self._buffer.put_back(rest, refused)
        self._full = refused
        if not refused:
            return 0
        self._retry_after_ms = min(getattr(error, "retry_after_ms", SLICE_MS) for error in refused.values())
        # Those that have waited for `max.block.ms` while none of their line was admitted are given up.
        for pending in self._buffer.overdue(refused, now_ms, self._max_block_ms):
            self._refused = True
            pending.fail(refused[pending.place])
        return max(1, self._retry_after_ms)

    def _drop(self, tell: "Callable[[asyncio.Future[Any]], object]") -> None:
        """Forget what waits here, including what a worker was given but the quota sends back."""
        self._purged = True
        for pending in self._in_hand:
            pending.dropped = tell
        for pending in self._buffer.clear():
            if pending.is_expected:
                tell(pending.delivered)

    # Hearing ------------------------------------------------------------------------------------------------------

    def _start_poller(self) -> None:
        if self._poller is None:
            self._poller = self._loop.create_task(self._run_poller())

    async def _run_poller(self) -> None:
        me = asyncio.current_task()
        try:
            while len(self._producer) and self._closing is None:
                await self._loop.run_in_executor(self.executor, self._served, self._producer.serve, SLICE_MS / 1000)
                self._settle()
        except asyncio.CancelledError:
            if self._poller is me:  # with all other tasks: somebody may still wait for a report
                self._loop.call_later(SLICE_MS / 1000, self._start_poller)
            raise
        finally:
            if self._poller is me:
                self._poller = None

    def _served(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """In a worker: what reports it brings are told of, also where nobody waits for the worker any more.

        A message is not counted any more once a worker has its report, which it tells of a little later: by then
        whoever waited for messages that are counted may have gone, and the loop may be another one.
        """
        try:
            return work(*args, **kwargs)
        finally:
            with suppress(RuntimeError):  # the loop is closed: the next one settles when it begins
                self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        """Resolve the futures of messages whose reports have come."""
        while self._reports:
            pending, error, message = self._reports.popleft()
            if pending.callback is not None:
                self._loop.call_soon(pending.callback, error, message)
            if error is not None:
                pending.fail(KafkaException(error))
            elif pending.is_expected:
                pending.delivered.set_result(message)

    def _waiting(self) -> int:
        return len(self._buffer) + len(self._in_hand)

    async def _idle(self, task: "asyncio.Task[None] | None") -> None:
        if task is not None:
            await asyncio.wait([task])
