"""A limit that nobody told us, learnt from throttle times.

Alone: V of our own bytes in a window of W ms, throttled for X ms, mean that V / (W + X) is our share, and if nobody
else is there, that is the quota itself and foretells every later throttle to the millisecond; so when it has done so
the limit is as good as known, and is kept to without a throttle.

Among strangers that share says nothing of the whole, and any division of the quota would be an equilibrium. But the
throttle time is one and the same function of the *shared* rate, whoever asks: a price that all pay alike. So everybody
aims at the same rate for the same price, PRICE / X³ bytes per second: whoever sends more than the going throttle
time stands for falls, whoever sends less rises, and shares meet although nobody knows the limit, the others or how many
they are. The third root spans all quotas with throttles that can be lived with: 0.41 s stand for 25 kB/s, 0.23 s for
131 kB/s, 0.09 s for 2.5 MB/s. A request takes somewhat less than its expected throttle, so that muting, which acts at
once, limits everybody alike while rates, which act through a window of 10 s, only drift. As long as the last answer
carried no throttle nothing limits anybody, so rates rise slowly; under a throttle whoever has less may hurry.
"""

from math import cbrt, exp, inf, log
from typing import Final

from kclient_quota.pacing.fetch_window import SLACK_MS
from kclient_quota.pacing.known_share import CALM_DOUBLING_MS, CALM_MS, MOST_DECREASE, REQUEST_MS, TARGET
from kclient_quota.pacing.price import PRICE_MS, Price
from kclient_quota.quota.rate import QUOTA_WINDOW_MS

PRICE: Final = 1_700.0
"""A rate in bytes per second, times the cube of the throttle time in seconds that it stands for."""
STALE_MS: Final = CALM_MS / 2
"""A price that nobody has asked for half a window means little, and falls by half in 3 s."""
REQUEST_PART: Final = 0.75
"""A request takes this part of the throttle time that its rate stands for."""
FREE_RISE: Final = 0.07
PAID_RISE: Final = 0.4
"""Most that a rate rises per second, on a logarithmic scale: after an answer without a throttle, when everybody rises
(half as fast whoever seems to be alone), and after one with, when only those rise who have less."""
LEAST_PART: Final = 0.6
"""A rate falls to this part of what the last window let through at least: until the burst with which a client begins
has left the window, throttles are that burst's doing and would bring the rate to nothing."""
MOST_CHANGE: Final = -log(MOST_DECREASE)
"""The most that a rate falls per second, on a logarithmic scale, and that it rises, a newcomer's or after however long
a calm: it halves or doubles, as throttles take half at most."""
MOST_PRICE: Final = 10.0
"""A throttle counts as so many times the one expected at most."""
LEAST_RATE: Final = 512.0
"""A learnt rate is no less: a throttle of hours after a few bytes was caused by others."""
ENDLESS_BYTES_PER_S: Final = 1e12
"""A rate that has grown up to here is not limited any more."""
LONGEST_STEP_S: Final = 1.0
LONGEST_REQUEST_MS: Final = 3_000.0
"""A longer throttle means that the quota was lowered, or that many have come: it takes MOST_DECREASE of the rate."""


