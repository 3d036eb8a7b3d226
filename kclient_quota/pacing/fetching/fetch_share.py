"""How much of a broker's quota is this consumer's: all of it, what strangers leave, or what throttles have taught.

A known limit is shared by the law that producers share by (`known_share`). Two things are otherwise for fetches. What
exceeds the quota is not counted, so the limit is aimed at more closely. And a throttle that our own bytes explain is no
stranger's doing: it was a fetch that came a little early.

An unknown limit is shared by the price that throttles are, as among producers (`learnt_share`): how long fetches are
refused is the same function of the shared window for everybody, and says how crowded it is. So everybody who is
refused for X seconds, on average, aims at PRICE / X³ fetches per second: whoever fetches more often falls, whoever does
less often rises, and shares meet although nobody knows the limit, the others or how many they are. As what is refused
is not counted, nobody has to find out whether he is alone: then the price is what the last few bytes of his own cost.
"""

from math import cbrt, exp, inf
from typing import Final

from kclient_quota.pacing.known_share import ALONE, CALM_DOUBLING_MS, CALM_MS, MOST_DECREASE, KnownShare
from kclient_quota.pacing.known_share import TARGET as SHARE_TARGET
from kclient_quota.pacing.learnt_share import LEAST_RATE, LONGEST_STEP_S, MOST_CHANGE
from kclient_quota.pacing.price import Price
from kclient_quota.quota.rate import QUOTA_WINDOW_MS

TARGET: Final = 1.0 - (1.0 - SHARE_TARGET) / 2
"""Part of the limit that is aimed at by whoever shares it with nobody: half as much has to be left as others leave."""
ALONE_MS: Final = 900_000
"""For so long strangers are taken to be there whom a throttle has told of."""
LATE_MS: Final = 90_000
"""A limit that was lowered is known so much later at most; until then its throttles look like strangers."""
PRICE: Final = 0.06
"""Fetches per second, times the cube of the throttle time in seconds that they stand for."""
MOST_LEAP: Final = 1 / MOST_DECREASE
"""While there are throttles a rate is at most so many times what was received in the last window, no more than one
throttle could take of it: who meets an empty window must not fill it at once, for it would be emptied at once, too, and
again and again."""
LEAST_FETCH_BYTES: Final = 1_000.0
ENDLESS_BYTES_PER_S: Final = 1e10
"""A learnt rate that has grown up to here is no limit any more."""


