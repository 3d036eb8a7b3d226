"""Compaction of logs: the newest record of each key stays where it was, on a clock of paper."""

import sys
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kclient_quota.broker.cluster_state import BROKER, TOPIC, Partition, Topic
from kclient_quota.broker.log.compaction import compact, is_due
from kclient_quota.broker.log.log_config import LogConfig
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.segments import SegmentPool
from kclient_quota.broker.log_cleaner import LogCleaner
from kclient_quota.broker.storage.disk import Disk
from kclient_quota.broker.storage.journal import Journal
from kclient_quota.broker.storage.topic_files import TopicFiles
from kclient_quota.wire.batches import HEADER_BYTES, TRANSACTIONAL, check_crc, parse_header
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.records import ABORT, Record, build_batch, control_batch, iterate_records
from tests.unit.broker.enforced_cluster import START_MS, Cluster

TOPIC_ID = UUID(int=1)
ROLLS = {"cleanup.policy": "compact", "segment.ms": "10", "min.cleanable.dirty.ratio": "0"}


class Log:
    """A compacted log in which every `write` is a batch; `roll` ends the segment that is written to."""

    def __init__(self, **config):
        self.log = PartitionLog(SegmentPool(1 << 16), LogConfig.of(ROLLS | config))
        self.now_ms = START_MS

    def write(self, *pairs, compression=0, **known):
        records = [Record(value, key, timestamp_ms=self.now_ms) for key, value in pairs]
        batch = build_batch(records, compression=compression, **known)
        appended = self.log.append(batch, leader_epoch=0, now_ms=self.now_ms)
        assert not appended.error, appended
        return appended.base_offset

    def roll(self):
        self.now_ms += 20
        self.write((b"roll", b""))

    def compact(self):
        for _ in compact(self.log, self.now_ms):
            pass

    def records(self):
        """(offset, key, value) of all of them."""
        return [(r.offset, r.key, r.value) for batch in self.log.batches() for r in iterate_records(batch)]

    def pairs(self):
        return [(offset, key) for offset, key, _ in self.records() if key != b"roll"]


