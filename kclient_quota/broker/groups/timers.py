"""Deadlines by key: what a coordinator has to do by itself, and when."""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class Timers(Generic[KeyT]):
    """One deadline per key; scheduling a key again moves its deadline.

    A key whose deadline is moved further away, as every heartbeat does, stays where it is in the queue and is moved
    when its turn comes: however often that was, it is one move.
    """

    def __init__(self) -> None:
        self._deadlines: dict[KeyT, tuple[int, int]] = {}
        self._queued: dict[KeyT, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, KeyT]] = []
        self._count = 0

    def schedule(self, key: KeyT, deadline_ms: int) -> None:
        """Let `key` be due at `deadline_ms`, and not when it was due before."""
        self._count += 1
        entry = self._deadlines[key] = (deadline_ms, self._count)
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued[0]:
            self._queued[key] = entry
            heapq.heappush(self._heap, (*entry, key))

    def cancel(self, key: KeyT) -> None:
        """Forget the deadline of `key`, if it has one."""
        self._deadlines.pop(key, None)

    def deadline_ms(self, key: KeyT) -> int | None:
        """When `key` is due, or None."""
        entry = self._deadlines.get(key)
        return None if entry is None else entry[0]

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline of all, or None."""
        self._see_to_moved()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> KeyT | None:
        """Take out the earliest key that is due at `now_ms`; of equal deadlines the one scheduled first."""
        self._see_to_moved()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._deadlines[key], self._queued[key]
        return key

    def _see_to_moved(self) -> None:
        """Let the first of the queue be one that is due when it stands there."""
        heap = self._heap
        while heap:
            *stands, key = heap[0]
            entry = self._deadlines.get(key)
            if self._queued.get(key) != tuple(stands):
                heapq.heappop(heap)  # it was moved nearer, and stands there, too
            elif entry is None:
                heapq.heappop(heap)
                del self._queued[key]
            elif entry != self._queued[key]:
                self._queued[key] = entry
                heapq.heapreplace(heap, (*entry, key))
            else:
                return
