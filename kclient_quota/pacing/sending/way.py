"""How far away a broker is: what batches take from the grant to the delivery, queueing behind our own apart."""

from math import inf
from typing import Final

from kclient_quota.pacing.trend import TREND
from kclient_quota.quota.rate import QUOTA_WINDOW_MS

QUEUEING: Final = 2.0
"""So many times as long as the shortest a way may seem: what is beyond that is spent behind batches of our own. Were it
taken for distance, more would be sent ahead, which would queue for longer still: over a link of half the quota's rate a
simulated producer came to have eleven seconds' worth on its way within a minute, and more every second."""
MOST_WAY_MS: Final = float(QUOTA_WINDOW_MS)
"""No broker is farther away: where one request at a time is on its way, what sending it takes seems distance, too."""
SOON_MS: Final = 10
"""When to look again for deliveries, where nothing better is known."""


class Way:
    """What was measured of one broker.

    Attributes:
        ms: from a grant to its delivery, as long as nothing is throttled.
        last_ms: the latest, queueing included.
    """

    __slots__ = ("_nearest_ms", "last_ms", "ms")

    def __init__(self) -> None:
        self.ms = self.last_ms = 0.0
        self._nearest_ms = inf  # the shortest, or what batches take that have the way to themselves

    def note(self, way_ms: int, tells: float) -> None:
        """A batch has taken so long; `tells` is above 0 when nothing else was on its way."""
        if way_ms < 0:
            return
        self.last_ms = way_ms
        if way_ms < self._nearest_ms:
            self._nearest_ms = way_ms
        else:
            self._nearest_ms += (way_ms - self._nearest_ms) * tells
        # A way that has become longer is believed in slowly, a shorter one at once.
        longer = self.ms + (way_ms - self.ms) * TREND if self.ms else way_ms
        self.ms = min(way_ms, longer, self._longest_ms)

    @property
    def _longest_ms(self) -> float:
        """What may be taken for distance."""
        return min(self._nearest_ms * QUEUEING + SOON_MS, MOST_WAY_MS)

    @property
    def seems_far(self) -> bool:
        """Whether batches take so much longer than may be taken for distance that it ought to be measured anew."""
        return self.last_ms > QUEUEING * self._longest_ms and self._longest_ms < MOST_WAY_MS
