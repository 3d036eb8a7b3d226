"""The partition log against what Kafka's `LocalLog`, `UnifiedLog` and `ProducerStateManager` do."""

import random

import pytest
from aiokafka.record import MemoryRecords

from kclient_quota.broker.log.log_config import LogConfig
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.segments import SegmentPool
from kclient_quota.errors import WireError
from kclient_quota.wire.batches import TRANSACTIONAL, parse_header, patch
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.records import Record, build_batch, control_batch

SEGMENT_BYTES = 4096


def make_log(**config):
    return PartitionLog(SegmentPool(SEGMENT_BYTES), LogConfig(**config))


def batch_of(count=1, size=100, first_ms=0, **known):
    return build_batch([Record(b"v" * size, timestamp_ms=first_ms + i) for i in range(count)], **known)


def append(log, batch, leader_epoch=0, now_ms=0):
    return log.append(batch, leader_epoch=leader_epoch, now_ms=now_ms)


def stored(view):
    """Offsets as aiokafka, an independent reader, finds them; its CRC check included."""
    records, offsets = MemoryRecords(bytes(view)), []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        offsets += [record.offset for record in batch]
    return offsets


def test_offsets_run_on_and_batches_are_stored_whole():
    log = make_log()
    assert [append(log, batch_of(n), leader_epoch=7).base_offset for n in (3, 1, 2)] == [0, 3, 4]
    assert log.end_offset == 6
    view = log.read(0, 10_000, min_one_batch=True)
    assert stored(view) == [0, 1, 2, 3, 4, 5]
    assert parse_header(view).partition_leader_epoch == 7


def test_a_read_begins_with_the_batch_that_holds_the_offset():
    log = make_log()
    append(log, batch_of(3))
    append(log, batch_of(2))
    assert stored(log.read(1, 10_000, min_one_batch=True)) == [0, 1, 2, 3, 4]
    assert stored(log.read(4, 10_000, min_one_batch=True)) == [3, 4]
    assert len(log.read(5, 10_000, min_one_batch=True)) == 0


def test_the_first_batch_is_whole_or_absent_and_the_last_is_cut_in_the_middle():
    log = make_log()
    size = len(batch_of(1))
    for _ in range(3):
        append(log, batch_of(1))
    assert len(log.read(0, size - 1, min_one_batch=True)) == size
    assert len(log.read(0, size - 1, min_one_batch=False)) == 0
    assert len(log.read(0, 2 * size + 5, min_one_batch=False)) == 2 * size + 5
    assert len(log.read(0, 100 * size, min_one_batch=False)) == 3 * size


def test_a_read_ends_with_its_segment_and_the_next_one_begins_the_following():
    log = make_log()
    per_segment = SEGMENT_BYTES // len(batch_of(1))
    for _ in range(per_segment + 1):
        append(log, batch_of(1))
    assert stored(log.read(0, 1 << 20, min_one_batch=True)) == list(range(per_segment))
    assert stored(log.read(per_segment, 1 << 20, min_one_batch=True)) == [per_segment]
    assert log.available_bytes(0) == (per_segment + 1) * len(batch_of(1))
    assert log.available_bytes(per_segment) == len(batch_of(1))
    assert log.available_bytes(per_segment + 1) == 0


def test_a_batch_larger_than_a_segment_gets_one_of_its_own():
    log = make_log()
    append(log, batch_of(1))
    append(log, batch_of(1, size=3 * SEGMENT_BYTES))
    append(log, batch_of(1))
    assert [stored(log.read(offset, 1, min_one_batch=True)) for offset in range(3)] == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (b"\0" * 60, ErrorCode.INVALID_RECORD),
        (batch_of(1)[:-1], ErrorCode.INVALID_RECORD),
        (batch_of(1) + batch_of(1), ErrorCode.INVALID_RECORD),
        (batch_of(1)[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
        (batch_of(1, size=2000), ErrorCode.MESSAGE_TOO_LARGE),
        (control_batch(1, producer_id=1, producer_epoch=0), ErrorCode.INVALID_RECORD),
    ],
)
def test_what_is_no_sound_batch_is_refused_and_leaves_nothing(broken, error):
    log = make_log(max_message_bytes=2000)
    assert append(log, bytes(broken)).error == error
    assert (log.end_offset, log.size_bytes) == (0, 0)


def test_log_append_time_is_stamped_under_a_new_checksum():
    log = make_log(uses_log_append_time=True)
    assert append(log, batch_of(2, first_ms=5), now_ms=1_000).log_append_time_ms == 1_000
    batch = MemoryRecords(bytes(log.read(0, 1 << 20, min_one_batch=True))).next_batch()
    assert batch.validate_crc()
    assert [(record.timestamp, record.timestamp_type) for record in batch] == [(1_000, 1), (1_000, 1)]
    assert log.batch_at(999) is not None
    assert log.batch_at(1_001) is None


