"""What `AIOProducer` does beside its calls: one task hands messages over, the pump, and another polls for reports.

Each event loop that has something to send has both, and all loops' see to everybody's messages; workers, in which
blocking calls run, they have in common. A task may be cancelled with all others, at the end of a loop or of an
application, or stand still with its loop, while its worker goes on: whatever that has is kept, and is seen to by
whoever comes next.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka.aio
from confluent_kafka import KafkaException

from kclient_quota.clients.aio.buffer import Buffer, hand_over
from kclient_quota.clients.aio.heartbeat import Beats
from kclient_quota.clients.aio.loops import InLoop, ended
from kclient_quota.clients.aio.pending import InnerProducer, Pending, fail
from kclient_quota.clients.producer.caller.waiting import SLICE_MS
from kclient_quota.clock import Clock

if TYPE_CHECKING:
    from kclient_quota.clients.producer.sorting import Place

MOST_AT_ONCE: Final = 1_000
"""Messages one worker hands over before the event loop hears of it."""


class Handing(confluent_kafka.aio.AIOProducer):
    """What stands between the buffer and the futures of delivered messages.

    What follows `_buffer` is used under its lock, as that is.
    """

    executor: concurrent.futures.Executor
    _producer: InnerProducer
    _clock: Clock
    _heartbeat: Any
    _max_block_ms: int
    _refused = False  # whether the quota has kept a message out of the transaction
    _loops: dict[asyncio.AbstractEventLoop, InLoop]
    _buffer: Buffer
    _in_hand: list[Pending]  # what the worker has that hands over, `_handing`
    _polling: "concurrent.futures.Future[int] | None" = None  # the worker that polls
    _retry_after_ms = 0
    _waits: InLoop | None = None  # whose pump has seen to what was handed over last
    _purged = False
    _is_closed = False
    if TYPE_CHECKING:  # nothing that `typing.get_type_hints()` of a subclass could not resolve
        _handing: concurrent.futures.Future[dict[Place, BufferError]] | None
        _full: Mapping[Place, BufferError]
    _handing = None

    def _here(self) -> InLoop:
        """What there is in the event loop that runs."""
        here = self._loops.get(asyncio.get_running_loop())
        return self._joined() if here is None else here

    def _joined(self) -> InLoop:
        """Go on in this loop, too: tasks and waits of one that is closed have ended with it.

        Messages that were taken and have not been handed over still are; nobody awaits their futures any more.
        """
        loop = asyncio.get_running_loop()
        here = InLoop(loop, Beats(self._heartbeat, self.executor, self._producer.keep_alive))
        with self._buffer.lock:
            self._loops[loop] = here
            for each in [each for each in self._loops.values() if each.loop.is_closed()]:
                del self._loops[each.loop]
                each.leave_to(here)
        loop.call_soon(self._settle)
        self._start_poller()
        return here

    # Handing over -------------------------------------------------------------------------------------------------

    def _hand_now(self, pending: Pending) -> None:
        """Hand one message over or raise, without an await: a call that is cancelled has not sent anything.

        It takes microseconds, and up to 20 ms where the sender has to be asked whether there is room.
        """
        error = hand_over(self._producer, [pending]).get(pending.place) or pending.error
        self._start_poller()
        if error is not None and (self._producer.overdue is None or not isinstance(error, Exception)):
            raise error  # also what a signal's handler has raised: this is its thread

    def _start_pump(self) -> None:
        here = self._here()
        if here.timer is not None:
            here.timer.cancel()
            here.timer = None
        if here.pump is None and not here.is_left and self._is_wanted(here):
            here.pump = here.loop.create_task(self._run_pump(here))

    def _is_wanted(self, here: InLoop) -> bool:
        # Who waits for room here needs a pump that runs, which another loop's may cease to do.
        return self._waiting() > 0 or here.wanting > 0

    async def _run_pump(self, here: InLoop) -> None:
        me = asyncio.current_task()
        try:
            while self._is_wanted(here):
                here.has_news.clear()
                wait_ms = await self._pump_once()
                if wait_ms:
                    began_ms = self._clock.now_ms()
                    here.beats.start()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(min(wait_ms, SLICE_MS) / 1000):
                            await here.has_news.wait()
                    if self._waits is here:  # the others wait for the same
                        self._producer.note_wait(self._clock.now_ms() - began_ms)
        except asyncio.CancelledError:
            # With all other tasks, at the end of a loop or of an application. Messages go on with whatever comes next.
            if here.timer is None:
                here.timer = here.loop.call_later(SLICE_MS / 1000, self._start_pump)
            raise
        except Exception:
            # The executor was shut down, and nobody hands these over.
            with self._buffer.lock:
                self._drop(lambda delivered: delivered.cancel())
                for pending in self._in_hand:
                    pending.drop()
                self._in_hand, self._handing = [], None
            raise
        finally:
            if here.pump is me:
                here.pump = None

    async def _pump_once(self) -> int:
        """Hand over what may go; returns after how many milliseconds to try again."""
        with self._buffer.lock:
            if self._handing is None:
                self._purged = False
                self._in_hand = self._buffer.take(MOST_AT_ONCE)
                if not self._in_hand:
                    self._buffer.wake()  # whom there is room for since another loop stands still
                    return SLICE_MS
            # Otherwise another pump goes on, or has been cancelled: what its worker has comes first.
            if self._handing is None or self._handing.cancelled():
                self._handing = self.executor.submit(hand_over, self._producer, self._in_hand)
            handing = self._handing
        await ended(handing)
        with self._buffer.lock:
            if self._handing is handing and not handing.cancelled():  # nobody else has seen to it
                self._handed(handing.result())
            return max(1, self._retry_after_ms) if self._full else 0

    def _handed(self, refused: "Mapping[Place, BufferError]") -> None:
        """See to what a worker has handed over, and to those it could not."""
        batch, self._in_hand, self._handing = self._in_hand, [], None
        self._waits = self._here()
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
            refused = {}
        else:
            self._buffer.put_back(rest, refused)
        self._full = refused
        if refused:
            self._retry_after_ms = min(getattr(error, "retry_after_ms", SLICE_MS) for error in refused.values())
            # Those that have waited for `max.block.ms` while none of their line was admitted are given up.
            for pending in self._buffer.overdue(refused, now_ms, self._max_block_ms):
                self._refused = True
                pending.fail(refused[pending.place])
        self._buffer.wake()

    def _drop(self, tell: "Callable[[asyncio.Future[Any]], object]") -> None:
        """Forget what waits here, including what a worker was given but the quota sends back."""
        with self._buffer.lock:
            self._purged = True
            for pending in self._in_hand:
                pending.dropped = tell
            for pending in self._buffer.clear():
                pending.tell(tell)

    # Hearing ------------------------------------------------------------------------------------------------------

    def _start_poller(self) -> None:
        here = self._here()
        if here.poller is None and not here.is_left:
            here.poller = here.loop.create_task(self._run_poller(here))

    async def _run_poller(self, here: InLoop) -> None:
        me = asyncio.current_task()
        try:
            while len(self._producer):
                with self._buffer.lock:
                    if self._is_closed:
                        return
                    if is_mine := self._polling is None or self._polling.done():
                        self._polling = self.executor.submit(self._served, self._producer.serve, SLICE_MS / 1000)
                    polling = self._polling
                await ended(polling)
                self._settle()
                if is_mine and not polling.cancelled():
                    polling.result()
        except asyncio.CancelledError:
            if here.poller is me:  # with all other tasks: somebody may still wait for a report
                here.loop.call_later(SLICE_MS / 1000, self._start_poller)
            raise
        finally:
            if here.poller is me:
                here.poller = None

    def _served(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """In a worker: what reports it brings are told of, also where nobody waits for the worker any more.

        A message is not counted any more once a worker has its report, which it tells of a little later: by then
        whoever waited for messages that are counted may have gone, and its loop as well.
        """
        try:
            return work(*args, **kwargs)
        finally:
            for each in list(self._loops.values()):
                if each.reports:
                    with suppress(RuntimeError):  # the loop is closed: the next one settles when it begins
                        each.loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        """Tell of the reports that have come for this loop, or for one that does not run."""
        here = asyncio.get_running_loop()
        for each in list(self._loops.values()):
            while each.reports and (each.loop is here or not each.loop.is_running()):
                try:
                    pending, error, message = each.reports.popleft()
                except IndexError:  # another loop has it
                    break
                if pending.callback is not None:
                    here.call_soon(pending.callback, error, message)
                pending.tell(
                    methodcaller("set_result", message) if error is None else partial(fail, error=KafkaException(error))
                )

    def _waiting(self) -> int:
        with self._buffer.lock:
            return len(self._buffer) + len(self._in_hand)
