"""A clock that only moves when it is told to."""


class ManualClock:
    """A `Clock` whose `sleep_ms` is what moves time, so that no test waits.

    Args:
        now_ms: where the clock stands at first.
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Milliseconds, as last moved."""
        return self._now_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Move the clock on by `duration_ms`; nothing when it is zero or less."""
        if duration_ms > 0:
            self._now_ms += duration_ms

    def jump_to_ms(self, now_ms: int) -> None:
        """Put the clock anywhere, also backwards: what a suspended machine or a bad clock source looks like."""
        self._now_ms = now_ms
