"""Which transactions are open in a partition and which were aborted: what read_committed needs to know.

Follows Kafka's `ProducerStateManager` (ongoing transactions, last stable offset) and `TransactionIndex`.
"""

from dataclasses import dataclass

from kclient_quota.wire.batches import BatchHeader, Buffer
from kclient_quota.wire.records import ABORT, iterate_records, marker_type


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A stretch of the log in which one producer's records do not count.

    Attributes:
        producer_id: whose.
        first_offset: of the transaction.
        last_offset: of its marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int


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
            self.aborted.append(AbortedTransaction(header.producer_id, first_offset, base_offset))

    def last_stable_offset(self, end_offset: int) -> int:
        """The first offset that belongs to an open transaction, or the end of the log."""
        return min(self.ongoing.values(), default=end_offset)

    def aborted_between(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [first_offset, end_offset)."""
        return [a for a in self.aborted if a.last_offset >= first_offset and a.first_offset < end_offset]

    def forget_before(self, start_offset: int) -> None:
        """Drop what concerns only records that are gone."""
        self.aborted = [a for a in self.aborted if a.last_offset >= start_offset]
