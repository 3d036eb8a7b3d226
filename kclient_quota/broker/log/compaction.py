"""Compaction of a log: of each key the newest record stays, at its offset (Kafka's `LogCleaner` and `Cleaner`).

Only segments that are not written to any more are compacted, up to the first open transaction and, with
`min.compaction.lag.ms`, up to what is younger. A record without a value (a tombstone) takes with it what came before,
and goes itself once `delete.retention.ms` has passed since a compaction first saw it. Records of aborted transactions
go, markers stay. A batch of which nothing is left goes as well, but the last one of each producer that is remembered
stays empty: whoever reads the log back knows by it what a repetition is. One that inflates to more than 1 MiB stays.
"""

from collections.abc import Iterator
from contextlib import suppress

from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.producers import LastBatches
from kclient_quota.broker.log.record_validation import MOST_INFLATED_BYTES
from kclient_quota.broker.log.segments import Segment
from kclient_quota.broker.log.stored_batches import StoredBatches
from kclient_quota.broker.log.transaction_index import AbortedBatches
from kclient_quota.errors import WireError
from kclient_quota.wire.batches import HEADER_BYTES, BatchHeader, parse_header
from kclient_quota.wire.records import KeyedBytes, iterate_keys, with_records, without_records


def is_due(log: PartitionLog, now_ms: int) -> bool:
    """Whether enough has been written since the last compaction (`min.cleanable.dirty.ratio`), or long enough ago."""
    if not log.config.is_compacted:
        return False
    segments = _cleanable(log, now_ms)
    dirty = [segment for segment in segments if segment.ends[-1] > log.compacted.end_offset]
    if not dirty:
        return False
    if sum(segment.size for segment in dirty) > log.config.dirty_ratio * sum(segment.size for segment in segments):
        return True
    return dirty[0].max_timestamps[0] < now_ms - log.config.max_lag_ms


def compact(log: PartitionLog, now_ms: int) -> Iterator[int]:
    """Compact a log in many small steps, which yield how many bytes they have looked at.

    The log may be read and written in between. When it loses a segment meanwhile, nothing is changed.
    """
    yield from _Pass(log, now_ms).run()


def _cleanable(log: PartitionLog, now_ms: int) -> list[Segment]:
    youngest_ms, found = now_ms - log.config.min_lag_ms, []
    for segment in log.stored.segments[:-1]:
        if not segment.size or segment.ends[-1] > log.last_stable_offset:
            break
        if log.config.min_lag_ms and segment.newest_ms > youngest_ms:
            break
        found.append(segment)
    return found


class _Pass:
    """One compaction."""

    def __init__(self, log: PartitionLog, now_ms: int) -> None:
        self._log = log
        self._now_ms = now_ms
        self._old = _cleanable(log, now_ms)
        self._newest: dict[bytes | None, int] = {}
        self._tombstones: dict[int, int] = {}
        self._kept = StoredBatches(log.stored.pool)
        self._removals = log.stored.removals
        log.producers.expire(now_ms, log.config.producer_expiration_ms, log.transactions.ongoing)
        self._last = LastBatches(log.producers.entries)

    def run(self) -> Iterator[int]:
        aborted = AbortedBatches(self._log.transactions.aborted)
        for batch in self._batches():
            header = parse_header(batch)
            is_aborted = aborted.has(header, header.base_offset)
            if header.last_offset >= self._log.compacted.end_offset and not (is_aborted or header.is_control):
                yield from self._note_keys(batch, header)
            yield HEADER_BYTES
        aborted = AbortedBatches(self._log.transactions.aborted)
        for batch in self._batches():
            header = parse_header(batch)
            yield from self._keep(batch, header, is_aborted=aborted.has(header, header.base_offset))
        if not self._is_current() or not self._old:
            return
        end_offset = self._old[-1].ends[-1]
        if self._log.store is not None:
            yield from self._log.store.replace(iter(self._kept), end_offset, self._is_current)
            if not self._is_current():
                return
        left_over = self._log.stored.replace(self._old, self._kept.segments)
        self._log.compacted.end_offset = end_offset
        self._log.compacted.tombstones = self._tombstones
        for segment in left_over:
            self._log.stored.pool.give_back(segment)
            yield HEADER_BYTES

    def _is_current(self) -> bool:
        return self._log.stored.removals == self._removals

    def _batches(self) -> Iterator[memoryview]:
        """The batches, as long as none of them has gone."""
        for segment in self._old:
            for index in range(len(segment.offsets)):
                if not self._is_current():
                    return
                yield segment.batch(index)

    def _note_keys(self, batch: memoryview, header: BatchHeader) -> Iterator[int]:
        with suppress(WireError):
            for record in iterate_keys(batch, header, MOST_INFLATED_BYTES):
                self._newest[record.key] = record.offset
                yield len(record.encoded)

    def _keep(self, batch: memoryview, header: BatchHeader, *, is_aborted: bool) -> Iterator[int]:
        yield HEADER_BYTES
        staying = []
        try:
            for record in () if is_aborted else iterate_keys(batch, header, MOST_INFLATED_BYTES):
                if header.is_control or self._stays(record):
                    staying.append(record)
                yield len(record.encoded)
        except WireError:
            self._store(batch, header)
            return
        if not staying:
            if self._last.has(header):
                self._store_changed(without_records(header))
        elif len(staying) == header.record_count:
            self._store(batch, header)
        else:
            self._store_changed(with_records(header, staying))
            # it was made in one go, and it is large where that takes long
            yield sum(len(record.encoded) for record in staying)

    def _store_changed(self, batch: bytearray) -> None:
        self._store(memoryview(batch), parse_header(batch))

    def _store(self, batch: memoryview, header: BatchHeader) -> None:
        self._kept.copy_in(batch, header, header.base_offset, self._log.config.segment_bytes)

    def _stays(self, record: KeyedBytes) -> bool:
        if record.key is None or self._newest.get(record.key, record.offset) > record.offset:
            return False
        if record.has_value:
            return True
        gone_ms = self._log.compacted.tombstones.get(record.offset)
        if gone_ms is None:
            gone_ms = self._now_ms + self._log.config.delete_retention_ms
        if self._now_ms >= gone_ms:
            return False
        self._tombstones[record.offset] = gone_ms
        return True
