"""Tells a clock that is behind from a backlog: by its stamps, what such a clock has stamped is old when it comes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from kclient_quota.clients import TopicPartition
from kclient_quota.clock import unix_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient_quota.clients.consumer import Consumer
    from kclient_quota.clock import Clock

logger = logging.getLogger("kclient_quota")

_BEHIND_MS: Final = 60_000
"""As long as a page keeps what is no longer pushed."""
_AGAIN_MS: Final = 600_000


class LateStamps:
    """Warns where records are stamped a minute and more before they can have been written.

    Whoever has been at a partition's end knows that the next record was written after that. It counts only if it is the
    partition's last: of several, some may have lain there while nothing could be fetched.

    Args:
        consumer: knows where partitions end.
        clock: for how long ago that end was reached.
        now_unix_ms: this machine's wall clock.
    """

    def __init__(self, consumer: Consumer, clock: Clock, now_unix_ms: Callable[[], int] = unix_ms) -> None:
        self._consumer = consumer
        self._clock = clock
        self._now_unix_ms = now_unix_ms
        # Where it was, and when it was reached by either: the one stands still while a machine is suspended, the other
        # may be set.
        self._ends: dict[tuple[str, int], tuple[int, int, int]] = {}
        self._told_ms: int | None = None

    def end(self, message: Any) -> None:
        """A partition has nothing more, says librdkafka."""
        self._ends[message.topic(), message.partition()] = message.offset(), self._clock.now_ms(), self._now_unix_ms()

    def record(self, message: Any, stamp_unix_ms: int) -> None:
        """A record has come."""
        now_ms, wall_ms = self._clock.now_ms(), self._now_unix_ms()
        old_ms = wall_ms - stamp_unix_ms
        is_told = self._told_ms is not None and now_ms - self._told_ms < _AGAIN_MS
        if old_ms < _BEHIND_MS or is_told or stamp_unix_ms < 0:  # it has none
            return
        where, offset = (message.topic(), message.partition()), message.offset()
        known: Any = self._consumer.get_watermark_offsets(TopicPartition(*where), cached=True)
        if known is None or known[1] != offset + 1:
            return
        end, reached_ms, reached_wall_ms = self._ends.get(where, (None, 0, 0))
        self._ends[where] = offset + 1, now_ms, wall_ms
        late_ms = old_ms - max(now_ms - reached_ms, wall_ms - reached_wall_ms)
        if end != offset or late_ms < _BEHIND_MS:
            return
        self._told_ms = now_ms
        logger.warning(
            "%s[%d]@%d was written at least %d s after the time that it is stamped with: the clock that stamps it is "
            "behind this machine's, or its writer is late; clients look silent, and may not be shown. Set clocks right",
            *where,
            offset,
            late_ms // 1000,
        )
