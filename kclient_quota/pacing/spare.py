"""What of a large quota may be used without passing the queue, which costs a message tens of microseconds.

Whoever uses less than half of a quota has nothing to wait for, and fuller batches would buy nothing. Up to there a
producer's callers hand messages to librdkafka themselves; what is above half of the quota is paced.
"""

from math import inf
from typing import Final

from kclient_quota.quota.rate import QUOTA_WINDOW_MS

LEAST_RATE: Final = 10_000_000.0
"""Bytes a second of a quota below which the queue keeps up with whatever may be sent."""
PART: Final = 0.5
"""Of the quota, that may be used so. As much of what may be used at once must have come together before callers are let
past the queue again."""
SPAN_MS: Final = QUOTA_WINDOW_MS
"""How much of that may be used at once: the sender looks twice as often."""


class Spare:
    """A bucket of bytes, filled at half of the quota's rate; messages that pass the queue are taken from it, too.

    Attributes:
        is_due: whether the last answer was 0 only because something could have been overtaken.
    """

    __slots__ = ("_at_ms", "_budget", "_given", "_rate", "is_due")

    def __init__(self) -> None:
        self._rate = 0.0
        self._budget = -inf
        self._given = False
        self._at_ms: int | None = None
        self.is_due = False

    def set_limit(self, limit: float | None, members: int) -> None:
        """Follow another limit in bytes per second, which so many producers share; None while there is none."""
        rate = 0.0 if limit is None or limit < LEAST_RATE else PART * limit / members
        if rate != self._rate:
            self._rate = rate
            self._budget = rate * SPAN_MS / 1000

    def step(self, now_ms: int, left: float, queued_bytes: int, *, may: bool) -> float:
        """How many bytes callers may now hand over themselves; 0: none, they pass the queue.

        Args:
            now_ms: now.
            left: what is left of the last answer.
            queued_bytes: so much has passed the queue since.
            may: whether nothing that was handed over now could overtake a message.
        """
        if not self._rate:
            self._given = self.is_due = False
            return 0.0
        most = self._rate * SPAN_MS / 1000
        if self._given:
            self._budget = left
        if self._at_ms is not None:
            self._budget += self._rate * (now_ms - self._at_ms) / 1000
        self._at_ms = now_ms
        self._budget = max(-most, min(most, self._budget - queued_bytes))
        has_room = self._budget >= (0.0 if self._given else PART * most)
        self._given, self.is_due = may and has_room, has_room and not may
        return self._budget if self._given else 0.0