class FullDisk:
    def append(self, batch, *, begins_segment):
        raise OSError("No space left on device")


class Kept:
    def __init__(self, kept):
        self._kept = kept

    def append(self, batch, *, begins_segment):
        self._kept.append(bytes(batch))

    def start_moved(self):
        pass


def test_what_cannot_be_kept_on_disk_is_refused_and_forgotten():
    log = make_log()
    append(log, batch_of(1))

    log.store = FullDisk()
    refused = append(log, batch_of(1, producer_id=9, producer_epoch=0, base_sequence=0))
    assert (refused.error, refused.error_message) == (ErrorCode.KAFKA_STORAGE_ERROR, "No space left on device")
    log.store = None
    assert append(log, batch_of(1, producer_id=9, producer_epoch=0, base_sequence=0)).base_offset == 1
    assert stored(log.read(0, 1 << 20, min_one_batch=True)) == [0, 1]


# -- idempotent producers


def sequenced(first, count=1, producer_id=5, epoch=0):
    return batch_of(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=first)


def test_a_repeated_batch_is_answered_with_its_first_offset_for_five_batches():
    log = make_log()
    for first in range(0, 12, 2):
        append(log, sequenced(first, 2))
    end = log.end_offset
    assert append(log, sequenced(10, 2)).base_offset == 10
    assert append(log, sequenced(2, 2)).base_offset == 2
    assert append(log, sequenced(0, 2)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the sixth is forgotten"
    assert log.end_offset == end


def test_a_gap_in_the_sequence_is_refused_and_an_unknown_producer_may_begin_anywhere():
    log = make_log()
    assert append(log, sequenced(17)).error == ErrorCode.NONE
    assert append(log, sequenced(19)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, sequenced(18)).error == ErrorCode.NONE


def test_a_newer_epoch_begins_at_zero_and_fences_the_older():
    log = make_log()
    append(log, sequenced(0))
    assert append(log, sequenced(1, epoch=1)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, sequenced(0, epoch=1)).error == ErrorCode.NONE
    assert append(log, sequenced(1)).error == ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap_around():
    log = make_log()
    last = 0x7FFF_FFFF
    assert append(log, sequenced(last - 1, 3)).error == ErrorCode.NONE
    assert append(log, sequenced(last - 1, 3)).base_offset == 0
    assert append(log, sequenced(1)).base_offset == 3


# -- places


def test_timestamps_find_the_first_batch_that_is_late_enough():
    log = make_log()
    for first_ms in (100, 300, 200):
        append(log, batch_of(2, first_ms=first_ms))
    assert parse_header(log.batch_at(0)).base_offset == 0
    assert parse_header(log.batch_at(102)).base_offset == 2
    assert parse_header(log.batch_at(301)).base_offset == 2
    assert log.batch_at(302) is None
    assert parse_header(log.newest_batch()).base_offset == 2


def test_deleting_moves_the_start_and_drops_whole_segments():
    log = make_log()
    per_segment = SEGMENT_BYTES // len(batch_of(1))
    for _ in range(2 * per_segment):
        append(log, batch_of(1))
    log.delete_before(per_segment - 1)
    assert (log.start_offset, log.size_bytes) == (per_segment - 1, 2 * per_segment * len(batch_of(1)))
    log.delete_before(per_segment)
    assert log.size_bytes == per_segment * len(batch_of(1))
    log.delete_before(10 * per_segment)
    assert log.start_offset == log.end_offset == 2 * per_segment
    assert log.batch_at(0) is None


def test_retention_keeps_at_least_that_many_bytes():
    size = len(batch_of(1))
    log = make_log(retention_bytes=SEGMENT_BYTES)
    for _ in range(1000):
        append(log, batch_of(1))
        assert log.size_bytes >= min(SEGMENT_BYTES, log.end_offset * size)
    assert log.size_bytes < 3 * SEGMENT_BYTES
    assert stored(log.read(log.start_offset, size, min_one_batch=True)) == [log.start_offset]


def test_memory_that_a_response_still_refers_to_is_not_used_again():
    pool = SegmentPool(SEGMENT_BYTES)
    log = PartitionLog(pool)
    append(log, batch_of(1))
    view = log.read(0, 1 << 20, min_one_batch=True)
    before = bytes(view)
    log.close()
    other = PartitionLog(pool)
    append(other, batch_of(1, size=200))
    assert bytes(view) == before


def test_memory_that_nobody_refers_to_is_used_again():
    pool = SegmentPool(SEGMENT_BYTES)
    log = PartitionLog(pool)
    append(log, batch_of(1))
    buffer = log.stored.segments[0].buffer
    log.close()
    assert pool.take(0, 1).buffer is buffer


def test_batches_read_back_from_disk_stand_where_they_stood():
    log, kept = make_log(), []
    log.store = Kept(kept)
    for first in (0, 3):
        append(log, sequenced(first, 3))
    again = make_log()
    for batch in kept:
        again.restore(batch)
    assert (again.start_offset, again.end_offset) == (0, 6)
    assert append(again, sequenced(3, 3)).base_offset == 3, "its sequences are known"
    moved = bytearray(kept[0])
    patch(moved, 0, base_offset=40, leader_epoch=0)
    later = make_log()
    later.restore(moved)
    assert (later.start_offset, later.end_offset) == (40, 43)


def test_watchers_are_called_after_every_append_until_they_leave():
    log, calls = make_log(), []

    def watcher():
        calls.append(log.end_offset)

    log.watch(watcher)
    append(log, batch_of(2))
    append(log, b"nonsense")
    log.unwatch(watcher)
    append(log, batch_of(2))
    assert calls == [2]


# -- damage


def test_what_is_damaged_on_disk_keeps_its_offsets_and_hides_nothing_else():
    log, kept = make_log(), []
    log.store = Kept(kept)
    for _ in range(3):
        append(log, batch_of(2))
    again = make_log()
    again.restore(kept[0])
    again.restore_damage(2, 3)
    again.restore(kept[2])
    assert (again.start_offset, again.end_offset) == (0, 6)
    assert stored(again.read(0, 1 << 20, min_one_batch=True)) == [0, 1], "a read ends where the damage begins"
    assert stored(again.read(0, 1 << 20, min_one_batch=True, end_offset=5)) == [0, 1]
    assert stored(again.read(4, 1 << 20, min_one_batch=True)) == [4, 5]
    assert [again.damage_at(offset) for offset in range(6)] == [None, None, (2, 3), (2, 3), None, None]
    with pytest.raises(WireError, match="behind offset 6"):
        again.restore(kept[0])
    again.delete_before(4)
    assert not again.damaged


def test_a_log_may_begin_with_damage():
    log = make_log()
    log.restore_damage(0, 4)
    assert (log.start_offset, log.end_offset, log.damage_at(0)) == (0, 5, (0, 4))
    assert append(log, batch_of(1)).base_offset == 5
    assert not log.read(0, 1 << 20, min_one_batch=True)
    assert stored(log.read(5, 1 << 20, min_one_batch=True)) == [5]


def test_producers_that_are_not_heard_of_are_forgotten_unless_a_transaction_is_open():
    log = make_log(producer_expiration_ms=1_000_000)
    for producer_id, attributes in ((1, 0), (2, TRANSACTIONAL)):
        batch = batch_of(1, producer_id=producer_id, producer_epoch=0, base_sequence=0, attributes=attributes)
        log.append(batch, leader_epoch=0, now_ms=0)
    for now_ms in (600_000, 1_300_000):
        log.append(sequenced(now_ms, 1, 3), leader_epoch=0, now_ms=now_ms)
        log.append(sequenced(now_ms, 1, 4), leader_epoch=0, now_ms=now_ms)
    assert sorted(log.producers.entries) == [2, 3, 4]
    again = batch_of(1, producer_id=1, producer_epoch=0, base_sequence=0)
    assert log.append(again, leader_epoch=0, now_ms=1_300_000).base_offset == log.end_offset - 1, "it begins anew"


@pytest.mark.parametrize("deleted", [0, 5])
def test_the_first_batch_of_a_time_is_found_as_by_looking_at_each(deleted):
    log, draw = make_log(), random.Random(deleted)
    times = [draw.randrange(100) for _ in range(60)]
    for time_ms in times:
        append(log, batch_of(1, first_ms=time_ms))
    log.delete_before(deleted)
    for wanted in range(-1, 102):
        expected = next((i for i, time_ms in enumerate(times) if time_ms >= wanted and i >= deleted), None)
        found = log.batch_at(wanted)
        assert (None if found is None else parse_header(found).base_offset) == expected


def test_segments_older_than_retention_ms_go_and_offsets_go_on():
    log = make_log(retention_ms=1_000, segment_bytes=2 * len(batch_of(1)))
    for time_ms in (0, 100, 900, 1_000, 1_100):
        log.append(batch_of(1, first_ms=time_ms), leader_epoch=0, now_ms=1_000)
    log.retain(1_100)
    assert log.start_offset == 0, "the newest of the first segment is just not too old"
    log.retain(1_101)
    assert log.start_offset == 2
    log.retain(10_000)
    assert (log.start_offset, log.end_offset, log.size_bytes, log.batch_at(0)) == (5, 5, 0, None)
    assert log.read(5, 100, min_one_batch=True) == b""
    assert log.append(batch_of(1, first_ms=10_000), leader_epoch=0, now_ms=10_000).base_offset == 5
