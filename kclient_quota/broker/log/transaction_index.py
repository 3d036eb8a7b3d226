"""Which transactions are open in a partition and which were aborted: what read_committed needs to know.

Follows Kafka's `ProducerStateManager` (ongoing transactions, last stable offset) and `TransactionIndex`.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from kclient_quota.wire.batches import BatchHeader, Buffer
from kclient_quota.wire.records import ABORT, iterate_records, marker_type

_LAST = attrgetter("last_offset")


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A stretch of the log in which one producer's records do not count.

    Attributes:
        producer_id: whose.
        first_offset: of the transaction.
        last_offset: of its marker.
        stable_offset: where the log was stable then: what is aborted later begins there or behind.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int = field(default=0, compare=False)


class TransactionIndex:
    """Transactions of one partition; fed with every batch that is stored."""

    def __init__(self) -> None:
        self.ongoing: dict[int, int] = {}
        self.aborted: list[AbortedTransaction] = []

    def on_batch(self, header: BatchHeader, base_offset: int, batch: Buffer, at: int = 0) -> None:
        """Note a batch.

        Args:
            header: of the batch.
            base_offset: where it was stored.
            batch: holds it, for the kind of marker it may be.
            at: where in `batch` it begins.
        """
        if not header.is_transactional:
            return
        if not header.is_control:
            self.ongoing.setdefault(header.producer_id, base_offset)
            return
        first_offset = self.ongoing.pop(header.producer_id, None)
        marker = marker_type(next(iterate_records(batch, at, verify=False)))
        if marker == ABORT and first_offset is not None:
            stable_offset = self.last_stable_offset(base_offset + 1)
            self.aborted.append(AbortedTransaction(header.producer_id, first_offset, base_offset, stable_offset))

    def last_stable_offset(self, end_offset: int) -> int:
        """The first offset that belongs to an open transaction, or the end of the log."""
        # the oldest comes first
        return next(iter(self.ongoing.values()), end_offset)

    def aborted_between(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [first_offset, end_offset)."""
        found = []
        for index in range(bisect_left(self.aborted, first_offset, key=_LAST), len(self.aborted)):
            aborted = self.aborted[index]
            if aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.stable_offset >= end_offset:
                break
        return found

    def forget_before(self, start_offset: int) -> None:
        """Drop what concerns only records that are gone."""
        del self.aborted[: bisect_left(self.aborted, start_offset, key=_LAST)]


class AbortedBatches:
    """Tells of one batch after the other, by rising offsets, whether it was aborted.

    Args:
        aborted: the transactions that were.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=attrgetter("first_offset")))
        self._newest: dict[int, AbortedTransaction] = {}

    def has(self, header: BatchHeader, base_offset: int) -> bool:
        """Whether the records of the next batch do not count; markers do."""
        while self._coming and self._coming[0].first_offset <= base_offset:
            aborted = self._coming.popleft()
            self._newest[aborted.producer_id] = aborted
        found = self._newest.get(header.producer_id) if header.is_transactional and not header.is_control else None
        return found is not None and base_offset <= found.last_offset

    def stretches(self, headers: Iterable[BatchHeader], first: int, last: int) -> list[tuple[int, int]]:
        """From where to where those of the next batches were aborted that meet `first` to `last`, neighbours as one."""
        found: list[tuple[int, int]] = []
        for one in headers:
            if one.base_offset > last:
                break
            if one.last_offset < first or not self.has(one, one.base_offset):
                continue
            if found and found[-1][1] + 1 == one.base_offset:
                found[-1] = found[-1][0], one.last_offset
            else:
                found.append((one.base_offset, one.last_offset))
        return found
