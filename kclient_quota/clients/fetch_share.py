"""How much of a broker's quota is this consumer's: all of it, what strangers leave, or what throttles have taught.

A known limit is shared by the law that producers share by (`quota.share`). Two things are otherwise for fetches. What
exceeds the quota is not counted, so the limit is aimed at more closely. And a throttle that our own bytes explain is no
stranger's doing: it was a fetch that came a little early.

An unknown limit is learnt otherwise than producers do, who choose the sizes of their requests and are counted when they
are throttled. V of our own bytes in a window of W ms, throttled for X ms, means a share of V / (W + X); between
throttles it is probed upwards, ever faster, so that a raised quota is found within a minute.
"""

from math import inf
from typing import Final

from kclient_quota.quota.share import TARGET as SHARE_TARGET
from kclient_quota.quota.share import KnownShare

TARGET: Final = 0.99
"""Part of the limit that is aimed at."""
LATE_MS: Final = 90_000
"""A limit that was lowered is known so much later at most; until then its throttles look like strangers."""
OWN_PART: Final = 0.85
"""A throttle that our own bytes explain to this part is nobody else's doing."""
MOST_DECREASE: Final = 0.5
LONGEST_STEP_MS: Final = 1_000
"""A share grows by no more than this at once, however long nobody asked."""
QUIET_MS: Final = 3_000
"""How long a learnt rate stays as it is before it is probed."""
PROBE_PER_S: Final = 0.01
MOST_PROBE_PER_S: Final = 0.5
PROBE_DOUBLING_MS: Final = 5_000
PROBE_BYTES_PER_S: Final = 512.0
ENDLESS_BYTES_PER_S: Final = 1e10
"""A learnt rate that has been probed up to here is no limit any more."""


class _LearntShare:
    """A rate that nobody told us.

    Attributes:
        learnt: see `FetchShare`.
        rate: bytes per second to fetch at now; infinite as long as nothing is known.
    """

    __slots__ = ("_grown_at_ms", "_hold_until_ms", "_quiet_since_ms", "learnt", "rate")

    limit: Final = None

    def __init__(self) -> None:
        self.learnt: float | None = None
        self.rate = inf
        self._grown_at_ms: int | None = None
        self._hold_until_ms: int | None = None
        self._quiet_since_ms = 0

    def on_throttle(self, own_bytes: float, window_ms: int, throttle_ms: int, now_ms: int) -> None:
        """See `FetchShare`."""
        self._grown_at_ms = now_ms
        measured = own_bytes * 1000.0 / (window_ms + throttle_ms)
        if measured <= 0.0 or (self._hold_until_ms is not None and now_ms < self._hold_until_ms):
            return
        # Until what was received by now has left the window, further throttles are of the same bytes.
        self._hold_until_ms = now_ms + window_ms + throttle_ms
        self._quiet_since_ms = now_ms + throttle_ms
        if self.learnt is None:
            self.rate = measured * TARGET
        else:
            self.rate = max(self.rate * MOST_DECREASE, min(self.rate, measured * TARGET))
        self.learnt = measured

    def grow(self, now_ms: int, *, busy: bool) -> None:
        """See `FetchShare`."""
        before, self._grown_at_ms = self._grown_at_ms, now_ms
        if before is None or now_ms <= before or self.learnt is None or not busy:
            return
        probing_ms = now_ms - self._quiet_since_ms - QUIET_MS
        if probing_ms <= 0:
            return
        growth = min(PROBE_PER_S * 2.0 ** min(probing_ms // PROBE_DOUBLING_MS, 10), MOST_PROBE_PER_S)
        elapsed_ms = min(now_ms - before, LONGEST_STEP_MS)
        self.rate += (self.rate * growth + PROBE_BYTES_PER_S) * elapsed_ms / 1000.0
        if self.rate > ENDLESS_BYTES_PER_S:
            self.learnt = None
            self.rate = inf

    def rebase(self, shift_ms: int) -> None:  # noqa: ARG002  a known share moves what it remembers
        """The clock has jumped: no time remembered means anything."""
        self._grown_at_ms = self._hold_until_ms = None
        self._quiet_since_ms = 0


class FetchShare:
    """A rate in bytes per second that follows a limit, known or learnt, and the throttles met.

    Args:
        limit: the quota in bytes per second; None while unknown.
    """

    __slots__ = ("_grown_at_ms", "_share", "_whole_at_ms")

    def __init__(self, limit: float | None) -> None:
        self._share: KnownShare | _LearntShare = _LearntShare() if limit is None else KnownShare(limit)
        self._grown_at_ms = 0
        self._whole_at_ms: int | None = None

    @property
    def limit(self) -> float | None:
        """The quota in bytes per second; None while unknown."""
        return self._share.limit

    @property
    def learnt(self) -> float | None:
        """Our share in bytes per second as throttles have shown it; None before the first."""
        return self._share.learnt

    @property
    def rate(self) -> float:
        """Bytes per second to fetch at now; infinite as long as nothing is known."""
        share = self._share
        return share.rate if share.limit is None else share.rate * (TARGET / SHARE_TARGET)

    @property
    def ceiling(self) -> float:
        """What the whole quota is believed to be, bytes per second; infinite while nothing is known."""
        share = self._share
        if share.limit is not None:
            return share.limit
        return inf if share.learnt is None else max(share.learnt, share.rate / TARGET)

    def set_limit(self, limit: float | None) -> None:
        """Follow this limit from now on; a part given up to strangers stays given up, unless it was just now."""
        alone = self._whole_at_ms is not None and self._grown_at_ms - self._whole_at_ms <= LATE_MS
        if limit is None:
            self._share = _LearntShare()
        elif isinstance(self._share, KnownShare) and not alone:
            self._share.change(limit)
        else:
            self._share = KnownShare(limit)

    def on_throttle(
        self, own_bytes: float, window_ms: int, throttle_ms: int, now_ms: int, *, refused: float = 0.0
    ) -> None:
        """Yield, if strangers must have helped.

        Args:
            own_bytes: what we have received, and the fetch that was refused, in a window of `window_ms`.
            window_ms: as above.
            throttle_ms: what the broker said.
            now_ms: now.
            refused: the fetch alone: its own part of the throttle is no sign of a crowd.
        """
        limit = self._share.limit
        if limit is None:
            self._share.on_throttle(own_bytes, window_ms, throttle_ms, now_ms)
        elif own_bytes * 1000.0 < OWN_PART * limit * (window_ms + throttle_ms):
            crowd_ms = max(1, throttle_ms - int(refused * 1000.0 / limit))
            self._share.on_throttle(own_bytes, window_ms, crowd_ms, now_ms)

    def grow(self, now_ms: int, *, busy: bool) -> None:
        """Regain what the time since the last call allows; a learnt rate only while it is `busy` being used up."""
        share = self._share
        share.grow(now_ms, busy=busy)
        self._grown_at_ms = now_ms
        if isinstance(share, KnownShare) and share.is_whole:
            self._whole_at_ms = now_ms

    def rebase(self, shift_ms: int) -> None:
        """Move everything remembered by `shift_ms`: the clock has jumped."""
        self._share.rebase(shift_ms)
        self._whole_at_ms = None
