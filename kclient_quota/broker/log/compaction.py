"""Compaction of a log: of each key the newest record stays, at its offset (Kafka's `LogCleaner` and `Cleaner`).

Only segments that are not written to any more are compacted, up to the first open transaction and, with
`min.compaction.lag.ms`, up to what is younger. A record without a value (a tombstone) takes with it what came before,
and goes itself once `delete.retention.ms` has passed since a compaction first saw it. Records of aborted transactions
go, markers stay. A batch of which nothing is left goes as well; one that inflates to more than 1 MiB stays.
"""

from collections.abc import Iterator
from contextlib import suppress

from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.record_validation import MOST_INFLATED_BYTES
from kclient_quota.broker.log.segments import Segment
from kclient_quota.broker.log.stored_batches import StoredBatches
from kclient_quota.errors import WireError
from kclient_quota.wire.batches import HEADER_BYTES, BatchHeader, parse_header
from kclient_quota.wire.records import KeyedBytes, iterate_keys, with_records


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

    def run(self) -> Iterator[int]:
        for batch in self._batches():
            if parse_header(batch).last_offset >= self._log.compacted.end_offset:
                yield from self._note_keys(batch)
        for batch in self._batches():
            yield from self._keep(batch)
        if not self._is_current() or not self._old:
            return
        end_offset = self._old[-1].ends[-1]
        if self._log.store is not None:
            yield from self._log.store.replace(iter(self._kept), end_offset, self._is_current)
            if not self._is_current():
                return
        self._log.stored.replace(self._old, self._kept.segments)
        self._log.compacted.end_offset = end_offset
        self._log.compacted.tombstones = self._tombstones

    def _is_current(self) -> bool:
        return self._log.stored.segments[: len(self._old)] == self._old

    def _batches(self) -> Iterator[memoryview]:
        """The batches, as long as none of them has gone."""
        for segment in self._old:
            for index in range(len(segment.offsets)):
                if not self._is_current():
                    return
                yield segment.batch(index)

    def _is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return False
        aborted = self._log.transactions.aborted_between(header.base_offset, header.base_offset + 1)
        return any(one.producer_id == header.producer_id for one in aborted)

    def _note_keys(self, batch: memoryview) -> Iterator[int]:
        header = parse_header(batch)
        if not header.is_control and not self._is_aborted(header):
            with suppress(WireError):
                for record in iterate_keys(batch, header, MOST_INFLATED_BYTES):
                    self._newest[record.key] = record.offset
                    yield len(record.encoded)
        yield HEADER_BYTES

    def _keep(self, batch: memoryview) -> Iterator[int]:
        header = parse_header(batch)
        yield HEADER_BYTES
        if self._is_aborted(header) and not header.is_control:
            return
        staying = []
        try:
            for record in iterate_keys(batch, header, MOST_INFLATED_BYTES):
                if header.is_control or self._stays(record):
                    staying.append(record)
                yield len(record.encoded)
        except WireError:
            self._store(batch, header)
            return
        if len(staying) == header.record_count:
            self._store(batch, header)
        elif staying:
            changed = memoryview(with_records(header, staying))
            self._store(changed, parse_header(changed))

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
