"""Time and timers of a broker on an asyncio loop, with whatever clock it is given."""

import asyncio
import heapq
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kclient_telemetry import logger_of

from kclient_quota.clock import Clock, SystemClock, monotonic, unix_ms

_LOOK_AT_FOREIGN_CLOCK_EVERY_S = 0.002
_LONGEST_MS = 5
"""After so long the sockets are looked at again, whatever else is due."""
_LOG = logger_of(__name__)


@dataclass(slots=True, eq=False)
class _Call:
    deadline_ms: int
    callback: Callable[[], None] | None

    def cancel(self) -> None:
        self.callback = None


class BrokerLoop(asyncio.SelectorEventLoop):
    """A loop whose time is the system's, also in a test that has stopped `time.monotonic` for everybody else."""

    def time(self) -> float:
        """Seconds, by which its timers go."""
        return monotonic()


class LoopScheduler:
    """`kclient_quota.broker.request.context.Scheduler` on one loop; to be used on that loop only.

    Args:
        loop: runs the callbacks.
        clock: time passes as it says. Milliseconds since 1970 are its own plus what 1970 was away when this was made.
            A clock that is not the system's is looked at every 2 ms while there are timers.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock_now_ms = clock.now_ms
        self._is_system = isinstance(clock, SystemClock)
        self._origin_ms = unix_ms() - clock.now_ms()
        self._calls: list[tuple[int, int, _Call]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._is_closed = False

    def close(self) -> None:
        """Call nobody back any more."""
        self._is_closed = True
        self._calls.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def now_ms(self) -> int:
        """Milliseconds since 1970, by the clock."""
        return self._clock_now_ms() + self._origin_ms

    def date_ms(self) -> int:
        """Milliseconds since 1970, by the system's date where that has run ahead of its clock."""
        now_ms = self.now_ms()
        return max(now_ms, unix_ms()) if self._is_system else now_ms

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> _Call:
        """Call back once `now_ms` has reached `deadline_ms`."""
        call = _Call(deadline_ms, callback)
        if self._is_closed:
            return call
        self._count += 1
        heapq.heappush(self._calls, (deadline_ms, self._count, call))
        if self._timer is None or deadline_ms < self._timer_ms:
            self._arm()
        return call

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        """Call back on the loop, asked from any thread; nothing once the loop is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._calls and self._calls[0][2].callback is None:
            heapq.heappop(self._calls)
        if not self._calls:
            return
        self._timer_ms = self._calls[0][0]
        wait_s = max(0, self._timer_ms - self.now_ms()) / 1000
        if not self._is_system:
            wait_s = min(wait_s, _LOOK_AT_FOREIGN_CLOCK_EVERY_S)
        self._timer = self._loop.call_later(wait_s, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now_ms = self.now_ms()
        while self._calls and self._calls[0][0] <= now_ms and self.now_ms() - now_ms < _LONGEST_MS:
            callback = heapq.heappop(self._calls)[2].callback
            if callback is not None:
                try:
                    callback()
                except Exception:  # noqa: BLE001 - whatever it is, other calls are still to be made
                    _LOG.exception("a timer's call failed")
        if self._timer is None:
            self._arm()
