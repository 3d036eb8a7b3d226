"""What is on disk after a restart, after a torn write and after a damaged byte; the log against what was appended."""

import json
import os
import random
import threading
from functools import partial
from uuid import UUID

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kclient_quota.broker.cluster_state import BROKER, GROUP, TOPIC, BrokerInfo, ClusterState
from kclient_quota.broker.groups.committed_offsets import CommittedOffset
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.internal_topics import CONSUMER_OFFSETS, share_of
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.segments import SegmentPool
from kclient_quota.broker.shares.share_partition import ACCEPT, RELEASE, Acknowledgement, ShareRules, Wanted
from kclient_quota.broker.shares.share_service import ShareService
from kclient_quota.broker.storage.cluster_storage import ClusterStorage, Fsync
from kclient_quota.broker.storage.disk import AppendedFile, Disk
from kclient_quota.broker.storage.framing import FRAME_BYTES
from kclient_quota.broker.storage.journal import MIN_STALE_LINES, Journal
from kclient_quota.broker.storage.log_files import LogFiles
from kclient_quota.broker.storage.topic_files import PartitionStore
from kclient_quota.broker.storage.write_back import WriteBack
from kclient_quota.broker.transactions.transaction_service import TransactionService
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.wire.batches import parse_header
from kclient_quota.wire.error_codes import ErrorCode
from tests.unit.broker.handler_node import ManualScheduler


def batch(records, *, producer_id=-1, base_sequence=-1, transactional=0):
    epoch = 0 if producer_id >= 0 else -1
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=transactional,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
        batch_size=1 << 20,
    )
    for index, record in enumerate(records):
        builder.append(index, 1_000, None, record, [])
    return bytes(builder.build())


class Life:
    """One run of a cluster on a directory."""

    def __init__(self, path, *, brokers=1, segment_bytes=1 << 20, **changes):
        self.storage = ClusterStorage(path, **changes)
        pool = SegmentPool(segment_bytes)
        ids = iter(range(1 + len(list(path.glob("logs/*"))), 1000))
        self.cluster = ClusterState(
            cluster_id=self.storage.cluster_id("fresh"),
            brokers=[BrokerInfo(i, "127.0.0.1") for i in range(1, brokers + 1)],
            new_topic_id=lambda: UUID(int=next(ids)),
            new_log=lambda config: PartitionLog(pool, config),
        )
        self.groups = GroupService(self.cluster, None)
        self.shares = ShareService(self.cluster, ManualScheduler())
        self.scheduler = ManualScheduler()
        self.transactions = TransactionService(self.cluster, self.scheduler)
        self.transactions.offsets = self.groups.offsets
        self.storage.restore(self.cluster, self.groups, self.shares, self.transactions)
        self.transactions.resume()

    def log(self, topic="t", partition=0):
        return self.cluster.topics[topic].partitions[partition].log

    def append(self, *records, topic="t", **changes):
        return self.log(topic).append(batch(records, **changes), leader_epoch=0, now_ms=5)

    def bytes(self, topic="t"):
        return b"".join(bytes(b) for b in self.log(topic).batches())

    def create(self, name="t", partitions=1):
        self.cluster.create_topic(name, partitions)
        self.cluster.save()


def offsets(log):
    return [parse_header(each).base_offset for each in log.batches()]


def test_everything_is_there_after_a_restart(tmp_path):
    life = Life(tmp_path, brokers=2)
    life.create("t", 2)
    life.cluster.set_config(TOPIC, "t", "retention.bytes", "9")
    life.cluster.set_config(BROKER, "", "num.partitions", "3")
    life.cluster.set_quota(ClientQuotaEntity({"user": "alice", "client-id": None}), "producer_byte_rate", 1024.0)
    life.cluster.save()
    life.append(b"a", b"b")
    life.append(b"c")
    life.groups.commit("g", "t", 0, CommittedOffset(2, 0, "note"))
    before = life.bytes()
    life.cluster.topics["t"].partitions[1].leader_epoch = 4
    life.cluster.changed("topic", "t")
    life.cluster.save()
    life.storage.close()

    again = Life(tmp_path, brokers=2)
    assert again.cluster.cluster_id == "fresh"
    topic = again.cluster.topics["t"]
    assert topic.topic_id == life.cluster.topics["t"].topic_id
    assert [p.replicas for p in topic.partitions] == [p.replicas for p in life.cluster.topics["t"].partitions]
    assert topic.partitions[1].leader_epoch == 4
    assert (again.log().start_offset, again.log().end_offset) == (0, 3)
    assert again.bytes() == before
    assert again.groups.committed("g", "t", 0) == CommittedOffset(2, 0, "note")
    assert "g" in again.groups.coordinator.groups
    assert again.cluster.configs == life.cluster.configs
    assert again.cluster.quotas == life.cluster.quotas
    assert again.append(b"d").base_offset == 3
    again.storage.close()


def test_a_producer_is_recognised_after_a_restart_and_ids_are_not_given_twice(tmp_path):
    life = Life(tmp_path)
    life.create()
    first = life.cluster.next_producer_id()
    life.append(b"a", producer_id=first, base_sequence=0)
    life.storage.close()
    again = Life(tmp_path)
    assert again.append(b"a", producer_id=first, base_sequence=0).base_offset == 0
    assert again.log().end_offset == 1
    assert again.append(b"b", producer_id=first, base_sequence=1).base_offset == 1
    assert again.cluster.next_producer_id() > first


