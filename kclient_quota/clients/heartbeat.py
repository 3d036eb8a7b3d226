"""How a consumer whose messages must wait stays in its group: when to touch librdkafka's timer, when to poll."""

from enum import Enum
from typing import Final

from kclient_quota.pacing.fetching.fetch import UNPOLLED_MS

CLOSED: Final = "Consumer closed"
"""What confluent_kafka says of a consumer that is closed, as a RuntimeError."""
DEFAULT_MAX_POLL_INTERVAL_MS: Final = 300_000
TOUCH_MS: Final = 200
NEAR: Final = 0.8
"""The part of `max.poll.interval.ms` after which its end is near."""


class Beat(Enum):
    """What is due."""

    NOTHING = "nothing"
    TOUCH = "touch"
    """Tell librdkafka that the application is alive; takes nothing out of its queue."""
    POLL = "poll"
    """Serve callbacks and rebalances, which takes a message out when there is one."""


class Heartbeat:
    """Decides; the consumer, which is made now, acts."""

    def __init__(self, max_poll_interval_ms: int, now_ms: int) -> None:
        self.max_poll_interval_ms = max_poll_interval_ms
        self.poll_every(UNPOLLED_MS)
        self._touch_ms = min(TOUCH_MS, max(1, max_poll_interval_ms // 10))
        self._polled_at_ms = now_ms
        self._touched_at_ms = now_ms
        self._near_ms = round(max_poll_interval_ms * NEAR)
        self._told_of_ms: int | None = None

    def on_poll(self, now_ms: int) -> None:
        """The queue was polled for real."""
        self._polled_at_ms = self._touched_at_ms = now_ms

    def due(self, now_ms: int) -> Beat:
        """What to do now, supposing that it will be done."""
        if now_ms - self._polled_at_ms >= self._unpolled_ms:
            self.on_poll(now_ms)
            return Beat.POLL
        if now_ms - self._touched_at_ms >= self._touch_ms:
            self._touched_at_ms = now_ms
            return Beat.TOUCH
        return Beat.NOTHING

    def poll_every(self, interval_ms: int) -> None:
        """What a poll takes may be taken so often."""
        self._unpolled_ms = min(self.most_unpolled_ms, interval_ms)

    @property
    def most_unpolled_ms(self) -> int:
        """It is polled at least so often."""
        return self.max_poll_interval_ms // 3

    def unpolled_ms(self, now_ms: int) -> int:
        """For how long nothing has been polled."""
        return max(0, now_ms - self._polled_at_ms)

    def headroom_ms(self, now_ms: int) -> int:
        """How long the application may go on without polling before it loses its partitions."""
        return self.max_poll_interval_ms - self.silent_ms(now_ms)

    def silent_ms(self, now_ms: int) -> int:
        """For how long librdkafka has heard nothing of the application."""
        return max(0, now_ms - self._touched_at_ms)

    def near_limit(self, now_ms: int) -> int | None:
        """How many milliseconds are left, when they are few; told once of each stretch without a poll, else None."""
        if self._told_of_ms == self._touched_at_ms or self.silent_ms(now_ms) < self._near_ms:
            return None
        self._told_of_ms = self._touched_at_ms
        return max(0, self.headroom_ms(now_ms))

    def check_in_ms(self, now_ms: int) -> int:
        """After how many milliseconds `near_limit` may have something to tell, at the earliest."""
        if self._told_of_ms == self._touched_at_ms:
            return self._near_ms
        return max(0, self._near_ms - self.silent_ms(now_ms))