class LearntShare:
    """A rate in bytes per second that follows the throttles met.

    Attributes:
        is_whole: whether nobody else seems to share the quota: the last throttle was what our share foretells.
        learnt: our share as throttles have shown it, bytes per second; None before the first.
        rate: bytes per second to send at now; infinite as long as nothing is known.
    """

    limit: Final = None
    every_ms: Final = 0.0

    def __init__(self) -> None:
        self.learnt: float | None = None
        self.rate = inf
        self.is_whole = False
        self._patience_ms = CALM_MS  # how long a limit that foretold a throttle is believed in before it is tried again
        self._grown_at_ms = 0
        self._hold_until_ms = 0
        self._quiet_since_ms = 0
        self._price = Price()
        self._is_free = True
        self._young_ms = CALM_MS

    @property
    def request_ms(self) -> float:
        """How much time one request's bytes should stand for."""
        if self.learnt is None or self.is_whole:
            return REQUEST_MS
        return min(max(self._expected_ms() * REQUEST_PART, REQUEST_MS), LONGEST_REQUEST_MS)

    def _expected_ms(self) -> float:
        """The throttle time that our rate stands for."""
        return 1000.0 * cbrt(PRICE / self.rate)

    def on_throttle(self, own_bytes: float, window_ms: int, throttle_ms: int, now_ms: int) -> None:
        """`own_bytes` in a window of `window_ms` have met a throttle of `throttle_ms`."""
        if throttle_ms > QUOTA_WINDOW_MS:  # many begin at once: then nobody is a newcomer
            self._young_ms = 0
        measured = own_bytes * 1000.0 / (window_ms + throttle_ms)
        if measured <= 0:
            return
        if self.learnt is None:
            self.learnt = measured
            self.rate = max(measured * TARGET, LEAST_RATE)
            self._price.begin(min(throttle_ms, self._expected_ms()), now_ms)
            self._is_free = False
            self._grown_at_ms = now_ms
        else:
            self._pay(min(throttle_ms, self._expected_ms() * MOST_PRICE), now_ms)
            off_ms = abs(own_bytes * 1000.0 / self.learnt - window_ms - throttle_ms)
            if off_ms > SLACK_MS:
                self.is_whole = False
            if now_ms < self._hold_until_ms:
                return
            self.is_whole = off_ms <= SLACK_MS
            self._yield(self.learnt, measured, throttle_ms)
        self._hold_until_ms = now_ms + QUOTA_WINDOW_MS + throttle_ms
        self._quiet_since_ms = now_ms + throttle_ms

    def on_late_count(self, nbytes: float, now_ms: int) -> None:
        """So much more of our own than was known is in the window: the next throttle tells what that means."""

    def on_free(self, now_ms: int) -> None:
        """A response carried no throttle time."""
        if self.learnt is not None:
            self._pay(0.0, now_ms)

    def _pay(self, throttle_ms: float, now_ms: int) -> None:
        self._is_free = throttle_ms <= 0
        self._price.pay(throttle_ms, now_ms)

    def _yield(self, learnt: float, measured: float, throttle_ms: int) -> None:
        if self.is_whole:
            self.rate = learnt * TARGET
            self._patience_ms = 2 * CALM_MS
            return
        self.learnt = measured
        self._patience_ms = CALM_MS
        if throttle_ms > LONGEST_REQUEST_MS:
            self._move_to(self.rate * MOST_DECREASE, measured)

    def _move_to(self, rate: float, learnt: float) -> None:
        self.rate = max(rate, min(self.rate, learnt * LEAST_PART), LEAST_RATE)

    def grow(self, now_ms: int, *, busy: bool) -> None:
        """Drift to what the price stands for; only while the rate is `busy` being used up."""
        elapsed_ms = now_ms - self._grown_at_ms
        if elapsed_ms <= 0:
            return
        self._grown_at_ms = now_ms
        calm_ms = now_ms - self._quiet_since_ms
        if not busy or self.learnt is None or (self.is_whole and calm_ms < self._patience_ms):
            return
        elapsed_s = min(elapsed_ms / 1000.0, LONGEST_STEP_S)
        if min(calm_ms, now_ms - self._price.paid_at_ms) > STALE_MS:
            self._price.throttle_ms *= exp(-elapsed_s * 1000.0 / (2 * PRICE_MS))
        # Ever faster, the longer there is no throttle: a neighbour has left, or the quota was raised.
        doublings = min(max(calm_ms - self._patience_ms, 0) // CALM_DOUBLING_MS, 20)
        change = self._change(elapsed_s) * 2.0**doublings
        self._move_to(self.rate * exp(min(max(change, -MOST_CHANGE), MOST_CHANGE) * elapsed_s), self.learnt)
        if self.rate > ENDLESS_BYTES_PER_S:
            self.learnt = None
            self.rate = inf

    def _change(self, elapsed_s: float) -> float:
        """By how much the rate should change per second, on a logarithmic scale."""
        if self._young_ms > 0:  # for CALM_MS a newcomer knows nothing yet, and goes all the way
            self._young_ms -= int(elapsed_s * 1000.0)
            return self._price.off(self._expected_ms())
        free_rise = FREE_RISE / (2 if self.is_whole else 1)
        return min(self._price.drift(self._expected_ms()), free_rise if self._is_free else PAID_RISE)

    def rebase(self, shift_ms: int) -> None:
        """Move everything remembered by `shift_ms`: the clock has jumped."""
        self._grown_at_ms += shift_ms
        self._hold_until_ms += shift_ms
        self._quiet_since_ms += shift_ms
        self._price.rebase(shift_ms)
