"""How a consumer whose messages must wait stays in its group: when to touch librdkafka's timer, when to poll."""

from enum import Enum
from typing import Final

DEFAULT_MAX_POLL_INTERVAL_MS: Final = 300_000
MOST_UNPOLLED_MS: Final = 5_000
"""Rebalances and callbacks wait no longer than this."""
TOUCH_MS: Final = 200


class Beat(Enum):
    """What is due."""

    NOTHING = "nothing"
    TOUCH = "touch"
    """Tell librdkafka that the application is alive; takes nothing out of its queue."""
    POLL = "poll"
    """Serve callbacks and rebalances, which takes a message out when there is one."""


class Heartbeat:
    """Decides; the consumer acts.

    Args:
        max_poll_interval_ms: Kafka's `max.poll.interval.ms`.
        now_ms: when the consumer was made.
    """

    def __init__(self, max_poll_interval_ms: int, now_ms: int) -> None:
        self._max_poll_interval_ms = max_poll_interval_ms
        self._unpolled_ms = min(max_poll_interval_ms // 3, MOST_UNPOLLED_MS)
        self._touch_ms = min(TOUCH_MS, max(1, max_poll_interval_ms // 10))
        self._polled_at_ms = now_ms
        self._touched_at_ms = now_ms

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

    def unpolled_ms(self, now_ms: int) -> int:
        """For how long nothing has been polled."""
        return max(0, now_ms - self._polled_at_ms)

    def headroom_ms(self, now_ms: int) -> int:
        """How long the application may go on without polling before it loses its partitions."""
        return self._max_poll_interval_ms - max(0, now_ms - self._touched_at_ms)
