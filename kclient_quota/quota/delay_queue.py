"""Who is throttled until when: Kafka's delay queue of throttled channels, without its thread."""

import heapq
from typing import Generic, TypeVar

Channel = TypeVar("Channel")


class DelayQueue(Generic[Channel]):
    """Throttled channels in the order in which their throttling ends.

    Kafka's `DelayQueue` of `ThrottledChannel`; its reaper takes one whose time has come, or waits.
    """

    __slots__ = ("_added", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Channel]] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, channel: Channel, throttle_time_ms: int, now_ms: int) -> None:
        """Throttle `channel` for `throttle_time_ms`."""
        self._added += 1
        heapq.heappush(self._heap, (now_ms + throttle_time_ms, self._added, channel))

    def poll(self, now_ms: int) -> Channel | None:
        """The channel whose throttling has been over for longest, taken out; None when all still are throttled."""
        if self._heap and self._heap[0][0] <= now_ms:
            return heapq.heappop(self._heap)[2]
        return None

    def next_end_ms(self) -> int | None:
        """When the next throttling ends; None when nobody is throttled."""
        return self._heap[0][0] if self._heap else None
