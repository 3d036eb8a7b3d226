"""How much of a broker's quota is this consumer's: all of it, what strangers leave, or what throttles have taught.

Known limit T: 0.99 T; a throttle that our own bytes do not explain takes a twentieth or more, at most once a second,
and equal steps of T a second are regained, which makes consumers that know nothing of each other converge to equal
shares. Unknown limit: V of our own bytes in a window of W ms, throttled for X ms, means a share of V / (W + X); between
throttles it is probed upwards, ever faster, so that a raised quota is found within a minute.
"""

from math import inf
from typing import Final

TARGET: Final = 0.99
"""Part of the limit that is aimed at."""
INCREASE_PER_S: Final = 0.005
LEAST_DECREASE: Final = 0.05
MOST_DECREASE: Final = 0.5
HARSH_THROTTLE_MS: Final = 20_000
"""A throttle of X ms takes X / HARSH_THROTTLE_MS of the rate, between LEAST_DECREASE and MOST_DECREASE."""
DECREASE_EVERY_MS: Final = 1_000
LEAST_SHARE: Final = 0.02
QUIET_MS: Final = 3_000
"""How long a learnt rate stays as it is before it is probed."""
PROBE_PER_S: Final = 0.01
MOST_PROBE_PER_S: Final = 0.5
PROBE_DOUBLING_MS: Final = 5_000
PROBE_BYTES_PER_S: Final = 512.0
ENDLESS_BYTES_PER_S: Final = 1e10
"""A learnt rate that has been probed up to here is no limit any more."""


class FetchShare:
    """A rate in bytes per second that follows a limit, known or learnt, and the throttles met.

    Args:
        limit: the quota in bytes per second; None while unknown.

    Attributes:
        limit: as above.
        learnt: our share in bytes per second as throttles have shown it; None before the first.
        rate: bytes per second to fetch at now; infinite as long as nothing is known.
    """

    def __init__(self, limit: float | None) -> None:
        self.limit: float | None = None
        self.learnt: float | None = None
        self.rate = inf
        self._grown_at_ms: int | None = None
        self._hold_until_ms: int | None = None
        self._quiet_since_ms = 0
        self.set_limit(limit)

    @property
    def ceiling(self) -> float:
        """What the whole quota is believed to be, bytes per second; infinite while nothing is known."""
        if self.limit is not None:
            return self.limit
        return inf if self.learnt is None else max(self.learnt, self.rate / TARGET)

    def set_limit(self, limit: float | None) -> None:
        """Follow this limit from now on; a part given up to strangers stays given up."""
        if limit is None:
            self.limit = self.learnt = None
            self.rate = inf
            return
        part = 1.0 if self.limit is None else self.rate / (self.limit * TARGET)
        self.limit = limit
        self.rate = limit * TARGET * min(part, 1.0)

    def on_throttle(self, own_bytes: float, window_ms: int, throttle_ms: int, now_ms: int) -> None:
        """Yield: `own_bytes` in a window of `window_ms` have met a throttle of `throttle_ms`."""
        self._grown_at_ms = now_ms
        measured = own_bytes * 1000.0 / (window_ms + throttle_ms)
        held = self._hold_until_ms is not None and now_ms < self._hold_until_ms
        if held or (self.limit is None and measured <= 0.0):
            return
        self._hold_until_ms = now_ms + DECREASE_EVERY_MS + throttle_ms
        self._quiet_since_ms = now_ms + throttle_ms
        if self.limit is not None:
            decrease = min(max(throttle_ms / HARSH_THROTTLE_MS, LEAST_DECREASE), MOST_DECREASE)
            self.rate = max(self.rate * (1.0 - decrease), self.limit * LEAST_SHARE)
        elif self.learnt is None:
            self.rate = measured * TARGET
        else:
            self.rate = max(self.rate * MOST_DECREASE, min(self.rate, measured * TARGET))
        self.learnt = measured

    def grow(self, now_ms: int, *, busy: bool) -> None:
        """Regain what the time since the last call allows; a learnt rate only while it is `busy` being used up."""
        before, self._grown_at_ms = self._grown_at_ms, now_ms
        if before is None or now_ms <= before:
            return
        elapsed_ms = now_ms - before
        if self.limit is not None:
            self.rate = min(self.rate + self.limit * INCREASE_PER_S * elapsed_ms / 1000.0, self.limit * TARGET)
        elif self.learnt is not None and busy:
            self._probe(min(elapsed_ms, DECREASE_EVERY_MS), now_ms - self._quiet_since_ms - QUIET_MS)

    def forget_times(self) -> None:
        """The clock has jumped: no time remembered means anything."""
        self._grown_at_ms = self._hold_until_ms = None
        self._quiet_since_ms = 0

    def _probe(self, elapsed_ms: int, probing_ms: int) -> None:
        if probing_ms <= 0:
            return
        growth = min(PROBE_PER_S * 2.0 ** min(probing_ms // PROBE_DOUBLING_MS, 10), MOST_PROBE_PER_S)
        self.rate += (self.rate * growth + PROBE_BYTES_PER_S) * elapsed_ms / 1000.0
        if self.rate > ENDLESS_BYTES_PER_S:
            self.set_limit(None)
