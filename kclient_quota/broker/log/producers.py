"""What a partition remembers of idempotent producers: Kafka's `ProducerStateManager`."""

from collections import deque
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from kclient_quota.wire.batches import BatchHeader
from kclient_quota.wire.error_codes import ErrorCode

NO_PRODUCER_ID = -1
_BATCHES_KEPT = 5
_SEQUENCES = 0x8000_0000
_CHECK_INTERVAL_MS = 600_000
"""Kafka's `producer.id.expiration.check.interval.ms`."""


@dataclass(frozen=True, slots=True)
class SequencedBatch:
    """A batch that a producer has written, as far as a repetition must be recognised.

    Attributes:
        first_sequence: sequence number of its first record.
        last_sequence: sequence number of its last record.
        base_offset: where it was stored.
        timestamp_ms: its largest timestamp.
        last_offset: of its last record.
    """

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp_ms: int
    last_offset: int = -1


@dataclass(slots=True)
class ProducerEntry:
    """One producer id in one partition.

    Attributes:
        epoch: its newest.
        seen_ms: when it last wrote.
        batches: its last five.
    """

    epoch: int
    seen_ms: int = -1
    batches: deque[SequencedBatch] = field(default_factory=lambda: deque(maxlen=_BATCHES_KEPT))


class ProducerStates:
    """Sequence numbers by producer id."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self._next_check_ms = -1

    def expire(self, now_ms: int, expiration_ms: int, open_ids: Container[int]) -> None:
        """Forget, every ten minutes at most, who has not written for so long and has no open transaction."""
        if now_ms < self._next_check_ms:
            return
        self._next_check_ms = now_ms + min(expiration_ms, _CHECK_INTERVAL_MS)
        for producer_id in [key for key, entry in self.entries.items() if entry.seen_ms <= now_ms - expiration_ms]:
            if producer_id not in open_ids:
                del self.entries[producer_id]

    def duplicate_of(self, producer_id: int, epoch: int, first: int, last: int) -> SequencedBatch | None:
        """The batch with these sequences among the last five, if it was written already."""
        entry = self.entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            return None
        return next((b for b in entry.batches if (b.first_sequence, b.last_sequence) == (first, last)), None)

    def check(self, producer_id: int, epoch: int, first: int) -> ErrorCode:
        """Whether a batch starting with sequence `first` may come next; an unknown producer may begin anywhere."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return ErrorCode.NONE
        if epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        is_first = epoch > entry.epoch or not entry.batches
        expected = 0 if is_first else (entry.batches[-1].last_sequence + 1) % _SEQUENCES
        return ErrorCode.NONE if first == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def record(self, producer_id: int, epoch: int, batch: SequencedBatch, now_ms: int) -> None:
        """Remember a batch that was written."""
        entry = self.entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            entry = self.entries[producer_id] = ProducerEntry(epoch)
        entry.batches.append(batch)
        entry.seen_ms = now_ms

    def fence(self, producer_id: int, epoch: int, now_ms: int) -> None:
        """Refuse older epochs from now on: a transaction marker with this epoch was written."""
        entry = self.entries.get(producer_id)
        if entry is None or entry.epoch < epoch:
            entry = self.entries[producer_id] = ProducerEntry(epoch)
        entry.seen_ms = max(entry.seen_ms, now_ms)


class LastBatches:
    """The last batch of each producer that is remembered, as of now: what compaction must not take away.

    Whoever reads the log back knows by it which sequence comes next (Kafka: `lastRecordsOfActiveProducers`).
    """

    def __init__(self, entries: Mapping[int, ProducerEntry]) -> None:
        self._last = {
            producer_id: (entry.batches[-1].last_offset if entry.batches else None, entry.epoch)
            for producer_id, entry in entries.items()
        }

    def has(self, header: BatchHeader) -> bool:
        """Whether a batch is one of them; of a producer with nothing but a marker that is it."""
        last_offset, epoch = self._last.get(header.producer_id, (-1, -1))
        if last_offset is None:
            return header.is_control and header.producer_epoch == epoch
        return header.last_offset == last_offset


def last_sequence(first: int, records: int) -> int:
    """Sequence number of the last of `records` records; numbers wrap at 2^31."""
    return (first + records - 1) % _SEQUENCES