def test_of_each_key_the_newest_stays_at_its_offset_and_the_segment_that_is_written_to_is_left_alone():
    log = Log()
    log.write((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    log.write((b"b", b"2"), (b"c", b"1"))
    log.roll()
    log.write((b"a", b"3"), (b"a", b"4"))
    log.compact()
    assert log.pairs() == [(2, b"a"), (3, b"b"), (4, b"c"), (6, b"a"), (7, b"a")]
    assert (log.log.start_offset, log.log.end_offset) == (0, 8)
    log.roll()
    log.compact()
    assert log.pairs() == [(3, b"b"), (4, b"c"), (7, b"a")]


def test_a_read_goes_on_behind_a_gap():
    log = Log()
    for number in range(20):
        log.write((b"k%d" % (number % 2), b"%d" % number))
    log.roll()
    log.compact()
    for offset in range(18):
        first = parse_header(log.log.read(offset, 1, min_one_batch=True))
        assert first.base_offset == 18, offset
    assert parse_header(log.log.read(19, 1, min_one_batch=True)).base_offset == 19
    assert log.log.available_bytes(0) == log.log.available_bytes(18)
    assert parse_header(log.log.batch_at(0)).base_offset == 18


def test_a_tombstone_takes_what_came_before_and_goes_after_its_time():
    log = Log(**{"delete.retention.ms": "1000"})
    log.write((b"a", b"1"), (b"b", b"1"))
    log.write((b"a", None))
    log.roll()
    log.compact()
    assert log.records()[:2] == [(1, b"b", b"1"), (2, b"a", None)]
    log.now_ms += 999
    log.roll()
    log.compact()
    assert (2, b"a", None) not in log.records()
    assert (1, b"b", b"1") in log.records()


def test_a_tombstone_stays_for_its_time_after_it_was_first_seen():
    log = Log(**{"delete.retention.ms": "1000"})
    log.write((b"a", None))
    log.now_ms += 100_000
    log.roll()
    log.compact()
    log.now_ms += 979
    log.roll()
    log.compact()
    assert log.pairs() == [(0, b"a")]


def test_compressed_batches_are_compacted_and_stay_compressed():
    log = Log()
    log.write(*((b"k%d" % (number % 3), b"x" * 100) for number in range(30)), compression=1)
    log.roll()
    log.compact()
    assert log.pairs() == [(27, b"k0"), (28, b"k1"), (29, b"k2")]
    header = parse_header(next(iter(log.log.batches())))
    assert (header.base_offset, header.last_offset, header.record_count, header.compression) == (0, 29, 3, 1)


def test_an_open_transaction_holds_compaction_up_and_an_aborted_one_is_as_if_it_had_not_been():
    log = Log()
    log.write((b"a", b"1"))
    log.roll()
    log.write((b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    log.roll()
    log.compact()
    assert log.pairs() == [(0, b"a"), (2, b"a")]
    marker = control_batch(ABORT, producer_id=7, producer_epoch=0, timestamp_ms=log.now_ms)
    log.log.append_marker(marker, leader_epoch=0, now_ms=log.now_ms)
    log.roll()
    log.compact()
    plain = [(offset, key) for offset, key in log.pairs() if key in {b"a", b"b"}]
    assert plain == [(0, b"a")]
    assert any(parse_header(batch).is_control for batch in log.log.batches())


def test_what_is_too_young_or_not_dirty_enough_waits():
    log = Log(**{"min.cleanable.dirty.ratio": "0.5", "min.compaction.lag.ms": "1000"})
    log.write((b"a", b"x" * 1000))
    log.roll()
    assert not is_due(log.log, log.now_ms)
    assert is_due(log.log, log.now_ms + 1000)
    log.now_ms += 1000
    log.compact()
    log.write((b"a", b"x"))
    log.roll()
    log.now_ms += 1000
    assert not is_due(log.log, log.now_ms), "one byte in a thousand is dirty"
    log.log.config = LogConfig.of(ROLLS | {"max.compaction.lag.ms": "500", "min.cleanable.dirty.ratio": "0.5"})
    assert is_due(log.log, log.now_ms)


def test_deleting_in_between_leaves_the_log_as_it_is():
    log = Log()
    for number in range(5):
        log.write((b"a", b"%d" % number))
        log.roll()
    steps = compact(log.log, log.now_ms)
    next(steps)
    log.log.delete_before(4)
    assert list(steps) is not None
    assert log.pairs()[0][0] >= 4
    log.compact()
    assert log.pairs() == [(8, b"a")]


def test_only_the_policy_delete_deletes_by_age_and_size():
    config = LogConfig.of({"cleanup.policy": "compact", "retention.ms": "1", "retention.bytes": "1"})
    assert (config.retention_ms, config.retention_bytes) == (-1, -1)
    config = LogConfig.of({"cleanup.policy": "compact,delete", "retention.ms": "1", "retention.bytes": "1"})
    assert (config.retention_ms, config.retention_bytes) == (1, 1)


written = st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 9))), min_size=1, max_size=4)
steps = st.one_of(written, st.just("roll"), st.just("compact"), st.just("later"))


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, max_size=25))
def test_a_table_made_of_the_log_is_the_same_before_and_after(plan):
    log, everything = Log(**{"delete.retention.ms": "50"}), {}
    for step in plan:
        if step == "roll":
            offset = log.log.end_offset
            log.roll()
            everything[offset] = (b"roll", b"")
        elif step == "later":
            log.now_ms += 100
        elif step == "compact":
            log.compact()
        else:
            pairs = [(b"k%d" % key, None if value is None else b"%d" % value) for key, value in step]
            first = log.write(*pairs)
            everything |= {first + delta: pair for delta, pair in enumerate(pairs)}
        found = log.records()
        assert found == sorted(found)
        assert all(everything[offset] == (key, value) for offset, key, value in found)
        assert table(pair for _, *pair in found) == table(everything.values())
        batches = [bytes(batch) for batch in log.log.batches()]
        for offset in range(log.log.end_offset):
            # what a batch has lost does not change where it ends, by which clients go on
            first = next(batch for batch in batches if parse_header(batch).last_offset >= offset)
            assert log.log.read(offset, 1, min_one_batch=True) == first


def table(pairs):
    """What a reader who keeps the newest of each key has in the end."""
    return {key: value for key, value in dict(tuple(pair) for pair in pairs).items() if value is not None}


