"""How much of a known quota is ours: all of it, or what strangers leave.

0.98 of the limit; on a throttle the rate falls, at most once a sample of the window, by a part that grows with the
square root of the share, and it regains steps that shrink no faster than that root. So whoever has four times as much
yields twice as large a part of it and regains half as large a one, and clients that know nothing of each other converge
to equal shares. A newcomer that meets a crowd falls at once to what it can have had of all that was sent since it came.
Whoever is alone under the quota and is throttled all the same counts otherwise than the broker does, and only corrects
its count.
"""

from math import sqrt
from typing import Final

from kclient_quota.pacing.claim import WORSE, Claim
from kclient_quota.quota.rate import QUOTA_SAMPLES, QUOTA_WINDOW_MS

REQUEST_MS: Final = 100
"""How much time one request's bytes stand for."""
TARGET: Final = 0.98
"""Part of the limit that is aimed at; the rest pays for jitter, framing and the size of one request."""
INCREASE_PER_S: Final = 0.016
"""Part of the limit regained per second by whoever has all of it, by others as much times the root of their share."""
MOST_INCREASE_PER_S: Final = 0.1
CALM_MS: Final = (QUOTA_SAMPLES - 1) * QUOTA_WINDOW_MS
"""Without a throttle for a window a stranger has left: from then on what is regained doubles every CALM_DOUBLING_MS."""
CALM_DOUBLING_MS: Final = 3_000
"""So long it takes until what is sent otherwise shows in throttles; so long somebody is a newcomer, too."""
HARSH_THROTTLE_MS: Final = 1_500
LEAST_DECREASE: Final = 0.12
MOST_DECREASE: Final = 0.5
"""A throttle of X ms takes X / HARSH_THROTTLE_MS, LEAST_DECREASE at least, times the root of one's share; MOST_DECREASE
is the most."""
LEAST_SHARE: Final = 0.005
ALONE: Final = 1.0 - LEAST_DECREASE
"""Whoever has had so much of the quota in a throttled window is alone but counts otherwise than the broker does: others
had less than would be given up for them."""
TRUST: Final = 1 / 32
"""How fast whoever has miscounted comes back to believing in the limit, beside what others regain of it."""


