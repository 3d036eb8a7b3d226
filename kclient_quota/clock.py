"""The one door to time: adapters own a `Clock`, cores are handed `now_ms`."""

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic milliseconds and a way to let them pass."""

    def now_ms(self) -> int:
        """Milliseconds since an arbitrary origin; never goes backwards."""
        ...

    def sleep_ms(self, duration_ms: int) -> None:
        """Return after `duration_ms` milliseconds (at once when it is zero or less)."""
        ...


class SystemClock:
    """The operating system's monotonic clock."""

    def now_ms(self) -> int:
        """Milliseconds of `time.monotonic`."""
        return time.monotonic_ns() // 1_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        """Sleep; interruptible by signals as `time.sleep` is."""
        if duration_ms > 0:
            time.sleep(duration_ms / 1000)


SYSTEM_CLOCK: Clock = SystemClock()
