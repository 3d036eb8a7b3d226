"""What to claim beside clients that never give way.

Among clients that pace themselves throttles end within seconds, since each gives up some of its share for them. Plain
clients give up nothing: they send a request of a megabyte whenever a throttle ends, so that every answer carries the
next one, and whoever alone gives way is left with a thousandth. So whoever has been throttled again and again for
PATIENCE_MS, and got far less than they aimed at, claims a part of the limit all the same, and sends in one request what
that part comes to from one throttle to the next: as the others do, to whom a broker gives throttles no longer for it.

The claim grows, as long as it is used, until a quarter of the limit is ours or until throttles have become WORSE times
as long as they were without it. That bounds what any number of clients that claim can do to everybody: together they
get about half. After LASTS_MS one gives way again, to see whether the others do by now.
"""

from math import sqrt
from typing import Final

from kclient_quota.quota.rate import QUOTA_SAMPLES, QUOTA_WINDOW_MS

LET_OFF_MS: Final = (QUOTA_SAMPLES - 1) * QUOTA_WINDOW_MS // 2
"""Without a throttle for half a window after the last one's end, somebody has given way."""
PATIENCE_MS: Final = 30_000
"""Clients that pace themselves have shared a quota out by then."""
LASTS_MS: Final = 300_000
MOST_PART: Final = 0.25
"""Whoever gets less than this part of what they aim at is muted most of the time; no more of the limit is claimed."""
STEP: Final = 0.02
"""With every throttle the claim rises by a step times its root, or falls by a part of itself: equals meet that way."""
WORSE: Final = 2.0
TREND: Final = 0.2
"""How much of the mean of throttle times the latest makes."""


class Claim:
    """What is claimed of a limit.

    Attributes:
        part: of the limit; 0 as long as nothing is claimed.
    """

    __slots__ = ("_ended_ms", "_mean_ms", "_since_ms", "_usual_ms", "part")

    def __init__(self) -> None:
        self.part = 0.0
        self._since_ms = 0
        self._ended_ms = -LET_OFF_MS
        self._mean_ms = 0.0
        self._usual_ms = 0.0

    @property
    def every_ms(self) -> float:
        """From one request to the next: as long as throttles are, half a minute at most; 0 while nothing is claimed."""
        return min(self._mean_ms, PATIENCE_MS) if self.part else 0.0

    def on_throttle(self, throttle_ms: int, had: float, aimed_at: float, now_ms: int) -> None:
        """An answer carries so long a throttle.

        Args:
            throttle_ms: how long.
            had: the part of the limit that was ours until this throttle ends.
            aimed_at: the part that would have been.
            now_ms: now.
        """
        let_off = now_ms - self._ended_ms >= LET_OFF_MS
        self._ended_ms = max(self._ended_ms, now_ms + throttle_ms)
        self._mean_ms = throttle_ms if let_off else self._mean_ms + (throttle_ms - self._mean_ms) * TREND
        if let_off or (not self.part and had > aimed_at * MOST_PART) or now_ms - self._since_ms >= LASTS_MS:
            self._since_ms, self.part = now_ms, 0.0
        elif now_ms - self._since_ms >= PATIENCE_MS:
            self._move(had)

    def _move(self, had: float) -> None:
        if not self.part:
            self._usual_ms = self._mean_ms
            self.part = had
        elif self._mean_ms > self._usual_ms * WORSE:
            self.part /= sqrt(WORSE)
        elif had > self.part / 2:
            self.part = min(self.part + STEP * sqrt(self.part), MOST_PART)

    def rebase(self, shift_ms: int) -> None:
        """Move everything remembered by `shift_ms`: the clock has jumped."""
        self._since_ms += shift_ms
        self._ended_ms += shift_ms