def test_the_cleaner_comes_every_so_often_and_works_in_turns():
    cluster = Cluster()
    state, scheduler = cluster.state, cluster.scheduler
    for key, value in ROLLS.items():
        state.set_config(TOPIC, "t", key, value)
    log = state.topics["t"].partitions[0].log
    LogCleaner(state, scheduler).look()
    for number in range(300):
        batch = build_batch([Record(b"x" * 1000, b"k", timestamp_ms=START_MS + number * 20)])
        assert not log.append(batch, leader_epoch=0, now_ms=START_MS).error
    before = log.size_bytes
    scheduler.pass_ms(14_999)
    assert log.size_bytes == before
    scheduler.pass_ms(1)
    assert log.size_bytes == before, "300 kB are more than one turn"
    for _ in range(20):
        scheduler.pass_ms(0)
    assert log.size_bytes < before / 100
    state.set_config(BROKER, "", "log.cleaner.backoff.ms", "100")
    for number in range(2):
        batch = build_batch([Record(b"x" * 1000, b"k", timestamp_ms=START_MS + 10_000 + number * 20)])
        log.append(batch, leader_epoch=0, now_ms=START_MS)
    scheduler.pass_ms(100)
    for _ in range(20):
        scheduler.pass_ms(0)
    assert len(list(log.batches())) == 2


# -- on the disk


class FailingDisk(Disk):
    """Fails at one call, counted from the moment it is told so."""

    def __init__(self):
        self.left = None

    def _count(self):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise OSError("no space left")

    def write(self, fd, parts):
        self._count()
        return super().write(fd, parts)

    def replace(self, source, target):
        self._count()
        super().replace(source, target)


class StoredLog(Log):
    """A compacted log in a directory."""

    def __init__(self, path, disk):
        super().__init__()
        self.journal = Journal(path / "journal", disk)
        self.files = TopicFiles(path / "logs", self.journal, disk)
        partition = Partition(0, [1], 1, self.log)
        self.files.restore(Topic("t", TOPIC_ID, [partition], 1), [0])

    def close(self):
        self.files.close()


def size_of(path):
    return sum(file.stat().st_size for file in path.rglob("*.log"))


def test_what_compaction_leaves_is_all_that_is_on_the_disk(tmp_path):
    log = StoredLog(tmp_path, Disk())
    for number in range(40):
        log.write((b"k%d" % (number % 3), b"%d" % number * 100))
        if number % 10 == 9:
            log.roll()
    before, files = size_of(tmp_path), len(list(tmp_path.rglob("*.log")))
    log.compact()
    left = log.records()
    assert size_of(tmp_path) < before / 4
    assert len(list(tmp_path.rglob("*.log"))) < files
    log.close()
    again = StoredLog(tmp_path, Disk())
    assert again.records() == left
    assert (again.log.start_offset, again.log.end_offset) == (0, log.log.end_offset)
    assert not again.log.damaged, "offsets that compaction has taken are not missed"
    assert not is_due(again.log, again.now_ms), "it is not done again"
    again.write((b"k0", b"later"))
    again.roll()
    again.compact()
    left = again.records()
    again.close()
    assert StoredLog(tmp_path, Disk()).records() == left


@pytest.mark.parametrize("call", range(8))
def test_a_disk_that_fails_while_it_is_compacted_loses_nothing(tmp_path, call):
    disk = FailingDisk()
    log = StoredLog(tmp_path, disk)
    for number in range(12):
        log.write((b"k%d" % (number % 3), b"%d" % number))
        if number % 4 == 3:
            log.roll()
    disk.left = call
    log.compact()
    disk.left = None
    newest = {key: value for _, key, value in log.records()}
    log.write((b"k1", b"later"))
    end_offset = log.log.end_offset
    log.close()
    again = StoredLog(tmp_path, Disk())
    assert {key: value for _, key, value in again.records()} == newest | {b"k1": b"later"}
    assert again.log.end_offset == end_offset
    assert not again.log.damaged


def test_a_topic_deleted_while_it_is_compacted_leaves_nothing_on_the_disk(tmp_path):
    for steps in range(40):
        log = StoredLog(tmp_path / str(steps), Disk())
        for number in range(12):
            log.write((b"k%d" % (number % 3), b"%d" % number))
            if number % 4 == 3:
                log.roll()
        compaction = compact(log.log, log.now_ms)
        for _ in zip(range(steps), compaction, strict=False):
            pass
        # the logs of a topic with very many partitions are closed by and by, after its files are gone
        log.files.remove(TOPIC_ID)
        for _ in compaction:
            pass
        assert not list((tmp_path / str(steps)).rglob("*.log"))
        assert not list((tmp_path / str(steps)).rglob("compacted"))
        assert not list(log.journal.items("compacted"))
        log.close()


SEQUENCE = {"producer_id": 7, "producer_epoch": 0}


