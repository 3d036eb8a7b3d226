"""How much of a broker's quota is ours: all of it, or what is left by strangers, or what throttles have taught.

Known limit T: 0.98 T; on a throttle the rate falls by a factor, at most once a second, and regains equal steps of T a
second, which makes clients that know nothing of each other converge to equal shares. Unknown limit: V of our own bytes
in a window of W ms, throttled for X ms, means a share of V / (W + X); between throttles it is probed upwards, ever
faster, so that a raised quota or a neighbour's leaving is found within a minute.
"""

from math import inf
from typing import Final

TARGET: Final = 0.98
"""Part of the limit that is aimed at; the rest pays for jitter, framing and the size of one request."""
INCREASE_PER_S: Final = 0.003
"""Part of the limit, not of the rate, regained per second: equal steps are what makes shares equal."""
MOST_INCREASE_PER_S: Final = 0.1
CALM_MS: Final = 10_000
"""Without a throttle for so long, a stranger has left: from then on what is regained doubles every CALM_DOUBLING_MS."""
CALM_DOUBLING_MS: Final = 3_000
LEAST_DECREASE: Final = 0.03
MOST_DECREASE: Final = 0.5
HARSH_THROTTLE_MS: Final = 20_000
"""A throttle of X ms takes X / HARSH_THROTTLE_MS of the rate, between LEAST_DECREASE and MOST_DECREASE."""
DECREASE_EVERY_MS: Final = 1_000
LEAST_SHARE: Final = 0.005
ALONE: Final = 0.85
"""Whoever has had so much of the quota in a throttled window is alone but counts otherwise than the broker does."""
EXACT: Final = 0.985
EXACT_DECREASE: Final = 0.005
"""What yields whoever counts as exactly as that: jitter it was."""
TRUST_PER_S: Final = 0.0005
"""How fast whoever has miscounted comes back to believing in the limit, as a part of it per second."""
MOST_TRUST_PER_S: Final = 0.005
QUIET_MS: Final = 3_000
"""How long a learnt rate stays as it is before it is probed."""
PROBE_PER_S: Final = 0.01
MOST_PROBE_PER_S: Final = 0.5
PROBE_DOUBLING_MS: Final = 5_000
PROBE_BYTES_PER_S: Final = 512.0
LEAST_LEARNT: Final = 512.0
"""A learnt rate is no less: a throttle of hours after a few bytes was caused by others."""
ENDLESS_BYTES_PER_S: Final = 1e12
"""A learnt rate that has been probed up to here is no limit any more."""


class Share:
    """A rate in bytes per second that follows a limit, known or learnt, and the throttles met.

    Attributes:
        limit: the quota in bytes per second; None while unknown.
        learnt: our share in bytes per second as throttles have shown it; None before the first.
        rate: bytes per second to send at now; infinite as long as nothing is known.
    """

    __slots__ = ("_cap", "_grown_at_ms", "_hold_until_ms", "_quiet_since_ms", "learnt", "limit", "rate")

    def __init__(self) -> None:
        self.limit: float | None = None
        self.learnt: float | None = None
        self.rate = inf
        self._cap = inf  # the limit times TARGET, in bytes as we count them
        self._grown_at_ms = 0
        self._hold_until_ms = 0
        self._quiet_since_ms = 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing has been given up to strangers."""
        return self.limit is None or self.rate >= self._cap

    def set_limit(self, limit: float | None) -> None:
        """Follow this limit from now on; a part given up to strangers stays given up."""
        if limit is None:
            self.limit = self.learnt = None
            self.rate = self._cap = inf
            return
        if self.limit is None:
            self._cap = limit * TARGET
        else:
            self.rate *= limit / self.limit
            self._cap *= limit / self.limit
        self.limit = limit
        self.rate = min(self.rate, self._cap)

    def on_throttle(self, own_bytes: float, window_ms: int, throttle_ms: int, now_ms: int) -> None:
        """Yield: `own_bytes` in a window of `window_ms` have met a throttle of `throttle_ms`."""
        measured = own_bytes * 1000.0 / (window_ms + throttle_ms)
        if now_ms < self._hold_until_ms or (self.limit is None and measured <= 0):
            return
        self._hold_until_ms = now_ms + DECREASE_EVERY_MS + throttle_ms
        self._grown_at_ms = self._quiet_since_ms = now_ms + throttle_ms
        if self.limit is None:
            self._yield_learnt(measured * TARGET)
        elif measured >= self.limit * ALONE:
            self._recount(measured, self.limit)
        else:
            decrease = min(max(throttle_ms / HARSH_THROTTLE_MS, LEAST_DECREASE), MOST_DECREASE)
            self.rate = max(self.rate * (1.0 - decrease), self.limit * LEAST_SHARE)
        self.learnt = measured

    def _yield_learnt(self, rate: float) -> None:
        if self.learnt is not None:
            rate = max(self.rate * MOST_DECREASE, min(self.rate, rate))
        self.rate = max(rate, LEAST_LEARNT)

    def _recount(self, measured: float, limit: float) -> None:
        """Alone under the quota, and throttled: what the broker counts is more than what we count."""
        exact = measured >= limit * EXACT
        self._cap = min(self._cap, self.rate * (1.0 - EXACT_DECREASE) if exact else measured * TARGET)
        self.rate = min(self.rate, self._cap)

    def grow(self, now_ms: int, *, busy: bool) -> None:
        """Regain what the time since the last call allows; a learnt rate only while it is `busy` being used up."""
        elapsed_ms = now_ms - self._grown_at_ms
        if elapsed_ms <= 0:
            return
        self._grown_at_ms = now_ms
        if self.limit is not None:
            self._regain(self.limit, elapsed_ms / 1000.0, now_ms - self._quiet_since_ms - CALM_MS)
        elif self.learnt is not None and busy:
            self._probe(min(elapsed_ms, DECREASE_EVERY_MS), now_ms - self._quiet_since_ms - QUIET_MS)

    def _regain(self, limit: float, elapsed_s: float, calm_ms: int) -> None:
        doublings = min(max(calm_ms, 0) // CALM_DOUBLING_MS, 10)
        trust = min(TRUST_PER_S * 2.0**doublings, MOST_TRUST_PER_S)
        self._cap = min(self._cap + limit * trust * elapsed_s, limit * TARGET)
        increase = min(INCREASE_PER_S * 2.0**doublings, MOST_INCREASE_PER_S)
        self.rate = min(self.rate + limit * increase * elapsed_s, self._cap)

    def _probe(self, elapsed_ms: int, probing_ms: int) -> None:
        if probing_ms <= 0:
            return
        doublings = min(probing_ms // PROBE_DOUBLING_MS, 10)
        growth = min(PROBE_PER_S * 2.0**doublings, MOST_PROBE_PER_S)
        self.rate += (self.rate * growth + PROBE_BYTES_PER_S) * elapsed_ms / 1000.0
        if self.rate > ENDLESS_BYTES_PER_S:
            self.set_limit(None)

    def rebase(self, shift_ms: int) -> None:
        """Move everything remembered by `shift_ms`: the clock has jumped."""
        self._grown_at_ms += shift_ms
        self._hold_until_ms += shift_ms
        self._quiet_since_ms += shift_ms
