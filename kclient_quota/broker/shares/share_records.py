"""The records of a partition that a share group has under way, and how they are kept: in runs. Pure."""

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
    """One record: who has it, until when, for which time."""

    state: RecordState
    count: int
    member: str
    until_ms: int

    def forsake(self) -> None:
        """Whoever had it is not known any more: it is as it was before it was acquired."""
        if self.state is RecordState.ACQUIRED:
            self.state, self.member = RecordState.AVAILABLE, NOBODY
            self.count -= 1


@dataclass(slots=True)
class ShareBatch:
    """Records that were acquired together for the first time."""

    size: int
    records: dict[int, ShareRecord]


def runs_of(records: Iterable[tuple[int, ShareRecord]]) -> list[Run]:
    """What is to be kept of them: who has acquired what is not, and the acquisition does not count."""
    runs: list[Run] = []
    for offset, record in sorted(records, key=lambda one: one[0]):
        is_held = record.state is RecordState.ACQUIRED
        kind = [0, record.count - 1] if is_held else [int(record.state), record.count]
        if runs and runs[-1][1] + 1 == offset and runs[-1][2:] == kind:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset, *kind])
    return runs


def batches_of(runs: Iterable[Run]) -> Iterator[tuple[int, ShareBatch]]:
    """Where each batch begins, and the batch."""
    for first, last, state, count in runs:
        records = {
            offset: ShareRecord(RecordState(state), count, NOBODY, 0) for offset in range(int(first), int(last) + 1)
        }
        yield first, ShareBatch(len(records), records)