def test_the_last_batch_of_a_producer_stays_empty_so_that_its_repetition_is_known_after_a_restart(tmp_path):
    log = StoredLog(tmp_path, Disk())
    log.write((b"a", b"1"), base_sequence=0, **SEQUENCE)
    assert log.write((b"a", b"2"), (b"b", b"1"), (b"a", b"3"), compression=1, base_sequence=1, **SEQUENCE) == 1
    log.write((b"a", b"4"), (b"b", b"4"), (b"c", b"4"))
    log.roll()
    log.compact()
    left = next(iter(log.log.batches()))
    header = parse_header(left)
    assert (header.base_offset, header.last_offset, header.record_count) == (1, 3, 0), "the first batch is gone"
    assert (len(left), header.attributes, check_crc(left, 0, header)) == (HEADER_BYTES, 0, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 1)
    assert parse_header(log.log.batch_at(header.max_timestamp)).base_offset == 4, "it has no record of that time"
    log.close()
    again = StoredLog(tmp_path, Disk())
    end_offset = again.log.end_offset
    assert again.write((b"a", b"2"), (b"b", b"1"), (b"a", b"3"), compression=1, base_sequence=1, **SEQUENCE) == 1
    assert again.log.end_offset == end_offset, "stored once"
    assert again.write((b"a", b"5"), base_sequence=4, **SEQUENCE) == end_offset
    again.roll()
    again.compact()
    assert all(parse_header(batch).record_count for batch in again.log.batches()), "it is not the last one any more"
    again.close()


def test_a_producer_whose_last_batch_has_lost_some_of_its_records_goes_on_after_a_restart(tmp_path):
    log = StoredLog(tmp_path, Disk())
    log.write((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), base_sequence=0, **SEQUENCE)
    log.write((b"c", b"2"))
    log.roll()
    log.compact()
    log.close()
    again = StoredLog(tmp_path, Disk())
    assert again.write((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), base_sequence=0, **SEQUENCE) == 0
    batch = build_batch([Record(b"v", b"a")], base_sequence=2, **SEQUENCE)
    refused = again.log.append(batch, leader_epoch=0, now_ms=again.now_ms)
    assert refused.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again.write((b"a", b"2"), base_sequence=3, **SEQUENCE)
    again.close()


def test_a_producer_that_is_forgotten_leaves_nothing():
    log = Log(**{"producer.id.expiration.ms": "1000"})
    log.write((b"a", b"1"), base_sequence=0, **SEQUENCE)
    log.roll()
    log.write((b"a", b"2"))
    log.now_ms += 1_000_000
    log.roll()
    log.compact()
    assert next(iter(log.log.batches())) == next(
        batch for batch in log.log.batches() if parse_header(batch).record_count
    )
    assert not log.log.producers.entries


def test_the_cleaner_works_in_small_turns_whatever_there_is():
    """Each of many small batches, aborted transactions, segments and logs is a step, and a turn has few steps."""
    cluster = Cluster()
    state, scheduler = cluster.state, cluster.scheduler
    for key, value in ROLLS.items():
        state.set_config(TOPIC, "t", key, value)
    state.create_topic("many", 5_000)
    log = state.topics["t"].partitions[0].log
    for number in range(2_000):
        now_ms = START_MS + 20 * number
        known = {"producer_id": number % 3, "producer_epoch": 0}
        batch = build_batch(
            [Record(b"v", b"k", timestamp_ms=now_ms)], base_sequence=number // 3, attributes=TRANSACTIONAL, **known
        )
        log.append(batch, leader_epoch=0, now_ms=now_ms)
        marker = control_batch(ABORT, timestamp_ms=now_ms, **known)
        log.append_marker(marker, leader_epoch=0, now_ms=now_ms)
    scheduler.time_ms = now_ms
    log.append(build_batch([Record(b"v", b"k", timestamp_ms=now_ms + 20)]), leader_epoch=0, now_ms=now_ms)
    before, turns = log.size_bytes, []
    cleaner = LogCleaner(state, scheduler)
    turns.append(lines_of(cleaner.look))
    while scheduler.calls[-1].deadline_ms <= scheduler.time_ms:
        turns.append(lines_of(lambda: scheduler.pass_ms(0)))
    assert log.size_bytes < before * 0.6, "the markers stay"
    assert max(turns) < 100_000, "some milliseconds"


def lines_of(work):
    """How many lines of Python it takes, each round of a loop counted."""
    lines = 0

    def count(_frame, event, _argument):
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines
