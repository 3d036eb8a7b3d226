"""The one door to time: adapters own a `Clock`, cores are handed `now_ms`.

It is the system's time, also while a test has put another one in the place of `time`'s functions. freezegun, and who
patches `time.monotonic`, stops the clock of the process, while sockets, brokers and librdkafka's threads go on by the
system's: what waits for half a second by a clock that stands still waits for ever. So this is of a second copy of the
module, which they do not know of. time-machine changes the time of day in every copy, and has a way past itself; before
its version 3 it changes `monotonic`, too, but never `perf_counter`, which is of the same kind.
"""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import BuiltinImporter
from typing import Any, Final, Protocol

_COOPERATIVE: Final = ("gevent", "eventlet")


def _copy_of_time() -> Any:
    spec = BuiltinImporter.find_spec("time")
    module = None if spec is None else BuiltinImporter.create_module(spec)
    if module is None:
        return time
    BuiltinImporter.exec_module(module)
    return module


_own: Final = _copy_of_time()

monotonic: Final[Callable[[], float]] = _own.perf_counter
monotonic_ns: Final[Callable[[], int]] = _own.perf_counter_ns


def unix_ms() -> int:
    """Milliseconds since 1970: a broker refuses messages of an hour ahead, wherever a test has travelled to."""
    return _time_of_day_ns() // 1_000_000


def _time_of_day_ns() -> int:
    way_past: Any = getattr(sys.modules.get("time_machine"), "escape_hatch", None)
    if way_past is not None and way_past.is_travelling():
        # It refuses while nobody travels; another thread may just have come back.
        with suppress(ValueError):
            travelled_past_ns: int = way_past.time.time_ns()
            return travelled_past_ns
    now_ns: int = _own.time_ns()
    return now_ns


def sleep(seconds: float) -> None:
    """Sleep; interruptible by signals. Greenlets run meanwhile, where gevent or eventlet have seen to that."""
    (time if is_cooperative() else _own).sleep(seconds)


def is_cooperative() -> bool:
    """Whether threads are greenlets, of which none runs while another waits in C."""
    return str(getattr(time.sleep, "__module__", "")).startswith(_COOPERATIVE)


class Clock(Protocol):
    """Monotonic milliseconds and a way to let them pass."""

    def now_ms(self) -> int:
        """Milliseconds since an arbitrary origin; never goes backwards."""
        ...

    def sleep_ms(self, duration_ms: int) -> None:
        """Return after `duration_ms` milliseconds (at once when it is zero or less)."""
        ...


class SystemClock:
    """The operating system's clocks."""

    def now_ms(self) -> int:
        """Milliseconds of the monotonic one."""
        return monotonic_ns() // 1_000_000

    def unix_ms(self) -> int:
        """Milliseconds since 1970, which telemetry tells."""
        return unix_ms()

    def sleep_ms(self, duration_ms: int) -> None:
        """Sleep; interruptible by signals as `time.sleep` is."""
        if duration_ms > 0:
            sleep(duration_ms / 1000)


SYSTEM_CLOCK: Clock = SystemClock()
