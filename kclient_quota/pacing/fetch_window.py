"""The broker's quota window as a consumer can know it: what it received when, and when the next batch would fit."""

from collections import deque
from typing import Final

from kclient_quota.quota.rate import QUOTA_SAMPLES, QUOTA_WINDOW_MS, SampledRate

SLACK_MS: Final = 40
"""How far a broker's record of a fetch may lie from ours."""
STEP_MS: Final = 20
"""How finely the time at which a batch fits is looked for."""


class FetchWindow:
    """Bytes received from one broker, in Kafka's own sampled window.

    Args:
        samples: `quota.window.num` of the broker.
        window_ms: `quota.window.size.seconds` of the broker, in milliseconds.
    """

    def __init__(self, samples: int = QUOTA_SAMPLES, window_ms: int = QUOTA_WINDOW_MS) -> None:
        self.samples = samples
        self.window_ms = window_ms
        self.forget()

    def forget(self) -> None:
        """Be empty, as at first."""
        self.expected: tuple[int, float] | None = None
        self._events: deque[tuple[int, float]] = deque()
        self._rate: SampledRate | None = SampledRate(self.samples, self.window_ms)
        self._fits: tuple[float, float, int, int] | None = None  # what was asked last, when, and the answer

    @property
    def least_window_ms(self) -> int:
        """What a rate is measured over at the least: all windows but one."""
        return (self.samples - 1) * self.window_ms

    @property
    def longest_ms(self) -> int:
        """How long what was received may count: its sample may have seen an event when it was just not full."""
        return (self.samples + 1) * self.window_ms

    def received(self, nbytes: float, at_ms: int) -> None:
        """`nbytes` have arrived; a throttled answer counts as 0 bytes, but it is an event."""
        if self._events and at_ms < self._events[-1][0]:
            at_ms = self._events[-1][0]
        self._fits = None
        self._events.append((at_ms, nbytes))
        while self._events[0][0] < at_ms - self.longest_ms:
            self._events.popleft()
        if self._rate is not None:
            self._rate.record(nbytes, at_ms)

    def expect(self, nbytes: float, at_ms: int) -> None:
        """A fetch has gone out that will bring about `nbytes`."""
        self.expected = (at_ms, nbytes)
        self._rate = self._fits = None

    def arrived(self) -> int | None:
        """What was expected has come; the time from which it counts, None when nothing was expected."""
        if self.expected is None:
            return None
        at_ms = self.expected[0]
        self.expected = self._rate = self._fits = None
        return at_ms

    def postpone(self, until_ms: int) -> None:
        """The fetch that is on its way was throttled: the broker will look at it again at `until_ms`."""
        if self.expected is not None:
            self.expect(self.expected[1], until_ms)

    def total(self, now_ms: int) -> float:
        """Bytes inside the window."""
        return self._mirror().project(now_ms)[0]

    def received_total(self, now_ms: int) -> float:
        """Bytes inside the window that have really arrived."""
        expected = self.expected[1] if self.expected is not None else 0.0
        return max(0.0, self.total(now_ms) - expected)

    def size_ms(self, now_ms: int) -> int:
        """What the window stands for, in ms."""
        return self._mirror().project(now_ms)[1]

    def fits_at_ms(self, nbytes: float, byte_rate: float, now_ms: int) -> int:
        """The earliest time at which `nbytes` more would not exceed `byte_rate` bytes per second."""
        if self._fits is not None:  # it is asked for every message that is taken, and a window changes with a fetch
            of_bytes, of_rate, asked_ms, fits_ms = self._fits
            if (of_bytes, of_rate) == (nbytes, byte_rate) and asked_ms <= now_ms <= fits_ms:
                return fits_ms
        mirror = self._mirror()
        last_ms = now_ms + self.longest_ms
        if self.expected is not None:
            last_ms += max(0, self.expected[0] - now_ms)

        def fits(at_ms: int) -> bool:
            total, window_ms = mirror.project(at_ms)
            return (total + nbytes) * 1000.0 <= byte_rate * window_ms

        for at_ms in range(now_ms, last_ms, STEP_MS):
            # The broker's window may be a little earlier or later than this one, and it shrinks as it grows, in steps.
            if fits(at_ms - SLACK_MS) and fits(at_ms + SLACK_MS):
                self._fits = nbytes, byte_rate, now_ms, at_ms
                return at_ms
        # Larger than any window: waiting longer would not help.
        return last_ms

    def _mirror(self) -> SampledRate:
        if self._rate is None:
            self._rate = SampledRate(self.samples, self.window_ms)
            for at_ms, nbytes in self._events:
                self._rate.record(nbytes, at_ms)
            if self.expected is not None:
                last_ms = self._events[-1][0] if self._events else self.expected[0]
                self._rate.record(self.expected[1], max(last_ms, self.expected[0]))
        return self._rate
