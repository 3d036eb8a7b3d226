"""How much of a broker's quota is this consumer's: the law that producers share by (`quota.share`, `quota.learning`).

Two things are otherwise for fetches. What exceeds the quota is not counted, so a known limit is aimed at more closely.
And a throttle that our own bytes explain is no stranger's doing: it was a fetch that came a little early.
"""

from math import inf
from typing import Final

from kclient_quota.quota.learning import LearntShare
from kclient_quota.quota.share import TARGET as SHARE_TARGET
from kclient_quota.quota.share import KnownShare

TARGET: Final = 0.99
"""Part of a known limit that is aimed at."""
OWN_PART: Final = 0.85
"""A throttle that our own bytes explain to this part is nobody else's doing."""


class FetchShare:
    """A rate in bytes per second that follows a limit, known or learnt, and the throttles met.

    Args:
        limit: the quota in bytes per second; None while unknown.
    """

    __slots__ = ("_share",)

    def __init__(self, limit: float | None) -> None:
        self._share: KnownShare | LearntShare = LearntShare() if limit is None else KnownShare(limit)

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
        return inf if share.learnt is None else max(share.learnt, share.rate / SHARE_TARGET)

    def set_limit(self, limit: float | None) -> None:
        """Follow this limit from now on; a part given up to strangers stays given up."""
        if limit is None:
            self._share = LearntShare()
        elif isinstance(self._share, KnownShare):
            self._share.change(limit)
        else:
            self._share = KnownShare(limit)

    def on_throttle(self, own_bytes: float, window_ms: int, throttle_ms: int, now_ms: int) -> None:
        """Yield, if strangers must have helped: `own_bytes` in a window of `window_ms` have met `throttle_ms`."""
        limit = self._share.limit
        if limit is None or own_bytes * 1000.0 < OWN_PART * limit * (window_ms + throttle_ms):
            self._share.on_throttle(own_bytes, window_ms, throttle_ms, now_ms)

    def grow(self, now_ms: int, *, busy: bool) -> None:
        """Regain what the time since the last call allows; a learnt rate only while it is `busy` being used up."""
        self._share.grow(now_ms, busy=busy)

    def rebase(self, shift_ms: int) -> None:
        """Move everything remembered by `shift_ms`: the clock has jumped."""
        self._share.rebase(shift_ms)
