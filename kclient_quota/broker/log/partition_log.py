"""A partition's log: v2 record batches in memory, copied once on their way in and not at all on their way out.

Reads follow Kafka's `LocalLog.read` and `ReplicaManager.readFromLog`: what is returned is a slice of bytes, so a last
batch that does not fit is cut in the middle (clients skip it, but it has cost its bytes of quota); only the first batch
is returned whole however large it is, and only where the caller asks for that.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from kclient_quota.broker.log.compacted import Compacted
from kclient_quota.broker.log.log_config import NO_TIMESTAMP, Appended, LogConfig
from kclient_quota.broker.log.producers import NO_PRODUCER_ID, ProducerStates, SequencedBatch, last_sequence
from kclient_quota.broker.log.record_fields import UnsoundRecords
from kclient_quota.broker.log.record_validation import refuse_records, see_records
from kclient_quota.broker.log.segments import SegmentPool
from kclient_quota.broker.log.stored_batches import StoredBatches
from kclient_quota.broker.log.transaction_index import AbortedTransaction, TransactionIndex
from kclient_quota.errors import WireError
from kclient_quota.wire.batches import (
    BatchHeader,
    Buffer,
    check_crc,
    parse_header,
    patch,
    patch_append_time,
    with_max_timestamp,
)
from kclient_quota.wire.error_codes import ErrorCode


class LogStore(Protocol):
    """Where a log's batches are kept beside memory."""

    def append(self, batch: memoryview, *, begins_segment: bool) -> None:
        """Keep a batch; an OSError of it refuses the batch."""
        ...

    def start_moved(self) -> None:
        """What lies before the log's start is not needed any more."""
        ...

    def replace(self, batches: Iterator[memoryview], end_offset: int, is_current: Callable[[], bool]) -> Iterator[int]:
        """Keep these batches instead of those that lie before `end_offset`, as long as `is_current`.

        Yields how many bytes it has written, after every batch, and `WAITING` as long as it waits for the disk.
        """
        ...


class Reach(NamedTuple):
    """How far readers see: the high watermark and the last stable offset."""

    high_watermark: int
    stable_offset: int


