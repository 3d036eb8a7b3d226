"""Deadlines by key: what a coordinator has to do by itself, and when."""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class Timers(Generic[KeyT]):
    """One deadline per key; scheduling a key again moves its deadline."""

    def __init__(self) -> None:
        self._deadlines: dict[KeyT, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, KeyT]] = []
        self._count = 0

    def schedule(self, key: KeyT, deadline_ms: int) -> None:
        """Let `key` be due at `deadline_ms`, and not when it was due before."""
        self._count += 1
        self._deadlines[key] = (deadline_ms, self._count)
        heapq.heappush(self._heap, (deadline_ms, self._count, key))

    def cancel(self, key: KeyT) -> None:
        """Forget the deadline of `key`, if it has one."""
        self._deadlines.pop(key, None)

    def deadline_ms(self, key: KeyT) -> int | None:
        """When `key` is due, or None."""
        entry = self._deadlines.get(key)
        return None if entry is None else entry[0]

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline of all, or None."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> KeyT | None:
        """Take out the earliest key that is due at `now_ms`; of equal deadlines the one scheduled first."""
        self._drop_stale()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._deadlines[key]
        return key

    def _drop_stale(self) -> None:
        heap, deadlines = self._heap, self._deadlines
        while heap and deadlines.get(heap[0][2]) != heap[0][:2]:
            heapq.heappop(heap)
