"""What a producer is told, or waits to be told: the broker's last throttle, and which quota applies."""

from typing import Any, Final
from weakref import WeakSet

NEVER_MS: Final = -(2**62)


class Common:
    """What those have in common that share a quota.

    They wait at the same time, for all brokers, for a cluster that takes messages and is slow to say which quota
    applies: for who comes later nobody waits once more. And what may go at once is for all of them.

    Attributes:
        members: they, as long as there are.
    """

    __slots__ = ("_began_at_ms", "members")

    def __init__(self) -> None:
        self.members: WeakSet[Any] = WeakSet()
        self._began_at_ms: int | None = None

    def begin(self, now_ms: int) -> None:
        """Something has been delivered: there is a cluster."""
        if self._began_at_ms is None:
            self._began_at_ms = now_ms

    def left_ms(self, most_ms: int, now_ms: int) -> int:
        """For how long somebody still waits for the answer who does so for `most_ms`."""
        left_ms = 0 if self._began_at_ms is None else self._began_at_ms + most_ms - now_ms
        return left_ms if 0 < left_ms <= most_ms else 0  # whatever the clock does


class ThrottleTold:
    """What one broker has said of throttling.

    Args:
        longest_ms: so long a throttle counts at most: after that librdkafka has taken another connection, from which
            the broker reads.

    Attributes:
        ends_ms: when the latest one ends or ended, for all that counts.
        saves_requests: whether one was of requests, beside a quota of bytes: there are to be few.
    """

    __slots__ = ("_held_at_ms", "_held_ms", "_longest_ms", "_told_until_ms", "ends_ms", "saves_requests")

    def __init__(self, longest_ms: float) -> None:
        self._longest_ms = longest_ms
        self.saves_requests = False
        self._held_ms = 0
        self._held_at_ms = self._told_until_ms = self.ends_ms = NEVER_MS

    def hear(self, throttle_ms: int, now_ms: int) -> int:
        """The broker has said so; returns for how long it counts."""
        self._told_until_ms = now_ms + throttle_ms
        counts_ms = int(min(throttle_ms, self._longest_ms))
        self.ends_ms = max(self.ends_ms, now_ms + counts_ms)
        return counts_ms

    def hold(self, throttle_ms: int, now_ms: int) -> None:
        """Wait for so long, and learn nothing from it."""
        self._held_ms = max(throttle_ms, self.held_ms(now_ms))
        self._held_at_ms = now_ms

    def held_ms(self, now_ms: int) -> int:
        """How much of that is left; all of it, at most, whatever the clock does."""
        return min(self._held_ms, self._held_ms - (now_ms - self._held_at_ms)) if self._held_ms else 0

    def told_ms(self, left_ms: int, now_ms: int) -> int:
        """The same as the broker has said it, be it hours; nothing once `left_ms` is."""
        return max(left_ms, self._told_until_ms - now_ms) if left_ms else 0