class PartitionLog:
    """Batches of one partition.

    Args:
        pool: where segments come from and go to.

    Attributes:
        config: may be replaced at any time.
        start_offset: the first offset that can be read.
        end_offset: the offset that the next record gets.
        producers: sequence numbers of idempotent producers.
        transactions: those that are open and those that were aborted.
        stored: the batches.
        damaged: stretches of offsets (first and last) whose batches on the disk are damaged, lowest first.
        compacted: how far compaction has come.
        store: keeps every batch, or None; an OSError of it refuses the batch.
    """

    def __init__(self, pool: SegmentPool, config: LogConfig | None = None) -> None:
        self.config = config or LogConfig()
        self.start_offset = 0
        self.end_offset = 0
        self.producers = ProducerStates()
        self.transactions = TransactionIndex()
        self.damaged: list[tuple[int, int]] = []
        self.store: LogStore | None = None
        self.compacted = Compacted()
        self.stored = StoredBatches(pool)
        self._held: Reach | None = None
        self._watchers: dict[Callable[[], None], None] = {}

    @property
    def size_bytes(self) -> int:
        """Bytes held."""
        return self.stored.size_bytes

    @property
    def high_watermark(self) -> int:
        """Up to where clients read: the end, replicas being one, unless the disk itself is still to have the last."""
        return self.end_offset if self._held is None else max(self._held.high_watermark, self.start_offset)

    @property
    def last_stable_offset(self) -> int:
        """Up to where `read_committed` reads."""
        if self._held is None:
            return self.transactions.last_stable_offset(self.end_offset)
        return max(self._held.stable_offset, self.start_offset)

    # -- being shown

    @property
    def reach(self) -> Reach:
        """How far readers would see if they saw everything."""
        return Reach(self.end_offset, self.transactions.last_stable_offset(self.end_offset))

    def hold(self) -> None:
        """Readers see no further than they do now, until `show`."""
        if self._held is None:
            self._held = self.reach

    def show(self, reach: Reach) -> None:
        """Readers see so far."""
        self._held = None if reach == self.reach else reach
        self.wake()

    # -- writing

    def append(self, batch: Buffer, *, leader_epoch: int, now_ms: int) -> Appended:
        """Store what a client sent as one partition's records.

        Args:
            batch: exactly one v2 batch; copied.
            leader_epoch: written into the stored batch.
            now_ms: for topics with LogAppendTime.

        Returns:
            Where it is, or why it was refused; a repetition of one of a producer's last five batches is answered with
            the offset of the first time.
        """
        try:
            header = parse_header(batch)
        except WireError as error:
            return _refuse(ErrorCode.INVALID_RECORD, str(error))
        refusal = self._refusal(batch, header)
        if refusal is not None:
            return refusal
        least_ms, most_ms = self.config.timestamps(now_ms)
        try:
            seen = see_records(batch, header, least_ms, most_ms, needs_keys=self.config.is_compacted)
        except UnsoundRecords as error:
            return _refuse(ErrorCode.INVALID_RECORD, str(error))
        if seen.untimely or seen.keyless:
            return refuse_records(seen, least_ms, most_ms)
        if seen.max_timestamp != header.max_timestamp and not header.is_log_append_time:
            batch = with_max_timestamp(batch, seen.max_timestamp)
            header = header._replace(max_timestamp=seen.max_timestamp)
        if header.producer_id == NO_PRODUCER_ID:
            return self._store(batch, header, leader_epoch, now_ms)
        return self._append_in_sequence(batch, header, leader_epoch, now_ms)

    def append_marker(self, batch: Buffer, *, leader_epoch: int, now_ms: int) -> Appended:
        """Store the control batch that ends a producer's transaction here, and fence older epochs of it."""
        header = parse_header(batch)
        self.producers.fence(header.producer_id, header.producer_epoch, now_ms)
        return self._store(batch, header, leader_epoch, now_ms)

    def _append_in_sequence(self, batch: Buffer, header: BatchHeader, leader_epoch: int, now_ms: int) -> Appended:
        self.producers.expire(now_ms, self.config.producer_expiration_ms, self.transactions.ongoing)
        sequence = (header.base_sequence, last_sequence(header.base_sequence, header.record_count))
        written = self.producers.duplicate_of(header.producer_id, header.producer_epoch, *sequence)
        if written is not None:
            time_ms = written.timestamp_ms if self.config.uses_log_append_time else NO_TIMESTAMP
            return Appended(ErrorCode.NONE, written.base_offset, time_ms)
        error = self.producers.check(header.producer_id, header.producer_epoch, header.base_sequence)
        if error:
            return Appended(error)
        appended = self._store(batch, header, leader_epoch, now_ms)
        if not appended.error:
            stored = header._replace(base_offset=appended.base_offset)
            self._remember(stored, max(header.max_timestamp, appended.log_append_time_ms), now_ms)
        return appended

    def restore(self, batch: Buffer) -> None:
        """Store a batch read back from disk at the offset it says; batches must come in order.

        Raises:
            WireError: it is no batch, or lies behind the last one.
        """
        header = parse_header(batch)
        if header.base_offset < self.end_offset:
            raise WireError(f"a batch at offset {header.base_offset} behind offset {self.end_offset}")
        if not self.stored.segments and not self.damaged:
            self.start_offset = header.base_offset
        self.stored.copy_in(batch, header, header.base_offset, self.config.segment_bytes)
        self.end_offset = header.last_offset + 1
        self.transactions.on_batch(header, header.base_offset, batch)
        if header.is_control:
            self.producers.fence(header.producer_id, header.producer_epoch, header.max_timestamp)
        elif header.producer_id != NO_PRODUCER_ID:
            self._remember(header, header.max_timestamp, header.max_timestamp)

    def restore_damage(self, first_offset: int, last_offset: int) -> None:
        """Note that the next batch on the disk is damaged: its offsets can neither be read nor be used again."""
        if not self.stored.segments and not self.damaged:
            self.start_offset = first_offset
        self.damaged.append((first_offset, last_offset))
        self.end_offset = last_offset + 1

    def skip_to(self, offset: int) -> None:
        """Let an empty log begin at `offset`."""
        self.start_offset = self.end_offset = offset

    def _refusal(self, batch: Buffer, header: BatchHeader) -> Appended | None:
        """Kafka's `ProduceRequest.validateRecords` and `UnifiedLog.analyzeAndValidateRecords`."""
        size = len(batch)
        if header.size != size:
            return _refuse(ErrorCode.INVALID_RECORD, "a produce request carries exactly one record batch")
        if size > self.config.max_message_bytes:
            limit = self.config.max_message_bytes
            return _refuse(ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes is {limit}")
        if not check_crc(batch, 0, header):
            return _refuse(ErrorCode.CORRUPT_MESSAGE, "the batch fails its checksum")
        if header.is_control or header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
            return _refuse(ErrorCode.INVALID_RECORD, "clients write no control batches and no gaps")
        return None

    def _is_old_enough(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether the segment that is written to has been for `segment.ms`, by the times of records."""
        segments = self.stored.segments
        if not segments or not segments[-1].size:
            return False
        time_ms = now_ms if self.config.uses_log_append_time else header.max_timestamp
        return time_ms - segments[-1].max_timestamps[0] > self.config.segment_ms

    def _remember(self, header: BatchHeader, timestamp_ms: int, now_ms: int) -> None:
        first = header.base_sequence
        # compaction takes records away, and leaves what they were numbered by
        last = last_sequence(first, header.last_offset_delta + 1)
        batch = SequencedBatch(first, last, header.base_offset, timestamp_ms, header.last_offset)
        self.producers.record(header.producer_id, header.producer_epoch, batch, now_ms)

    def _store(self, batch: Buffer, header: BatchHeader, leader_epoch: int, now_ms: int) -> Appended:
        base_offset = self.end_offset
        segment, at = self.stored.copy_in(
            batch, header, base_offset, self.config.segment_bytes, begins_segment=self._is_old_enough(header, now_ms)
        )
        patch(segment.view, at, base_offset=base_offset, leader_epoch=leader_epoch)
        append_time_ms = NO_TIMESTAMP
        if self.config.uses_log_append_time:
            append_time_ms = now_ms
            segment.forget_time()
            segment.note_time(now_ms)
            patch_append_time(segment.view, at, now_ms)
        if self.store is not None:
            try:
                self.store.append(segment.view[at : segment.size], begins_segment=at == 0)
            except OSError as error:
                segment.take_back()
                return _refuse(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        self.end_offset = base_offset + header.last_offset_delta + 1
        self.transactions.on_batch(header, base_offset, batch)
        self.retain(now_ms)
        self.wake()
        return Appended(ErrorCode.NONE, base_offset, append_time_ms)

    # -- reading

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool, end_offset: int | None = None) -> memoryview:
        """Bytes from the batch that holds `offset` on.

        Args:
            offset: between `start_offset` and `end_offset`, both included.
            max_bytes: where to cut; within a batch, if that is where it falls.
            min_one_batch: return the first batch whole even when it is larger.
            end_offset: base offset of a batch before which to stop, such as `last_stable_offset`.

        Returns:
            A view of the log, empty at its end or when the first batch does not fit; never more than one segment.
        """
        if self.damaged:
            following = bisect_left(self.damaged, (offset, offset))
            if following < len(self.damaged):
                end_offset = min(self.damaged[following][0], self.end_offset if end_offset is None else end_offset)
        if offset >= (self.end_offset if end_offset is None else end_offset):
            return memoryview(b"")
        found = self.stored.find(offset)
        if found is None:
            return memoryview(b"")
        segment, batch = found
        start = segment.positions[batch]
        first_size = segment.end_of(batch) - start
        if max_bytes < first_size:
            if not min_one_batch:
                return memoryview(b"")
            max_bytes = first_size
        stop = segment.size
        if end_offset is not None and end_offset < self.end_offset:
            following = bisect_left(segment.offsets, end_offset)
            stop = segment.positions[following] if following < len(segment.offsets) else stop
        return segment.view[start : min(start + max_bytes, stop)]

    def damage_at(self, offset: int) -> tuple[int, int] | None:
        """The damaged stretch (first and last offset) that `offset` lies in, or None."""
        following = bisect_right(self.damaged, offset, key=_first) - 1
        if following >= 0 and offset <= self.damaged[following][1]:
            return self.damaged[following]
        return None

    def aborted_in(self, offset: int, size_bytes: int) -> list[AbortedTransaction]:
        """Aborted transactions that concern a read of `size_bytes` from `offset` on."""
        found = self.stored.find(offset) if self.transactions.aborted and size_bytes else None
        if found is None:
            return []
        return self.transactions.aborted_between(offset, self.stored.end_of_offsets(*found, size_bytes))

    def available_bytes(self, offset: int) -> int:
        """How many bytes a read without limit could return from `offset` on, over all segments."""
        return self.stored.available_bytes(offset)

    def batch_at(self, timestamp_ms: int) -> memoryview | None:
        """The first batch with a record at `timestamp_ms` or later, or None."""
        return self.stored.batch_at(timestamp_ms, self.start_offset)

    def batches(self) -> Iterator[memoryview]:
        """Every batch, oldest first."""
        return iter(self.stored)

    def newest_batch(self) -> memoryview | None:
        """The first of the batches that hold the largest timestamp, or None when there are none."""
        newest_ms = self.stored.newest_ms
        newest = None if newest_ms is None else self.batch_at(newest_ms)
        if newest is not None:
            return newest
        # the newest of all may be what compaction has left empty
        filled = (batch for batch in self.stored if parse_header(batch).record_count)
        return max(filled, key=lambda batch: parse_header(batch).max_timestamp, default=None)

    # -- forgetting

    def delete_before(self, offset: int) -> None:
        """Move `start_offset` forward to `offset` and drop the segments that lie before it."""
        self.start_offset = max(self.start_offset, min(offset, self.end_offset))
        self.transactions.forget_before(self.start_offset)
        self.damaged = [stretch for stretch in self.damaged if stretch[1] >= self.start_offset]
        self.stored.drop_before(self.start_offset)
        if self.store is not None:
            self.store.start_moved()

    def close(self) -> None:
        """Give all memory back and wake whoever waits; the log is empty afterwards."""
        self.stored.clear()
        self.start_offset = self.end_offset
        self.wake()

    def retain(self, now_ms: int) -> None:
        """Forget segments beyond `retention.bytes` and, by the time of their newest record, `retention.ms`."""
        retention_bytes, retention_ms = self.config.retention_bytes, self.config.retention_ms
        segments = self.stored.segments
        if retention_bytes >= 0:
            total = self.size_bytes
            while len(segments) > 1 and total - segments[0].size >= retention_bytes:
                total -= segments[0].size
                self.delete_before(segments[1].base_offset)
        if retention_ms >= 0:
            while segments and segments[0].newest_ms < now_ms - retention_ms:
                self._forget_oldest()

    def _forget_oldest(self) -> None:
        segments = self.stored.segments
        if len(segments) > 1:
            self.delete_before(segments[1].base_offset)
            return
        self.delete_before(self.end_offset)
        self.stored.drop_last()

    # -- being watched

    def watch(self, callback: Callable[[], None]) -> None:
        """Call back after every append and every change of leader."""
        self._watchers[callback] = None

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Undo `watch`."""
        self._watchers.pop(callback, None)

    def wake(self) -> None:
        """Call whoever watches."""
        if self._watchers:
            for callback in list(self._watchers):
                callback()


def _first(stretch: tuple[int, int]) -> int:
    return stretch[0]


def _refuse(error: ErrorCode, message: str) -> Appended:
    return Appended(error, error_message=message)