def test_a_transaction_that_was_open_is_aborted(tmp_path):
    life = Life(tmp_path)
    life.create()
    life.append(b"plain")
    life.append(b"open", producer_id=5, base_sequence=0, transactional=1)
    assert life.log().last_stable_offset == 1
    life.storage.close()
    again = Life(tmp_path)
    assert (again.log().last_stable_offset, again.log().end_offset) == (3, 3)
    (aborted,) = again.log().transactions.aborted
    assert (aborted.first_offset, aborted.last_offset) == (1, 2)
    again.storage.close()
    third = Life(tmp_path)
    assert third.log().transactions.aborted == [aborted]
    assert third.log().end_offset == 3
    assert third.append(b"more", producer_id=5, base_sequence=1, transactional=1).base_offset == 3


def test_deletions_are_kept_too(tmp_path):
    life = Life(tmp_path)
    life.create("t")
    life.create("u")
    life.append(b"a")
    entity = ClientQuotaEntity({"user": "alice"})
    life.cluster.set_quota(entity, "request_percentage", 1.5)
    life.cluster.save()
    life.groups.commit("g", "t", 0, CommittedOffset(1))
    life.groups.commit("g", "u", 0, CommittedOffset(1))
    life.cluster.delete_topic("t")
    life.groups.offsets.delete("g", "u", 0)
    life.cluster.set_quota(entity, "request_percentage", None)
    life.cluster.save()
    life.storage.close()
    again = Life(tmp_path)
    assert list(again.cluster.topics) == ["u"]
    assert not again.cluster.quotas
    assert again.groups.all_committed("g") == []
    assert not list((tmp_path / "logs").glob("*/*/*.log"))
    again.create("t")
    assert again.log().end_offset == 0


def test_a_topic_deleted_and_made_anew_between_two_saves_starts_empty(tmp_path):
    life = Life(tmp_path)
    life.create()
    life.append(b"a")
    life.cluster.delete_topic("t")
    life.create()
    life.append(b"b", b"c")
    life.storage.close()
    again = Life(tmp_path)
    assert again.log().end_offset == 2
    assert len(list((tmp_path / "logs").iterdir())) == 1


def test_files_of_a_topic_whose_deletion_was_interrupted_are_removed(tmp_path):
    life = Life(tmp_path)
    orphan = tmp_path / "logs" / UUID(int=77).hex / "0"
    orphan.mkdir(parents=True)
    (orphan / f"{0:020d}.log").write_bytes(batch([b"a"]))
    life.storage.close()
    Life(tmp_path)
    assert not orphan.exists()


@pytest.mark.parametrize("lost", [1, 30, 61, 70])
def test_a_torn_tail_is_cut_at_the_last_whole_batch(tmp_path, lost):
    life = Life(tmp_path)
    life.create()
    life.append(b"a")
    whole = life.bytes()
    life.append(b"torn" * 5)
    life.storage.close()
    (path,) = tmp_path.glob("logs/*/*/*.log")
    os.truncate(path, path.stat().st_size - lost)
    again = Life(tmp_path)
    assert again.bytes() == whole
    assert path.stat().st_size == len(whole) + FRAME_BYTES
    assert again.append(b"next").base_offset == 1
    again.storage.close()
    assert Life(tmp_path).log().end_offset == 2


def test_a_damaged_byte_costs_its_batch_and_nothing_else(tmp_path, caplog):
    life = Life(tmp_path, segment_bytes=100)
    life.create()
    for letter in (b"a", b"b", b"c", b"d"):
        life.append(letter)
    life.storage.close()
    paths = sorted(tmp_path.glob("logs/*/*/*.log"))
    assert [int(path.stem) for path in paths] == [0, 1, 2, 3]
    data = bytearray(paths[2].read_bytes())
    data[-2] ^= 1
    paths[2].write_bytes(data)
    again = Life(tmp_path, segment_bytes=100)
    assert "the batch of offsets 2 to 2 is damaged" in caplog.text
    assert (again.log().end_offset, again.log().damaged) == (4, [(2, 2)])
    assert again.append(b"e").base_offset == 4
    again.storage.close()
    third = Life(tmp_path, segment_bytes=100)
    assert (third.log().end_offset, third.log().damaged) == (5, [(2, 2)])
    assert offsets(third.log()) == [0, 1, 3, 4]


def test_a_file_that_is_gone_costs_its_own_offsets_only(tmp_path, caplog):
    life = Life(tmp_path, segment_bytes=100)
    life.create()
    for letter in (b"a", b"b", b"c"):
        life.append(letter)
    life.storage.close()
    sorted(tmp_path.glob("logs/*/*/*.log"))[1].unlink()
    again = Life(tmp_path, segment_bytes=100)
    assert "offsets 1 to 1 are not on the disk" in caplog.text
    assert (offsets(again.log()), again.log().damaged, again.log().end_offset) == ([0, 2], [(1, 1)], 3)