class _LearntShare:
    """A rate that nobody told us.

    Attributes:
        learnt: see `FetchShare`.
        rate: bytes per second to fetch at now; infinite as long as nothing is known.
    """

    __slots__ = (
        "_fetch_bytes",
        "_grown_at_ms",
        "_more",
        "_price",
        "_quiet_since_ms",
        "_span_ms",
        "_told_until_ms",
        "learnt",
        "rate",
    )

    limit: Final = None
    is_whole: Final = False

    def __init__(self) -> None:
        self.learnt: float | None = None
        self.rate = inf
        self._fetch_bytes = LEAST_FETCH_BYTES
        self._price = Price()
        self._grown_at_ms = 0
        self._quiet_since_ms = 0
        self._more = 0.0  # bytes per second that may be ours beyond what the last throttle has told
        self._span_ms = self._told_until_ms = 0  # of the first throttle

    def on_throttle(
        self,
        own_bytes: float,
        window_ms: int,
        throttle_ms: int,
        now_ms: int,
        fetch_bytes: float,
        most_bytes: float = 0.0,
    ) -> None:
        """A fetch of `fetch_bytes` was refused, or of as many as `most_bytes`; the rest: see `FetchShare`."""
        span_ms = window_ms + throttle_ms
        is_first = self.learnt is None
        measured = own_bytes * 1000.0 / span_ms
        if measured <= 0.0 and not (is_first and most_bytes):
            return
        self._more = max(0.0, most_bytes - fetch_bytes) * 1000.0 / span_ms
        self._fetch_bytes = max(fetch_bytes, LEAST_FETCH_BYTES)
        self._quiet_since_ms = now_ms + throttle_ms
        self.learnt = measured
        if is_first:
            self.rate = max(measured, LEAST_RATE)
            self._price.begin(min(throttle_ms, self._expected_ms()), now_ms)
            self._grown_at_ms = now_ms
            self._span_ms, self._told_until_ms = span_ms, now_ms + QUOTA_WINDOW_MS
        else:
            self._price.pay(throttle_ms, now_ms)

    def on_late_count(self, own_bytes: float, now_ms: int) -> None:
        """So many of our own are in the window, as is told after the first throttle, which they have brought about."""
        if self.learnt is not None and now_ms <= self._told_until_ms:
            self.learnt = max(self.learnt, own_bytes * 1000.0 / self._span_ms)
            self.rate = max(self.rate, self.learnt)

    def on_free(self, now_ms: int) -> None:
        """Fetches were answered."""
        if self.learnt is not None:
            self._price.pay(0.0, now_ms)

    def _expected_ms(self) -> float:
        """The throttle time that our rate stands for."""
        return 1000.0 * cbrt(PRICE * self._fetch_bytes / self.rate)

    def grow(self, now_ms: int, *, busy: bool) -> None:
        """See `FetchShare`."""
        elapsed_ms = now_ms - self._grown_at_ms
        if elapsed_ms <= 0:
            return
        self._grown_at_ms = now_ms
        if self.learnt is None or not busy:
            return
        elapsed_s = min(elapsed_ms / 1000.0, LONGEST_STEP_S)
        calm_ms = now_ms - self._quiet_since_ms - CALM_MS
        if calm_ms > 0:
            # Fetches are so rare by now that none is there to say that the price has fallen.
            self._price.pay(0.0, now_ms)
        # A price that is off by more than twice counts as twice: the last few throttles may have been anybody's.
        change = self._price.drift(self._expected_ms(), MOST_CHANGE)
        if self._more > self.learnt and now_ms >= self._quiet_since_ms:
            change = MOST_CHANGE  # until a fetch is refused of which it is known how large it was
        if change > 0.0:
            # Ever faster, the longer there is no throttle: a neighbour has left, or the quota was raised.
            change *= 2.0 ** min(max(calm_ms, 0) // CALM_DOUBLING_MS, 10)
        self.rate = max(self.rate * exp(min(change, MOST_CHANGE) * elapsed_s), LEAST_RATE)
        if calm_ms < 0:
            self.rate = max(min(self.rate, (self.learnt + self._more) * MOST_LEAP), LEAST_RATE)
        elif self.rate > ENDLESS_BYTES_PER_S:
            self.learnt = None
            self.rate = inf

    def rebase(self, shift_ms: int) -> None:
        """Move everything remembered by `shift_ms`: the clock has jumped."""
        self._price.rebase(shift_ms)
        self._grown_at_ms += shift_ms
        self._quiet_since_ms += shift_ms
        self._told_until_ms = 0


class FetchShare:
    """A rate in bytes per second that follows a limit, known or learnt, and the throttles met.

    Args:
        limit: the quota in bytes per second; None while unknown.
    """

    __slots__ = ("_grown_at_ms", "_met_at_ms", "_share", "_whole_at_ms")

    def __init__(self, limit: float | None) -> None:
        self._share: KnownShare | _LearntShare = _LearntShare() if limit is None else KnownShare(limit)
        self._grown_at_ms = 0
        self._whole_at_ms: int | None = None
        self._met_at_ms: int | None = None  # when strangers were met last

    @property
    def limit(self) -> float | None:
        """The quota in bytes per second; None while unknown."""
        return self._share.limit

    def is_alone(self, now_ms: int) -> bool:
        """Whether the limit is known, and no stranger has shown himself for long."""
        met_at_ms = self._met_at_ms
        return self._share.is_whole and (met_at_ms is None or now_ms - met_at_ms > ALONE_MS)

    @property
    def learnt(self) -> float | None:
        """Our share in bytes per second as throttles have shown it; None before the first."""
        return self._share.learnt

    @property
    def rate(self) -> float:
        """Bytes per second to fetch at now; infinite as long as nothing is known."""
        share = self._share
        if share.is_whole:
            return share.rate * (TARGET / SHARE_TARGET)
        return share.rate

    @property
    def ceiling(self) -> float:
        """The quota in bytes per second; infinite while unknown."""
        return inf if self._share.limit is None else self._share.limit

    def set_limit(self, limit: float | None) -> None:
        """Follow this limit from now on; a part given up to strangers stays given up, unless it was just now."""
        alone = self._whole_at_ms is not None and self._grown_at_ms - self._whole_at_ms <= LATE_MS
        if limit is None:
            self._share = _LearntShare()
        elif isinstance(self._share, KnownShare) and not alone:
            self._share.change(limit, self._grown_at_ms)
        else:
            self._share = KnownShare(limit)

    def scale(self, limit: float) -> None:
        """Follow this part of a limit that is known; what was given up to strangers stays given up."""
        if isinstance(self._share, KnownShare):
            self._share.scale(limit)

    def on_throttle(
        self,
        own_bytes: float,
        window_ms: int,
        throttle_ms: int,
        now_ms: int,
        *,
        refused: float = 0.0,
        most_refused: float = 0.0,
    ) -> None:
        """A fetch was refused: yield, if strangers must have helped.

        Args:
            own_bytes: what we have received, and the fetch that was refused, in a window of `window_ms`.
            window_ms: as above.
            throttle_ms: what the broker said.
            now_ms: now.
            refused: the fetch alone: its own part of the throttle is no sign of a crowd.
            most_refused: what that fetch may have been of, at most, where it has asked for much more than ever came.
        """
        share = self._share
        if share.limit is None:
            share.on_throttle(own_bytes, window_ms, throttle_ms, now_ms, refused, most_refused)
        elif own_bytes * 1000.0 < ALONE * share.limit * (window_ms + throttle_ms):
            self._met_at_ms = now_ms
            crowd_ms = max(1, throttle_ms - int(refused * 1000.0 / share.limit))
            # What is refused is not counted: a first fetch that met others' burst has had nothing, which is no share.
            share.on_throttle(own_bytes, window_ms, crowd_ms, now_ms, has_begun=refused > 0.0)

    def on_late_count(self, own_bytes: float, now_ms: int) -> None:
        """So many of our own are in the window, as is told now; some have come before what was told already."""
        if isinstance(self._share, _LearntShare):
            self._share.on_late_count(own_bytes, now_ms)

    def on_free(self, now_ms: int) -> None:
        """Fetches were answered, not refused."""
        self._share.on_free(now_ms)

    def grow(self, now_ms: int, *, busy: bool) -> None:
        """Regain what the time since the last call allows; a learnt rate only while it is `busy` being used up."""
        share = self._share
        share.grow(now_ms, busy=busy)
        self._grown_at_ms = now_ms
        if share.is_whole:
            self._whole_at_ms = now_ms

    def rebase(self, shift_ms: int) -> None:
        """Move everything remembered by `shift_ms`: the clock has jumped."""
        self._share.rebase(shift_ms)
        self._whole_at_ms = self._met_at_ms = None
