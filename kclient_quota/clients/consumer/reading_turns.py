"""Whose turn it is to be read, of the partitions of one broker.

Librdkafka asks for partitions in the same order whenever its queue has room again, and a fetch under a quota brings
one batch: the first partition that has any more. Nothing of the others would be read before that one's end. So what has
been read for a turn while another one had more and got nothing is to rest, until each of the others has had its turn
or has no more.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from math import ceil
from typing import Final

from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics

Partition = tuple[str, int]

LEAST_MS: Final = 2_000
"""A turn is so long at least: the others wait for it, and statistics tell four times a second who was read."""
LUMPS: Final = 20
"""And as long as so many fetches: when it ends, the one that is on its way may be thrown away."""
EXCUSED_MS: Final = 60_000
"""Of a partition of which nothing came in its turn others do not wait again before that: its batches may be broken."""
MOST_MS: Final = 1_000
"""Time that nobody has looked at counts as so much at most: an application may not have polled."""


class ReadingTurns:
    """Of one consumer."""

    def __init__(self) -> None:
        self._resting: set[Partition] = set()
        self._next: dict[Partition, int] = {}  # what is fetched next
        self._read_ms: Counter[Partition] = Counter()  # for how long it has been read since all have had their turns
        self._passed_ms: Counter[Partition] = Counter()  # for how long others have been read while it had more
        self._quiet_ms: Counter[int] = Counter()  # for how long nothing has come of a broker while some rest
        self._excused_until_ms: dict[Partition, int] = {}
        self._given: dict[Partition, int] = {}  # how far those had been handed over that rested last
        self._looked_at_ms = 0

    def look(
        self,
        seen: FetchStatistics,
        paused: Collection[Partition],
        resting: Collection[Partition],
        turn_ms: float,
        now_ms: int,
    ) -> set[Partition]:
        """Learn from statistics who has been read; `paused` are the application's, `resting` those that rest now.

        Returns:
            who is to rest from now on.
        """
        elapsed_ms, self._looked_at_ms = min(now_ms - self._looked_at_ms, MOST_MS), now_ms
        before, self._next = self._next, {part: seen.positions[part][0] for part in seen.leaders}
        self._resting = set(resting) & self._next.keys()
        self._forget(before.keys() - self._next.keys())
        self._given.update((part, at) for part, at in seen.given.items() if part in self._resting)
        together: defaultdict[int, list[Partition]] = defaultdict(list)
        for part, node in seen.leaders.items():
            together[node].append(part)
        for node, every in together.items():
            moved = {part for part in every if before.get(part, self._next[part]) < self._next[part]}
            eager = [part for part in every if part not in paused and self._wants(part, seen, now_ms)]
            since_ms = self._quiet_ms[node] + elapsed_ms
            self._note(eager, moved, min(since_ms, max(elapsed_ms, ceil(turn_ms / LUMPS))))
            self._quiet_ms[node] = 0 if moved else since_ms
            had_turns = {part for part in eager if self._read_ms[part] >= turn_ms and self._may_rest(part, seen)}
            if had_turns.issuperset(eager):
                self._over(every)
            elif max(self._passed_ms[part] for part in eager) >= turn_ms:
                self._rest(had_turns, every, node)
            elif self._quiet_ms[node] >= turn_ms and not self._resting.isdisjoint(every):
                self._excused_until_ms.update(dict.fromkeys(eager, now_ms + EXCUSED_MS))
                self._over(every)
        return self._resting

    def _wants(self, part: Partition, seen: FetchStatistics, now_ms: int) -> bool:
        """Whether it has more, and is not resting."""
        at, end = seen.positions[part]
        return 0 <= at < end and part not in self._resting and self._excused_until_ms.get(part, now_ms) <= now_ms

    def _may_rest(self, part: Partition, seen: FetchStatistics) -> bool:
        """Not where nothing has been handed over since its last rest, as of records of an aborted transaction.

        After a rest librdkafka begins behind what it has handed over last: a partition whose transaction takes longer
        than a turn would read the same of it again and again.
        """
        return part not in self._given or seen.given.get(part) != self._given[part]

    def _note(self, eager: list[Partition], moved: set[Partition], spent_ms: int) -> None:
        """So long has been spent on what has moved: what comes less often than is looked was waited for, too.

        But no longer than a fetch takes: before that nobody wanted anything, or the broker was muted.
        """
        for part in moved:
            self._read_ms[part] += spent_ms
            self._passed_ms.pop(part, None)
            self._excused_until_ms.pop(part, None)
        if moved:
            self._passed_ms.update({part: spent_ms for part in eager if part not in moved})

    def _rest(self, done: set[Partition], every: Iterable[Partition], node: int) -> None:
        """These of a broker's have had their turns; who waits for another broker's waits on."""
        if done:
            self._resting |= done
            for part in every:
                self._passed_ms.pop(part, None)  # they have the next turns
            self._quiet_ms.pop(node, None)

    def _over(self, every: Iterable[Partition]) -> None:
        """All of these have had their turns."""
        for part in every:
            self._resting.discard(part)
            self._read_ms.pop(part, None)
            self._passed_ms.pop(part, None)

    def _forget(self, gone: Iterable[Partition]) -> None:
        self._over(gone)
        for part in gone:
            self._excused_until_ms.pop(part, None)
            self._given.pop(part, None)
