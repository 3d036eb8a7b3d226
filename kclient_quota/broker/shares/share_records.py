"""The records of a partition that a share group has under way, and how they are kept: in runs. Pure."""

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

    def without(self, first: int, last: int) -> "list[Acquired]":
        """What is left of them where those from `first` to `last` are not among them."""
        parts = [
            self._replace(last=min(self.last, first - 1)),
            self._replace(first=max(self.first, last + 1)),
        ]
        return (
            [part for part in parts if part.first <= part.last] if first <= self.last and last >= self.first else [self]
        )


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