class KnownShare:
    """A rate in bytes per second that follows a known limit and the throttles met.

    Args:
        limit: the quota in bytes per second.

    Attributes:
        learnt: our share in bytes per second as the last throttle has shown it; None before the first.
        rate: bytes per second to send at now.
    """

    request_ms: Final = REQUEST_MS

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.learnt: float | None = None
        self.rate = limit * TARGET
        self._cap = self.rate  # what the limit allows, in bytes as we count them
        self._begun_at_ms: int | None = None
        self._grown_at_ms = 0
        self._hold_until_ms = 0
        self._before = self.rate  # what a throttle takes its part of, until the hold is over
        self._held_ms = 0
        self._span_ms = 1  # the time that the last throttle's bytes stood for, itself included
        self._quiet_since_ms = 0
        self._claim = Claim()

    @property
    def every_ms(self) -> float:
        """From one request to the next, where strangers never give way; 0: all share the quota."""
        return self._claim.every_ms

    @property
    def is_whole(self) -> bool:
        """Whether nothing has been given up to strangers."""
        return self.rate >= self._cap

    def change(self, limit: float, now_ms: int) -> None:
        """Follow another limit from now on; a part given up to strangers stays given up.

        A throttle that came of the other limit is not counted as strangers' any more: what had been sent when it came
        shows what our share of that limit is.
        """
        had = self.learnt
        self.scale(limit)
        self.learnt = had
        if self.learnt is None or now_ms >= self._quiet_since_ms + CALM_MS:
            return
        if self.learnt >= limit * ALONE:
            self._cap = limit * TARGET
        self.rate = max(self.rate, self._cap if self.learnt >= limit * ALONE else self.learnt)
        self._before = max(self._before, self.rate)

    def scale(self, limit: float) -> None:
        """Follow this part of what was the limit: all that is known of it is so much larger or smaller."""
        factor = limit / self.limit
        self.rate *= factor
        self._before *= factor
        self._cap *= factor
        self.learnt = None if self.learnt is None else self.learnt * factor
        self.limit = limit

    def on_throttle(
        self, own_bytes: float, window_ms: int, throttle_ms: int, now_ms: int, *, has_begun: bool = True
    ) -> None:
        """Yield: `own_bytes` in a window of `window_ms` have met a throttle of `throttle_ms`.

        Whoever has not begun, as all that it has asked for was refused, has yet to learn what it can have.
        """
        if has_begun:
            self._heed_crowd(own_bytes, throttle_ms, now_ms)
        span_ms = window_ms + throttle_ms
        had = own_bytes * 1000.0 / span_ms
        self._claim.on_throttle(throttle_ms, had / self.limit, self.rate / self.limit, now_ms)
        self._yield(had, span_ms, throttle_ms, now_ms)
        self.rate = max(self.rate, self._claim.part * self.limit)

    def _yield(self, had: float, span_ms: int, throttle_ms: int, now_ms: int) -> None:
        if now_ms >= self._hold_until_ms:
            self._before = self.rate
        elif throttle_ms <= self._held_ms * WORSE:
            return  # one that is so many times as long takes the place of that which holds further ones back
        self._held_ms = throttle_ms
        self._hold_until_ms = now_ms + QUOTA_WINDOW_MS + throttle_ms
        self._grown_at_ms = self._quiet_since_ms = now_ms + throttle_ms
        self._span_ms, self.learnt = span_ms, had
        if had >= self.limit * ALONE:
            self._recount(had)
            return
        decrease = max(throttle_ms / HARSH_THROTTLE_MS, LEAST_DECREASE) * sqrt(self._before / self.limit)
        decrease = min(decrease, MOST_DECREASE)
        self.rate = max(min(self.rate, self._before * (1.0 - decrease)), self.limit * LEAST_SHARE)

    def _heed_crowd(self, own_bytes: float, throttle_ms: int, now_ms: int) -> None:
        """A throttle of more than two requests' worth tells a newcomer that many others send or have begun at once.

        Since it came, all together have sent at least what the limit allows until its throttle ends.
        """
        if throttle_ms < 2 * REQUEST_MS or self._begun_at_ms is None:
            return
        if now_ms - self._begun_at_ms < CALM_DOUBLING_MS:
            most = own_bytes * 1000.0 / (now_ms - self._begun_at_ms + throttle_ms)
            self.rate = max(min(self.rate, most), self.limit * LEAST_SHARE)

    def on_late_count(self, nbytes: float, now_ms: int) -> None:
        """So much more of our own than was known is in the window.

        If that explains the last throttle, nobody else was there, and what was given up for it is taken back.
        """
        if self.learnt is None or now_ms >= self._hold_until_ms:
            return
        self.learnt += nbytes * 1000.0 / self._span_ms
        if self.learnt >= self.limit * ALONE:
            self.rate = max(self.rate, self._before)

    def on_free(self, now_ms: int) -> None:
        """A response carried no throttle time: says nothing that time does not say."""

    def _recount(self, measured: float) -> None:
        # Whoever had all that is aimed at has counted well: it was jitter, and yields a quarter of what pays for that.
        exact = measured >= self.limit * TARGET
        self._cap = min(self._cap, self.rate * (1.0 - (1.0 - TARGET) / 4) if exact else measured * TARGET)
        self.rate = min(self.rate, self._cap)

    def grow(self, now_ms: int, *, busy: bool) -> None:  # noqa: ARG002  a learnt share needs to know
        """Regain what the time since the last call allows."""
        if self._begun_at_ms is None:
            self._begun_at_ms = now_ms
        elapsed_ms = now_ms - self._grown_at_ms
        if elapsed_ms <= 0:
            return
        self._grown_at_ms = now_ms
        calm_ms = now_ms - self._quiet_since_ms - CALM_MS
        doublings = min(max(calm_ms, 0) // CALM_DOUBLING_MS, 10)
        step = self.limit * elapsed_ms / 1000.0
        increase = min(INCREASE_PER_S * 2.0**doublings, MOST_INCREASE_PER_S)
        self._cap = min(self._cap + step * increase * TRUST, self.limit * TARGET)
        self.rate = min(self.rate + step * increase * sqrt(self.rate / self.limit), self._cap)

    def rebase(self, shift_ms: int) -> None:
        """Move everything remembered by `shift_ms`: the clock has jumped."""
        self._grown_at_ms += shift_ms
        if self._begun_at_ms is not None:
            self._begun_at_ms += shift_ms
        self._hold_until_ms += shift_ms
        self._quiet_since_ms += shift_ms
        self._claim.rebase(shift_ms)
