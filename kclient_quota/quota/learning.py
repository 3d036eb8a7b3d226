"""A limit that nobody told us, learnt from throttle times.

V of our own bytes in a window of W ms, throttled for X ms, means that V / (W + X) was our share. Alone under the quota,
that share is the quota itself and foretells every later throttle to the millisecond; so when it has done so a few times
the limit is as good as known. While it does not, strangers share the quota: the rate then falls by a factor and regains
with the root of itself, under which shares drift towards each other without anybody's knowing the whole.
"""

from math import inf, sqrt
from typing import Final

from kclient_quota.quota.share import (
    CALM_DOUBLING_MS,
    CALM_MS,
    DECREASE_EVERY_MS,
    MOST_DECREASE,
    TARGET,
)

LEAST_DECREASE: Final = 0.05
HARSH_THROTTLE_MS: Final = 20_000
"""A throttle of X ms takes X / HARSH_THROTTLE_MS of the rate, between LEAST_DECREASE and MOST_DECREASE."""
LEAST_RATE: Final = 512.0
"""A learnt rate is no less: a throttle of hours after a few bytes was caused by others."""
INCREASE_ROOT: Final = 8.0
"""Bytes per second and second regained, for each root of the rate in bytes per second."""
MOST_GROWTH_PER_S: Final = 0.5
ENDLESS_BYTES_PER_S: Final = 1e12
"""A rate that has grown up to here is not limited any more."""
FORETOLD_MS: Final = 5
FORETOLD: Final = 3
"""After how many throttles foretold in a row we are alone."""
PATIENCE_MS: Final = 10_000
MOST_PATIENCE_MS: Final = 30_000
"""How long a limit that foretold a throttle is believed in before it is tried again."""
LONGEST_STEP_S: Final = 1.0


class LearntShare:
    """A rate in bytes per second that follows the throttles met.

    Attributes:
        learnt: our share as throttles have shown it, bytes per second; None before the first.
        rate: bytes per second to send at now; infinite as long as nothing is known.
    """

    __slots__ = ("_foretold", "_grown_at_ms", "_hold_until_ms", "_patience_ms", "_quiet_since_ms", "learnt", "rate")

    limit: Final = None

    def __init__(self) -> None:
        self.learnt: float | None = None
        self.rate = inf
        self._foretold = 0
        self._patience_ms = PATIENCE_MS
        self._grown_at_ms = 0
        self._hold_until_ms = 0
        self._quiet_since_ms = 0

    @property
    def is_whole(self) -> bool:
        """Whether nobody else seems to share the quota."""
        return self._foretold >= FORETOLD

    def on_throttle(self, own_bytes: float, window_ms: int, throttle_ms: int, now_ms: int) -> None:
        """`own_bytes` in a window of `window_ms` have met a throttle of `throttle_ms`."""
        measured = own_bytes * 1000.0 / (window_ms + throttle_ms)
        if measured <= 0:
            return
        if self.learnt is None:
            self.learnt = measured
            self.rate = max(measured * TARGET, LEAST_RATE)
        else:
            foretold_ms = own_bytes * 1000.0 / self.learnt - window_ms
            self._foretold = self._foretold + 1 if abs(foretold_ms - throttle_ms) <= FORETOLD_MS else 0
            if now_ms < self._hold_until_ms:
                return
            self._yield(self.learnt, measured, throttle_ms)
        self._hold_until_ms = now_ms + DECREASE_EVERY_MS + throttle_ms
        self._grown_at_ms = self._quiet_since_ms = now_ms + throttle_ms

    def _yield(self, learnt: float, measured: float, throttle_ms: int) -> None:
        if self.is_whole:
            self.rate = min(self.rate, learnt * TARGET)
            self._patience_ms = min(self._patience_ms + PATIENCE_MS, MOST_PATIENCE_MS)
            return
        self.learnt = measured
        self._patience_ms = PATIENCE_MS
        decrease = min(max(throttle_ms / HARSH_THROTTLE_MS, LEAST_DECREASE), MOST_DECREASE)
        self.rate = max(self.rate * (1.0 - decrease), LEAST_RATE)

    def grow(self, now_ms: int, *, busy: bool) -> None:
        """Try for more, ever faster the longer there is no throttle; only while the rate is `busy` being used up."""
        elapsed_ms = now_ms - self._grown_at_ms
        if elapsed_ms <= 0:
            return
        self._grown_at_ms = now_ms
        calm_ms = now_ms - self._quiet_since_ms
        if not busy or self.learnt is None or (self.is_whole and calm_ms < self._patience_ms):
            return
        doublings = min(max(calm_ms - max(CALM_MS, self._patience_ms), 0) // CALM_DOUBLING_MS, 20)
        step = min(INCREASE_ROOT * sqrt(self.rate) * 2.0**doublings, self.rate * MOST_GROWTH_PER_S)
        self.rate += step * min(elapsed_ms / 1000.0, LONGEST_STEP_S)
        if self.rate > ENDLESS_BYTES_PER_S:
            self.learnt = None
            self.rate = inf

    def rebase(self, shift_ms: int) -> None:
        """Move everything remembered by `shift_ms`: the clock has jumped."""
        self._grown_at_ms += shift_ms
        self._hold_until_ms += shift_ms
        self._quiet_since_ms += shift_ms
