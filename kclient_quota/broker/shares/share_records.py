"""The records of a partition that a share group has under way, and how they are kept: in runs. Pure."""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

NOBODY: Final = ""
Run = list[int]
"""First and last offset, state and delivery count, as in Kafka's `PersisterStateBatch`."""


class RecordState(IntEnum):
    """Kafka's names and numbers."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


TERMINAL: Final = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class Acquired(NamedTuple):
    """Records from `first` to `last`, whose `delivery`-th this is."""

    first: int
    last: int
    delivery: int


def left_of(acquired: Iterable[Acquired], gone: Iterable[tuple[int, int]]) -> list[Acquired]:
    """What is left where those stretches of offsets are not among what was acquired; both rise."""
    stretches, left = deque(gone), list[Acquired]()
    for one in acquired:
        begin = one.first
        while stretches and stretches[0][0] <= one.last:
            first, last = stretches[0]
            if begin < first:
                left.append(one._replace(first=begin, last=first - 1))
            begin = max(begin, last + 1)
            if last > one.last:
                break  # it goes on in the next
            stretches.popleft()
        if begin <= one.last:
            left.append(one._replace(first=begin))
    return left


def merged(found: Iterable[Acquired]) -> list[Acquired]:
    """Neighbours with the same count as one."""
    joined: list[Acquired] = []
    for one in found:
        if joined and joined[-1].last + 1 == one.first and joined[-1].delivery == one.delivery:
            joined[-1] = joined[-1]._replace(last=one.last)
        else:
            joined.append(one)
    return joined


@dataclass(slots=True)
class ShareRecord:
    """One record that is not settled: who has it, until when, for which time, and with how many it was first given."""

    state: RecordState
    count: int
    member: str
    until_ms: int
    batch: "ShareBatch"

    def take(self, member: str, until_ms: int) -> None:
        """It is the member's, once more delivered."""
        self.state, self.member, self.until_ms = RecordState.ACQUIRED, member, until_ms
        self.count += 1

    def free(self, max_deliveries: int) -> None:
        """It is anybody's, or archived when it was delivered so often."""
        self.state = RecordState.ARCHIVED if self.count >= max_deliveries else RecordState.AVAILABLE
        self.member = NOBODY

    def forsake(self) -> None:
        """Whoever had it is not known any more: it is as it was before it was acquired."""
        if self.state is RecordState.ACQUIRED:
            self.state, self.member = RecordState.AVAILABLE, NOBODY
            self.count -= 1


@dataclass(frozen=True, slots=True, eq=False)
class ShareBatch:
    """So many records were acquired together for the first time."""

    size: int


def runs_of(records: Iterable[tuple[int, ShareRecord]]) -> list[Run]:
    """What is to be kept of rising records: who has acquired what is not, and the acquisition does not count."""
    runs: list[Run] = []
    for offset, record in records:
        is_held = record.state is RecordState.ACQUIRED
        kind = [0, record.count - 1] if is_held else [int(record.state), record.count]
        if runs and runs[-1][1] + 1 == offset and runs[-1][2:] == kind:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset, *kind])
    return runs


class Settled:
    """Runs of records that need nobody any more, and lie behind one that does. They rise, and neighbours are one.

    One record that is never acknowledged may have millions of them behind it.

    Attributes:
        count: how many records.
    """

    def __init__(self) -> None:
        self.count = 0
        self._runs: list[Run] = []

    def __len__(self) -> int:
        """How many runs."""
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        """Copies of the runs."""
        return map(list, self._runs)

    def add(self, run: Run) -> None:
        """More of them, none of which was among them."""
        first, last, *kind = run
        self.count += last - first + 1
        at = bisect_left(self._runs, first, key=_first_of)
        if at < len(self._runs) and self._runs[at][0] == last + 1 and self._runs[at][2:] == kind:
            last = self._runs.pop(at)[1]
        if at and self._runs[at - 1][1] == first - 1 and self._runs[at - 1][2:] == kind:
            self._runs[at - 1][1] = last
        else:
            self._runs.insert(at, [first, last, *kind])

    def has_any(self, first: int, last: int) -> bool:
        """Whether any record from `first` to `last` is among them."""
        at = bisect_right(self._runs, last, key=_first_of)
        return at > 0 and self._runs[at - 1][1] >= first

    def begin_at(self, offset: int) -> None:
        """Forget everything before `offset`."""
        at = bisect_left(self._runs, offset, key=_last_of)
        self._forget(0, at)
        if self._runs and self._runs[0][0] < offset:
            self.count -= offset - self._runs[0][0]
            self._runs[0][0] = offset

    def end_at(self, offset: int) -> None:
        """Forget everything from `offset` on."""
        at = bisect_left(self._runs, offset, key=_first_of)
        self._forget(at, len(self._runs))
        if self._runs and self._runs[-1][1] >= offset:
            self.count -= self._runs[-1][1] - offset + 1
            self._runs[-1][1] = offset - 1

    def _forget(self, begin: int, end: int) -> None:
        self.count -= sum(last - first + 1 for first, last, _, _ in self._runs[begin:end])
        del self._runs[begin:end]


def _first_of(run: Run) -> int:
    return run[0]


def _last_of(run: Run) -> int:
    return run[1]