@pytest.mark.parametrize("bit", range(8 * (FRAME_BYTES + 72)))
def test_one_flipped_bit_costs_one_batch_at_most(tmp_path, bit):
    """Fifty batches, one bit of the fifth: of its frame, of its header (offset, length, epoch), of its record."""
    log, stored = PartitionLog(SegmentPool(1 << 20)), []
    files = LogFiles(tmp_path)
    log.store = PartitionStore(files, log, lambda start: None, lambda end: None)
    for _ in range(50):
        log.append(batch([b"0123"]), leader_epoch=3, now_ms=0)
    files.close()
    stored = [bytes(each) for each in log.batches()]
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    size = len(data) // 50
    assert size == FRAME_BYTES + 72
    data[4 * size + bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    again = PartitionLog(SegmentPool(1 << 20))
    LogFiles(tmp_path).restore(again)
    assert (again.start_offset, again.end_offset) == (0, 50)
    read = [bytes(each) for each in again.batches()]
    assert read in (stored, stored[:4] + stored[5:])
    assert again.damaged == ([] if len(read) == 50 else [(4, 4)])


def test_files_of_the_first_version_are_read(tmp_path):
    """It wrote batches without frames and journals without checksums."""
    topic = UUID(int=5)
    lines = [
        {"k": ["format"], "v": 1},
        {
            "k": ["topic", "t"],
            "v": {
                "id": str(topic),
                "replication_factor": 1,
                "partitions": [{"replicas": [1], "leader_epoch": 0, "start_offset": 1}],
            },
        },
        {"k": ["offset", "g", "t", 0], "v": [2, -1, ""]},
    ]
    (tmp_path / "metadata.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    path = tmp_path / "logs" / topic.hex / "0" / f"{0:020d}.log"
    path.parent.mkdir(parents=True)
    log = PartitionLog(SegmentPool(1 << 20))
    for letter in (b"a", b"b", b"c"):
        log.append(batch([letter]), leader_epoch=0, now_ms=0)
    path.write_bytes(b"".join(bytes(each) for each in log.batches()))
    life = Life(tmp_path)
    assert (life.log().start_offset, life.log().end_offset) == (1, 3)
    assert life.groups.committed("g", "t", 0).offset == 2
    life.append(b"d")
    life.storage.close()
    again = Life(tmp_path)
    assert (again.log().start_offset, again.log().end_offset) == (1, 4)
    assert offsets(again.log()) == [0, 1, 2, 3]


def test_what_lies_before_the_start_is_removed_from_the_disk(tmp_path):
    life = Life(tmp_path, segment_bytes=100)
    life.create()
    for letter in (b"a", b"b", b"c", b"d"):
        life.append(letter)
    life.log().delete_before(2)
    life.cluster.save()
    life.storage.close()
    assert [int(path.stem) for path in sorted(tmp_path.glob("logs/*/*/*.log"))] == [2, 3]
    again = Life(tmp_path, segment_bytes=100)
    assert (again.log().start_offset, again.log().end_offset) == (2, 4)


def test_an_emptied_log_keeps_its_place(tmp_path):
    life = Life(tmp_path)
    life.create()
    life.append(b"a", b"b")
    life.log().delete_before(2)
    life.cluster.save()
    life.storage.close()
    again = Life(tmp_path)
    assert (again.log().start_offset, again.log().end_offset) == (2, 2)
    assert again.append(b"c").base_offset == 2


def test_fewer_brokers_than_before(tmp_path):
    life = Life(tmp_path, brokers=3)
    life.create("t", 3)
    life.storage.close()
    again = Life(tmp_path)
    assert [p.leader for p in again.cluster.topics["t"].partitions] == [1, 1, 1]


def test_one_broker_at_a_time(tmp_path):
    life = Life(tmp_path)
    with pytest.raises(ConfigError, match="another broker uses this directory"):
        ClusterStorage(tmp_path)
    life.storage.close()
    ClusterStorage(tmp_path).close()


def test_a_directory_of_something_else_is_refused(tmp_path):
    (tmp_path / "metadata.jsonl").write_text("hello\n")
    with pytest.raises(ConfigError, match="line 1"):
        ClusterStorage(tmp_path)
    (tmp_path / "metadata.jsonl").write_text('{"k":["format"],"v":99}\n')
    with pytest.raises(ConfigError, match="another version"):
        ClusterStorage(tmp_path)


def test_a_torn_journal_line_is_cut(tmp_path):
    path = tmp_path / "j"
    journal = Journal(path)
    journal.set("a", 1, value={"x": [1, None]})
    journal.set("b", None, value="ü")
    journal.close()
    with path.open("ab") as file:
        file.write(b'{"k":["c"],"v"')
    again = Journal(path)
    assert dict(again.items()) == {("a", 1): {"x": [1, None]}, ("b", None): "ü"}
    assert list(again.items("a")) == [(("a", 1), {"x": [1, None]})]
    again.set("c", value=1)
    again.close()
    assert Journal(path).get("c") == 1


def test_a_stale_journal_is_rewritten_and_stays_true(tmp_path):
    path = tmp_path / "j"
    journal = Journal(path, stale_bytes=0)
    for number in range(3 * MIN_STALE_LINES):
        journal.set("offset", value=number)
        journal.set("offset", value=number)
    journal.set("gone", value=1)
    journal.set("gone", value=None)
    journal.close()
    lines = path.read_text().split()
    assert len(lines) <= 2 * (MIN_STALE_LINES + 5)
    assert all(json.loads(line) for line in lines)
    assert dict(Journal(path).items()) == {("offset",): 3 * MIN_STALE_LINES - 1}


class Replacing(Disk):
    """Counts how often a file has taken another's place."""

    count = 0

    def replace(self, source, target):
        self.count += 1
        super().replace(source, target)


@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_large_journal_is_rewritten_once_it_is_several_times_as_large(tmp_path, is_reopened):
    path = tmp_path / "j"
    journal = Journal(path, disk := Replacing(), stale_bytes=0)
    journal.set("topic", value="x" * 50_000)
    if is_reopened:
        journal.close()
        journal = Journal(path, disk, stale_bytes=0)
    for number in range(2 * MIN_STALE_LINES):
        journal.set("share", value=number, twice=False)
    assert (disk.count, path.stat().st_size < 4 * 100_000) == (0, True)
    for number in range(8 * MIN_STALE_LINES):
        journal.set("share", value=number, twice=False)
    assert (disk.count, path.stat().st_size < 4 * 100_000) == (1, True)
    journal.close()
    journal = Journal(path, disk, stale_bytes=0)
    assert journal.get("share") == 8 * MIN_STALE_LINES - 1
    journal.set("topic", value=None)
    for number in range(2 * MIN_STALE_LINES):
        journal.set("share", value=number, twice=False)
    assert (disk.count > 1, path.stat().st_size < 100_000) == (True, True), "it does not count what is gone"
    journal.close()


class Halting(Disk):
    """Takes so many bytes and is full then."""

    def __init__(self, room):
        self.room = room
        self.piece = 1 << 30
        self.refuses_to_truncate = False

    def write(self, fd, parts):
        data = b"".join(parts)[: self.piece]
        if not self.room:
            raise OSError(28, "No space left on device")
        taken = super().write(fd, [data[: self.room]])
        self.room -= taken
        return taken

    def truncate(self, fd, size):
        if self.refuses_to_truncate:
            raise OSError(5, "Input/output error")
        super().truncate(fd, size)


@pytest.mark.parametrize("refuses_to_truncate", [False, True])
def test_a_full_disk_leaves_no_half_of_a_piece(tmp_path, refuses_to_truncate):
    disk = Halting(10)
    file = AppendedFile(tmp_path / "f", disk)
    file.append(b"abcdef")
    disk.refuses_to_truncate = refuses_to_truncate
    with pytest.raises(OSError, match="No space"):
        file.append(b"gh", b"ijkl")
    disk.room = 100
    if refuses_to_truncate:
        with pytest.raises(OSError, match="Input/output"):
            file.append(b"never behind the half")
    disk.refuses_to_truncate = False
    file.append(b"mn")
    file.close()
    assert (tmp_path / "f").read_bytes() == b"abcdefmn"


def test_a_short_write_is_continued(tmp_path):
    disk = Halting(100)
    disk.piece = 1
    file = AppendedFile(tmp_path / "f", disk)
    file.append(b"abc", b"def")
    file.close()
    assert (tmp_path / "f").read_bytes() == b"abcdef"


def test_cut_at_any_byte_a_log_is_whole_up_to_the_cut(tmp_path):
    log = PartitionLog(SegmentPool(1 << 20))
    files = LogFiles(tmp_path / "whole")
    log.store = PartitionStore(files, log, lambda start: None, lambda end: None)
    for records in ([b"a"], [b"b" * 20, b"c"], [b"d"]):
        log.append(batch(records), leader_epoch=0, now_ms=0)
    files.close()
    stored = [bytes(each) for each in log.batches()]
    data = next((tmp_path / "whole").iterdir()).read_bytes()
    ends = [sum(len(each) + FRAME_BYTES for each in stored[:count]) for count in range(len(stored) + 1)]
    for cut in range(len(data) + 1):
        directory = tmp_path / f"cut-{cut}"
        directory.mkdir()
        path = directory / f"{0:020d}.log"
        path.write_bytes(data[:cut])
        again = PartitionLog(SegmentPool(1 << 20))
        LogFiles(directory).restore(again)
        survivors = sum(end <= cut for end in ends[1:])
        assert [bytes(each) for each in again.batches()] == stored[:survivors]
        # all but the frame is there: the batch behind it is known not to be whole
        assert path.stat().st_size == ends[survivors]
        assert not again.damaged


def test_cut_at_any_byte_a_journal_is_as_it_once_was(tmp_path):
    path = tmp_path / "j"
    journal, states, ends = Journal(path), [{}], [0]
    for key, value in (("a", 1), ("b", {"x": "ü"}), ("a", None), ("a", [2])):
        journal.set(key, value=value, twice=False)
        states.append(dict(journal.items()))
        ends.append(path.stat().st_size)
    journal.close()
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        again = Journal(path)
        assert dict(again.items()) == states[sum(end <= cut for end in ends) - 1]
        again.close()


def test_one_flipped_bit_costs_a_journal_nothing_that_was_written_twice(tmp_path):
    path = tmp_path / "j"
    journal = Journal(path)
    journal.set("format", value=2)
    journal.set("topic", "t", value={"id": "x", "partitions": [1, 2]})
    journal.set("topic", "u", value=None)
    journal.close()
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        again = Journal(path)
        assert dict(again.items()) == {("format",): 2, ("topic", "t"): {"id": "x", "partitions": [1, 2]}}, bit
        again.close()


# -- a full disk


def test_a_topic_that_cannot_be_kept_is_not_there(tmp_path):
    disk = Halting(1 << 30)
    life = Life(tmp_path, disk=disk)
    life.create("before")
    disk.room = 0
    life.cluster.set_config(TOPIC, "t", "retention.bytes", "9")
    life.cluster.create_topic("t", 1)
    entity = ClientQuotaEntity({"user": "alice"})
    life.cluster.set_quota(entity, "request_percentage", 1.5)
    with pytest.raises(OSError, match="No space"):
        life.cluster.save()
    assert list(life.cluster.topics) == ["before"]
    assert not life.cluster.configs
    assert not life.cluster.quotas
    assert not life.cluster.changes
    disk.room = 1 << 30
    life.create("t")
    assert not life.append(b"a").error
    life.storage.close()
    assert Life(tmp_path).log().end_offset == 1


def test_of_two_topics_that_are_made_together_both_or_none_are_kept(tmp_path):
    disk = Halting(1 << 30)
    life = Life(tmp_path, disk=disk)
    disk.room = 450
    life.cluster.create_topic("t", 1)
    life.cluster.create_topic("u", 1)
    with pytest.raises(OSError, match="No space"):
        life.cluster.save()
    assert not life.cluster.topics
    disk.room = 1 << 30
    life.create("v")
    life.storage.close()
    assert list(Life(tmp_path).cluster.topics) == ["v"]


def test_added_partitions_that_cannot_be_kept_are_not_there(tmp_path):
    disk = Halting(1 << 30)
    life = Life(tmp_path, disk=disk)
    life.create("t", 2)
    disk.room = 0
    life.cluster.add_partitions(life.cluster.topics["t"], 5)
    with pytest.raises(OSError, match="No space"):
        life.cluster.save()
    assert len(life.cluster.topics["t"].partitions) == 2


def test_a_topic_can_be_deleted_on_a_full_disk_and_makes_room(tmp_path):
    class Full(Halting):
        def remove_tree(self, path):
            super().remove_tree(path)
            self.room = 1 << 30

    disk = Full(1 << 30)
    life = Life(tmp_path, disk=disk)
    life.create("t")
    life.append(b"a" * 100)
    disk.room = 0
    life.cluster.delete_topic("t")
    life.cluster.save()
    life.storage.close()
    assert not Life(tmp_path).cluster.topics
    assert not list((tmp_path / "logs").iterdir())


def test_records_of_a_topic_whose_name_is_lost_are_left_alone(tmp_path, caplog):
    life = Life(tmp_path)
    life.create("t")
    life.append(b"a")
    life.storage.close()
    path = tmp_path / "metadata.jsonl"
    path.write_text(path.read_text().replace('"topic"', '"tropic"'))
    life = Life(tmp_path)
    assert not life.cluster.topics
    assert "left where they are" in caplog.text
    assert len(list(tmp_path.glob("logs/*/*/*.log"))) == 1


# -- retention


def test_retention_frees_the_disk_and_the_start_is_kept(tmp_path):
    life = Life(tmp_path, segment_bytes=1000)
    life.create()
    life.cluster.set_config(TOPIC, "t", "retention.bytes", "2000")
    life.cluster.save()
    for _ in range(200):
        life.append(b"x" * 100)
    on_disk = sum(path.stat().st_size for path in tmp_path.glob("logs/*/*/*.log"))
    start = life.log().start_offset
    assert start > 180
    assert on_disk < 2000 + 2 * 1300
    life.storage.close()
    again = Life(tmp_path, segment_bytes=1000)
    assert (again.log().start_offset, again.log().end_offset) == (start, 200)


def test_retention_goes_on_when_the_disk_is_full(tmp_path):
    disk = Halting(1 << 30)
    life = Life(tmp_path, segment_bytes=1000, disk=disk)
    life.create()
    for _ in range(30):
        life.append(b"x" * 100)
    disk.room = 0
    life.log().delete_before(20)
    assert min(int(path.stem) for path in tmp_path.glob("logs/*/*/*.log")) > 10
    assert life.append(b"y").error is ErrorCode.KAFKA_STORAGE_ERROR
    disk.room = 1 << 30
    assert life.append(b"y").base_offset == 30
    life.storage.close()
    assert Life(tmp_path, segment_bytes=1000).log().end_offset == 31


def test_offsets_of_a_topic_that_was_made_anew_are_gone_after_a_restart(tmp_path):
    life = Life(tmp_path)
    life.create()
    life.groups.commit("g", "t", 0, CommittedOffset(7))
    life.cluster.delete_topic("t")
    life.cluster.save()
    life.create()
    life.storage.close()
    again = Life(tmp_path)
    assert again.groups.committed("g", "t", 0) is None


# -- fsync


class Watched(Disk):
    """Counts what has been synced."""

    def __init__(self):
        self.synced = 0

    def sync(self, fd):
        self.synced += 1
        super().sync(fd)


def test_fsync_always_syncs_before_every_answer(tmp_path):
    disk = Watched()
    life = Life(tmp_path, disk=disk, fsync=Fsync.of("always"))
    life.create()
    before = disk.synced
    life.append(b"a")
    life.append(b"b")
    assert disk.synced == before + 2
    life.groups.commit("g", "t", 0, CommittedOffset(1))
    assert disk.synced == before + 3


def test_fsync_close_syncs_at_the_end_only(tmp_path):
    disk = Watched()
    life = Life(tmp_path, disk=disk)
    life.create()
    life.append(b"a")
    assert not disk.synced
    life.storage.close()
    assert disk.synced == 2


def test_fsync_every_so_often(tmp_path):
    disk, scheduler = Watched(), ManualScheduler()
    life = Life(tmp_path, disk=disk, fsync=Fsync.of("200"))
    life.storage.sync_every(scheduler)
    life.create()
    life.append(b"a")
    scheduler.pass_ms(199)
    assert not disk.synced
    scheduler.pass_ms(1)
    life.storage.wait()
    assert disk.synced == 2
    scheduler.pass_ms(1000)
    life.storage.wait()
    assert disk.synced == 2, "what has not changed is not synced again"
    life.append(b"b")
    scheduler.pass_ms(200)
    life.storage.wait()
    assert disk.synced == 3
    life.storage.close()


@pytest.mark.parametrize("given", ["sometimes", 0, -5, "1.5", ""])
def test_an_fsync_policy_that_is_none(given):
    with pytest.raises(ConfigError, match="use 'close', 'always' or a number of milliseconds"):
        Fsync.of(given)


def acquired(life, *, epoch=0):
    """A member of the share group `s` acquires all of `t`."""
    topic = life.cluster.topics["t"]
    kept = life.shares.partition("s", topic, topic.partitions[0], 5)
    end = life.log().end_offset
    found = kept.acquire("m", [(offset, offset) for offset in range(end)], Wanted(100, 100), ShareRules(), 5)
    return kept, [(one.first, one.last, one.delivery) for one in found]


def acknowledged(folder, *said):
    """A life of nine records that the share group `s` has acquired and has said this of; where that is kept."""
    life = Life(folder)
    life.create()
    life.cluster.set_config(GROUP, "s", "share.auto.offset.reset", "earliest")
    for _ in range(9):
        life.append(b"v")
    kept, _ = acquired(life)
    assert kept.acknowledge("m", list(said), ShareRules(), 5)[0] == ErrorCode.NONE
    life.shares.changed(place := ("s", life.cluster.topics["t"].topic_id, 0))
    life.cluster.save()
    life.storage.close()
    return place


def test_what_a_share_group_has_settled_and_given_back_is_known_after_a_restart(tmp_path):
    place = acknowledged(
        tmp_path, Acknowledgement(0, 1, [ACCEPT]), Acknowledgement(3, 3, [ACCEPT]), Acknowledgement(5, 6, [RELEASE])
    )

    again = Life(tmp_path)
    assert again.shares.coordinator.groups["s"].state == "Empty"
    kept = again.shares.partitions[place]
    assert (kept.start_offset, kept.next_new, kept.written) == (2, 9, (0, 3))
    assert acquired(again)[1] == [(2, 2, 1), (4, 4, 1), (5, 6, 2), (7, 8, 1)]
    again.cluster.delete_topic("t")
    assert not again.shares.partitions
    again.cluster.save()
    assert not list(again.storage._journal.items("share"))
    again.storage.close()


def test_a_share_group_begins_where_it_began_before_a_restart(tmp_path):
    life = Life(tmp_path)
    life.create()
    life.append(b"before")
    assert acquired(life)[0].start_offset == 1, "the latest"
    life.cluster.save()
    life.append(b"a")
    life.storage.close()
    again = Life(tmp_path)
    assert acquired(again)[1] == [(1, 1, 1)]
    again.storage.close()


def test_a_share_group_that_is_ahead_of_its_log_passes_over_nothing(tmp_path, caplog):
    place = acknowledged(tmp_path, Acknowledgement(0, 3, [ACCEPT]), Acknowledgement(7, 8, [ACCEPT]))
    # a power cut: the end of the log never reached the disk
    (file,) = (tmp_path / "logs").rglob("*.log")
    with file.open("r+b") as log:
        log.truncate(file.stat().st_size * 6 // 9)

    again = Life(tmp_path)
    end = again.log().end_offset
    assert 4 < end < 7
    assert f"share group s was at offset 9 of t-0, whose log ends at {end}" in caplog.text
    again.storage.close()
    last = Life(tmp_path)
    kept = last.shares.partitions[place]
    assert (kept.start_offset, kept.next_new) == (4, end)
    for _ in range(5):
        last.append(b"new")
    assert acquired(last)[1] == [(4, end - 1, 1), (end, end + 4, 1)]
    last.storage.close()


def test_what_a_share_group_was_told_and_cannot_be_kept_is_undone(tmp_path):
    life = Life(tmp_path, disk=(disk := Halting(1 << 30)))
    life.create()
    life.cluster.set_config(GROUP, "s", "share.auto.offset.reset", "earliest")
    life.append(b"a")
    kept, _ = acquired(life)
    life.cluster.save()
    disk.room = 0
    assert kept.acknowledge("m", [Acknowledgement(0, 0, [ACCEPT])], ShareRules(), 5)[0] == ErrorCode.NONE
    life.shares.changed(("s", life.cluster.topics["t"].topic_id, 0))
    with pytest.raises(OSError, match="No space"):
        life.cluster.save()
    disk.room = 1 << 30
    assert acquired(life)[1] == [(0, 0, 1)]
    life.storage.close()


class Threads(Disk):
    """Notes which threads have waited for it, and what is done to names."""

    def __init__(self):
        self.waited, self.names = [], []

    def sync(self, fd):
        self.waited.append(threading.get_ident())
        super().sync(fd)

    def unlink(self, path):
        self.names.append(path)
        super().unlink(path)

    def remove_tree(self, path):
        self.waited.append(threading.get_ident())
        super().remove_tree(path)


@pytest.mark.parametrize("fsync", ["close", "1"])
def test_nobody_waits_for_the_disk_while_logs_roll_and_topics_go(tmp_path, fsync):
    disk, scheduler = Threads(), ManualScheduler()
    life = Life(tmp_path, disk=disk, segment_bytes=200, fsync=Fsync.of(fsync))
    life.storage.sync_every(scheduler)
    life.create()
    life.create("u")
    for number in range(20):
        life.append(b"%d" % number)
        life.append(b"%d" % number, topic="u")
        scheduler.pass_ms(1)
    before = life.bytes()
    life.cluster.delete_topic("u")
    life.cluster.save()
    life.storage.wait()
    assert len(list(tmp_path.glob("logs/*/0/*.log"))) > 2
    assert len(list(tmp_path.glob("logs/*"))) == 1
    assert len(disk.waited) > 4
    assert threading.get_ident() not in disk.waited
    life.storage.close()
    again = Life(tmp_path, segment_bytes=200)
    assert (again.bytes(), list(again.cluster.topics)) == (before, ["t"])
    again.storage.close()


def test_partitions_without_records_cost_the_disk_nothing(tmp_path):
    disk = Threads()
    life = Life(tmp_path, disk=disk)
    for _ in range(2):
        life.create("many", 2_000)
        life.cluster.save()
        life.append(b"v", topic="many")
        life.cluster.delete_topic("many")
        life.cluster.save()
    life.create("many", 2_000)
    life.storage.wait()
    assert not disk.names
    assert (tmp_path / "metadata.jsonl").stat().st_size < 60_000
    life.storage.close()
    again = Life(tmp_path, disk=disk)
    assert len(again.cluster.topics["many"].partitions) == 2_000
    assert not disk.names
    again.storage.close()


def test_where_logs_of_deleted_topics_began_is_forgotten(tmp_path):
    life = Life(tmp_path, segment_bytes=200)
    for _ in range(2):
        life.create()
        for number in range(10):
            life.append(b"%d" % number)
        life.log().delete_before(7)
        assert len(list(life.storage._journal.items("start"))) == 1
        life.cluster.delete_topic("t")
        life.cluster.save()
    assert not list(life.storage._journal.items("start"))
    life.storage.close()
    for _ in range(2):
        again = Life(tmp_path)
        assert not list(again.storage._journal.items("start"))
        again.storage.close()


def test_topics_of_earlier_formats_are_read(tmp_path):
    topic_id = str(UUID(int=1))
    parts = [{"replicas": [2], "leader_epoch": 3}, {"replicas": [1], "leader_epoch": 0}]
    journal = Journal(tmp_path / "metadata.jsonl")
    journal.set("format", value=2)
    journal.set("cluster_id", value="old")
    journal.set("topic", "t", value={"id": topic_id, "replication_factor": 1, "partitions": parts})
    journal.close()
    for _ in range(2):
        life = Life(tmp_path, brokers=2)
        read = [(one.replicas, one.leader_epoch) for one in life.cluster.topics["t"].partitions]
        assert read == [([2], 3), ([1], 0)]
        life.cluster.changed("topic", "t")
        life.cluster.save()
        life.storage.close()


def test_a_journal_is_rewritten_by_and_by_and_is_whole_at_every_moment(tmp_path):
    path, waiting, chance = tmp_path / "j", [], random.Random(3)
    journal = Journal(path, disk := Replacing(), stale_bytes=0, later=waiting.append)
    truth, written = {}, []

    def change(key, value):
        before = sum(file.stat().st_size for file in tmp_path.iterdir())
        journal.set("offset", key, value=value, twice=False)
        truth["offset", key] = value
        written.append(sum(file.stat().st_size for file in tmp_path.iterdir()) - before)

    for number in range(9 * MIN_STALE_LINES):
        change(number % MIN_STALE_LINES, [number])
        if (tmp_path / "j.new").exists():
            break
    while not disk.count:
        change(chance.randrange(2 * MIN_STALE_LINES), chance.choice([None, [-len(written)]]))
        if len(written) % 50 == 0:
            copy = tmp_path.with_name("copy")
            copy.write_bytes(path.read_bytes())
            assert dict(Journal(copy).items()) == {key: value for key, value in truth.items() if value is not None}
        if waiting and chance.random() < 0.1:
            waiting.pop()()
    assert max(written) < 102 * 2 * 100, "a hundred values and the change itself"
    assert not journal.damaged_lines
    assert dict(journal.items()) == dict(Journal(path).items())
    for number in range(100):
        change(number, [number])
    for work in waiting:
        work()
    journal.close()
    assert dict(Journal(path).items()) == {key: value for key, value in truth.items() if value is not None}


def test_a_journal_that_cannot_be_rewritten_goes_on(tmp_path, caplog):
    path = tmp_path / "j"
    journal = Journal(path, disk := Refusing(), stale_bytes=0)
    for number in range(9 * MIN_STALE_LINES):
        journal.set("offset", number % MIN_STALE_LINES, value=number, twice=False)
        disk.refuses = (tmp_path / "j.new").exists()
    assert "could not be made smaller" in caplog.text
    disk.refuses = False
    journal.close()
    assert len(dict(Journal(path).items())) == MIN_STALE_LINES


class Refusing(Disk):
    """Does not sync the file that would take another's place."""

    refuses = False

    def sync(self, fd):
        if self.refuses:
            raise OSError(5, "Input/output error")
        super().sync(fd)


class Counting(Disk):
    """Knows what is open and what is synced; a file whose path ends so cannot be written, or not be synced."""

    def __init__(self, *, unwritable="never", unsyncable="never"):
        self.open, self.synced = {}, []
        self.unwritable, self.unsyncable = unwritable, unsyncable

    def open_append(self, path):
        fd = super().open_append(path)
        self.open[fd] = str(path)
        return fd

    def write(self, fd, parts):
        if self.open[fd].endswith(self.unwritable):
            raise OSError(28, "No space left on device")
        return super().write(fd, parts)

    def sync(self, fd):
        if self.unsyncable in self.open[fd]:
            raise OSError(5, "Input/output error")
        self.synced.append(self.open[fd])
        super().sync(fd)

    def close(self, fd):
        del self.open[fd]
        super().close(fd)


def test_one_file_that_cannot_be_synced_keeps_no_other_from_it(tmp_path):
    disk = Counting()
    life = Life(tmp_path, disk=disk)
    for name in "abc":
        life.create(name)
        life.append(b"x", topic=name)
    disk.unsyncable = life.cluster.topics["a"].topic_id.hex
    files = [path for path in disk.open.values() if disk.unsyncable not in path]
    assert len(files) == 3
    with pytest.raises(OSError, match="Input/output error"):
        life.storage.close()
    assert sorted(disk.synced) == sorted(files)
    assert disk.open == {}


def test_a_directory_that_cannot_be_used_is_let_go_of(tmp_path):
    disk = Counting(unwritable="metadata.jsonl")
    with pytest.raises(ConfigError, match="make room"):
        ClusterStorage(tmp_path, disk=disk)
    assert disk.open == {}


def test_that_a_group_is_gone_is_told_at_once(tmp_path):
    life = Life(tmp_path)
    groups = GroupService(life.cluster, life.scheduler)
    groups.coordinator.get_or_create("g")
    groups.topic.records.is_told = True
    assert groups.delete_group("g") is ErrorCode.NONE
    told = life.cluster.topics[CONSUMER_OFFSETS].partitions[share_of("g")].log
    assert told.end_offset == 1
    life.storage.close()


class Meanwhile(Disk):
    """Another thread syncs the file in the midst of every write."""

    def __init__(self):
        self.file = None
        self.synced = 0

    def write(self, fd, parts):
        if self.file is not None:
            self.file.sync()
        return super().write(fd, parts)

    def sync(self, fd):
        super().sync(fd)
        self.synced = self.size(fd)


def test_what_is_written_while_a_sync_goes_on_is_synced_with_the_next(tmp_path):
    disk = Meanwhile()
    disk.file = file = AppendedFile(tmp_path / "0.log", disk)
    file.append(b"acknowledged")
    assert file.is_dirty
    file.close()
    assert disk.synced == len(b"acknowledged")


def test_that_a_journal_was_damaged_is_known_after_it_was_rewritten(tmp_path):
    path = tmp_path / "j"
    journal = Journal(path, stale_bytes=0)
    journal.set("topic", "lost", value=1)
    journal.set("topic", "kept", value=1)
    journal.close()
    path.write_bytes(path.read_bytes().replace(b"lost", b"lsot"))
    journal = Journal(path, stale_bytes=0)
    lost = journal.damaged_lines
    for number in range(3 * MIN_STALE_LINES):
        journal.set("offset", value=number, twice=False)
    journal.close()
    assert b"lsot" not in path.read_bytes()
    journal = Journal(path)
    assert journal.damaged_lines == lost > 0
    assert journal.get("topic", "kept") == 1
    journal.close()


def test_files_that_wait_for_the_disk_are_not_without_end():
    begun, go, done = threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        go.wait(60)

    write_back = WriteBack()
    write_back.later(slow)
    assert begun.wait(60)

    def give():
        for number in range(1_000):
            write_back.later(partial(done.append, number))

    giver = threading.Thread(target=give)
    giver.start()
    try:
        giver.join(0.2)
        assert giver.is_alive()
    finally:
        go.set()
        giver.join(60)
        write_back.close()
    assert done == list(range(1_000))
