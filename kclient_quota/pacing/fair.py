"""Who is served next, so that all who want something get it by their weights: start-time fair queueing.

Everybody has a virtual time: what has been served to them, by their weight. Whoever is least served goes next. Who
comes anew begins where the others are, neither in credit nor in debt for the time before. Between two who want
something all the time the difference is never more than one service to each.
"""

import heapq
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

SLACK: Final = 64
"""So many that are out of date, and as many as are not, are carried along before they are swept out."""

Who = TypeVar("Who", bound=Hashable)


class Fair(Generic[Who]):
    """Turns by what everybody has had."""

    __slots__ = ("_count", "_heap", "_now", "_swept", "_times", "_waiting")

    def __init__(self) -> None:
        self._now = 0.0  # the virtual time of whoever was served last
        self._times: dict[Who, float] = {}  # of those who are ahead of it, waiting or not
        self._swept = 0  # how many times were left when they were swept last
        self._waiting: set[Who] = set()
        self._heap: list[tuple[float, int, Who]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, who: Who) -> bool:
        return who in self._waiting

    def join(self, who: Who) -> None:
        """`who` wants something from now on, if not already."""
        if who not in self._waiting:
            self._waiting.add(who)
            self._stand_in(who, max(self._times.get(who, 0.0), self._now))

    def leave(self, who: Who) -> None:
        """`who` wants nothing any more."""
        self._waiting.discard(who)
        if self._times.get(who, 0.0) <= self._now:
            self._times.pop(who, None)
        if len(self._times) > 2 * self._swept + SLACK:
            self._sweep()

    def first(self) -> Who | None:
        """Whose turn it is; None when nobody wants anything."""
        while self._heap:
            at, _, who = self._heap[0]
            if who in self._waiting and self._times[who] == at:
                return who
            heapq.heappop(self._heap)
        return None

    def charge(self, who: Who, cost: float) -> None:
        """`who` has had `cost`, divided by its weight."""
        at = max(self._times.get(who, 0.0), self._now)
        if who in self._waiting:
            self._now = at
            self._stand_in(who, at + cost)
        else:
            self._times[who] = at + cost

    def serve(self, who: Who, cost: float, *, is_done: bool) -> None:
        """`who`, whose turn it is by `first`, has had `cost`, and wants something more, or nothing (`is_done`)."""
        self._now = at = self._times[who]
        self._times[who] = at + cost
        if is_done:
            heapq.heappop(self._heap)
            self._waiting.discard(who)
            if len(self._times) > 2 * self._swept + SLACK:
                self._sweep()
        else:
            self._count += 1
            heapq.heapreplace(self._heap, (at + cost, self._count, who))

    def _sweep(self) -> None:
        """Forget the times of those that are neither ahead nor waiting."""
        self._times = {each: at for each, at in self._times.items() if at > self._now or each in self._waiting}
        self._swept = len(self._times)

    def _stand_in(self, who: Who, at: float) -> None:
        self._times[who] = at
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, who))
        if len(self._heap) > 2 * len(self._waiting) + SLACK:
            self._heap = sorted((self._times[each], count, each) for count, each in enumerate(self._waiting))
