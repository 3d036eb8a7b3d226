"""What of a large quota may be used without passing the queue, which costs a message tens of microseconds.

Whoever uses less than a quota has nothing to wait for, and fuller batches would buy nothing. So up to nearly all of it
a producer's callers hand messages to librdkafka themselves; what they have beyond that passes the queue, and is paced.
There it cannot be faster than Python is: of small messages under a large quota the queue alone carries half.
"""

from math import inf
from typing import Final

from kclient_quota.quota.rate import QUOTA_WINDOW_MS

LEAST_RATE: Final = 2_000_000.0
"""Bytes a second of a quota below which the queue keeps up with whatever may be sent."""
PART: Final = 0.9
"""Of the quota, that may be used so: that much evenly, and a second of it at once, is less than the broker's window of
ten seconds takes."""
BESIDE_OTHERS: Final = 0.5
"""The same where others may have the same quota: two of them are to have room in it."""
LEAST_BESIDE_OTHERS: Final = 10_000_000.0
"""Bytes a second as above, then: where more than two want all that they can get they are throttled now and then, which
is worth it only where the queue is much too slow."""
SPAN_MS: Final = QUOTA_WINDOW_MS
"""How much of that may be used at once: the sender looks twice as often."""


class Spare:
    """A bucket of bytes on the wire, filled at a part of the quota's rate; what passes the queue is taken from it, too.

    It is the busiest broker's bucket: a quota is one of each broker. Callers count the bytes of their messages, which
    compress, need frames, and go to several brokers: what one of them has cost so far on the busiest broker's wire is
    what the next one is taken to cost.

    Attributes:
        given: the last answer.
        is_due: whether the last answer was 0 only because something could have been overtaken.
    """

    __slots__ = ("_at_ms", "_budget", "_cost", "_quota", "_rate", "_raw", "_wire", "given", "is_due")

    def __init__(self) -> None:
        self._quota: tuple[float | None, int] = (None, 1)
        self._rate = 0.0
        self._budget = -inf
        self.given = 0.0
        self._at_ms: int | None = None
        self._cost = self._raw = self._wire = 1.0
        self.is_due = False

    def set_limit(self, limit: float | None, members: int, *, is_alone: bool = True) -> None:
        """Follow another limit in bytes per second, which so many producers of this process share; None: there is none.

        `is_alone`: no throttle has been heard of for a while, as it would be beside others.
        """
        part, least = (PART, LEAST_RATE) if is_alone else (BESIDE_OTHERS, LEAST_BESIDE_OTHERS)
        self._rate = 0.0 if limit is None or limit < least else part * limit / members
        if (limit, members) != self._quota:
            self._quota = limit, members
            self._budget = self._rate * SPAN_MS / 1000

    def on_sent(self, raw_bytes: int, wire_bytes: int) -> None:
        """Librdkafka has sent messages of so many bytes; on the busiest broker's wire they were so many."""
        if raw_bytes <= 0:
            return
        self._budget += raw_bytes * self._cost - wire_bytes
        self._raw = self._raw / 2 + raw_bytes  # what was before counts half as much
        self._wire = self._wire / 2 + wire_bytes
        self._cost = self._wire / self._raw

    def step(self, now_ms: int, left: float, queued_bytes: int, *, may: bool, wants: bool = True) -> float:
        """How many bytes of messages callers may now hand over themselves; 0: none, they pass the queue.

        Args:
            now_ms: now.
            left: what is left of the last answer.
            queued_bytes: so much has passed the queue since.
            may: whether nothing that was handed over now could overtake a message.
            wants: whether anybody has a use for it.
        """
        if not self._rate:
            self.given = 0.0
            self.is_due = False
            return 0.0
        most = self._rate * SPAN_MS / 1000
        spent = queued_bytes + (self.given - left if self.given else 0.0)
        earned = 0.0 if self._at_ms is None else self._rate * (now_ms - self._at_ms) / 1000
        self._at_ms = now_ms
        # What passes the queue is paced there, and not owed for long. What data have taken beyond what was reckoned is:
        # the broker counts it for ten seconds.
        least = min(-most, self._budget)
        self._budget = max(least, min(most, self._budget + earned - spent * self._cost))
        # Not for every byte that there is: callers would be let past the queue message by message.
        has_room = self._budget >= (0.0 if self.given else most / 2)
        self.is_due = has_room and wants and not may
        self.given = self._budget / self._cost if may and has_room and wants else 0.0
        return self.given
