"""What is on disk after a restart, after a torn write and after a damaged byte; the log against what was appended."""

import json
import os
from uuid import UUID

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kclient_quota.broker.cluster_state import BROKER, TOPIC, BrokerInfo, ClusterState
from kclient_quota.broker.groups.committed_offsets import CommittedOffset
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.segments import SegmentPool
from kclient_quota.broker.storage.cluster_storage import Storage
from kclient_quota.broker.storage.journal import MIN_STALE_LINES, Journal, write_whole
from kclient_quota.broker.storage.log_files import LogFiles
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import ClientQuotaEntity


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

    def __init__(self, path, *, brokers=1, **changes):
        self.storage = Storage(path, **changes)
        pool = SegmentPool(1 << 20)
        ids = iter(range(1 + len(list(path.glob("logs/*"))), 1000))
        self.cluster = ClusterState(
            cluster_id=self.storage.cluster_id("fresh"),
            brokers=[BrokerInfo(i, "127.0.0.1") for i in range(1, brokers + 1)],
            new_topic_id=lambda: UUID(int=next(ids)),
            new_log=lambda _: PartitionLog(pool),
        )
        self.groups = GroupService(self.cluster, None)
        self.storage.restore(self.cluster, self.groups)

    def log(self, topic="t", partition=0):
        return self.cluster.topics[topic].partitions[partition].log

    def append(self, *records, topic="t", **changes):
        return self.log(topic).append(batch(records, **changes), leader_epoch=0, now_ms=5)

    def bytes(self, topic="t"):
        return b"".join(bytes(b) for b in self.log(topic).batches())

    def create(self, name="t", partitions=1):
        self.cluster.create_topic(name, partitions)
        self.cluster.save()


def test_everything_is_there_after_a_restart(tmp_path):
    life = Life(tmp_path, brokers=2)
    life.create("t", 2)
    life.cluster.configs[TOPIC, "t"] = {"retention.bytes": "9"}
    life.cluster.configs[BROKER, ""] = {"num.partitions": "3"}
    life.cluster.quotas[ClientQuotaEntity({"user": "alice", "client-id": None})] = {"producer_byte_rate": 1024.0}
    life.cluster.save()
    life.append(b"a", b"b")
    life.append(b"c")
    life.groups.commit("g", "t", 0, CommittedOffset(2, 0, "note"))
    before = life.bytes()
    life.cluster.topics["t"].partitions[1].leader_epoch = 4
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
    life.cluster.quotas[entity] = {"request_percentage": 1.5}
    life.cluster.save()
    life.groups.commit("g", "t", 0, CommittedOffset(1))
    life.groups.commit("g", "u", 0, CommittedOffset(1))
    life.cluster.delete_topic("t")
    life.groups.offsets.delete("g", "u", 0)
    del life.cluster.quotas[entity]
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
    assert path.stat().st_size == len(whole)
    assert again.append(b"next").base_offset == 1
    again.storage.close()
    assert Life(tmp_path).log().end_offset == 2


def test_a_damaged_byte_ends_the_log_there_also_across_files(tmp_path):
    life = Life(tmp_path, file_bytes=100)
    life.create()
    for letter in (b"a", b"b", b"c", b"d"):
        life.append(letter)
    life.storage.close()
    paths = sorted(tmp_path.glob("logs/*/*/*.log"))
    assert [int(path.stem) for path in paths] == [0, 1, 2, 3]
    data = bytearray(paths[2].read_bytes())
    data[-2] ^= 1
    paths[2].write_bytes(data)
    again = Life(tmp_path, file_bytes=100)
    assert again.log().end_offset == 2
    assert again.append(b"e").base_offset == 2
    again.storage.close()
    assert Life(tmp_path, file_bytes=100).log().end_offset == 3


def test_what_lies_before_the_start_is_removed_from_the_disk(tmp_path):
    life = Life(tmp_path, file_bytes=100)
    life.create()
    for letter in (b"a", b"b", b"c", b"d"):
        life.append(letter)
    life.log().delete_before(2)
    life.cluster.save()
    life.storage.close()
    assert [int(path.stem) for path in sorted(tmp_path.glob("logs/*/*/*.log"))] == [2, 3]
    again = Life(tmp_path, file_bytes=100)
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
        Storage(tmp_path)
    life.storage.close()
    Storage(tmp_path).close()


def test_a_directory_of_something_else_is_refused(tmp_path):
    (tmp_path / "metadata.jsonl").write_text("hello\n")
    with pytest.raises(ConfigError, match="line 1"):
        Storage(tmp_path)
    (tmp_path / "metadata.jsonl").write_text('{"k":["format"],"v":99}\n')
    with pytest.raises(ConfigError, match="another version"):
        Storage(tmp_path)


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
    journal = Journal(path)
    for number in range(3 * MIN_STALE_LINES):
        journal.set("offset", value=number)
        journal.set("offset", value=number)
    journal.set("gone", value=1)
    journal.set("gone", value=None)
    journal.close()
    lines = path.read_text().splitlines()
    assert len(lines) <= MIN_STALE_LINES + 5
    assert all(json.loads(line) for line in lines)
    assert dict(Journal(path).items()) == {("offset",): 3 * MIN_STALE_LINES - 1}


def test_a_full_disk_leaves_no_half_of_a_batch(tmp_path, monkeypatch):
    files = LogFiles(tmp_path / "p")
    stored = batch([b"a"])
    files.append(memoryview(stored))
    monkeypatch.setattr(os, "writev", lambda fd, parts: os.write(fd, bytes(parts[0][:10])))

    real, calls = os.write, []

    def full(fd, data):
        calls.append(data)
        if len(calls) == 1:
            return real(fd, data)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        files.append(memoryview(stored))
    monkeypatch.undo()
    taken = []
    LogFiles(tmp_path / "p").restore(lambda b: taken.append(bytes(b)))
    assert taken == [stored]


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    fd = os.open(tmp_path / "f", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    monkeypatch.setattr(os, "writev", lambda fd, parts: os.write(fd, parts[0][:1]))
    write_whole(fd, b"abc", b"def")
    os.close(fd)
    assert (tmp_path / "f").read_bytes() == b"abcdef"


def test_cut_at_any_byte_a_log_is_whole_up_to_the_cut(tmp_path):
    batches = [batch([b"a"]), batch([b"b" * 20, b"c"]), batch([b"d"])]
    whole = tmp_path / "whole"
    files = LogFiles(whole)
    for stored in batches:
        files.append(memoryview(stored))
    files.close()
    data = next(whole.iterdir()).read_bytes()
    ends = [sum(map(len, batches[:count])) for count in range(len(batches) + 1)]
    for cut in range(len(data) + 1):
        directory = tmp_path / "cut"
        directory.mkdir()
        path = directory / f"{0:020d}.log"
        path.write_bytes(data[:cut])
        taken = []
        LogFiles(directory).restore(lambda stored, taken=taken: taken.append(bytes(stored)))
        survivors = sum(end <= cut for end in ends[1:])
        assert taken == batches[:survivors]
        assert path.stat().st_size == ends[survivors]
        path.unlink()
        directory.rmdir()


def test_cut_at_any_byte_a_journal_is_as_it_once_was(tmp_path):
    path = tmp_path / "j"
    journal, states, ends = Journal(path), [{}], [0]
    for key, value in (("a", 1), ("b", {"x": "ü"}), ("a", None), ("a", [2])):
        journal.set(key, value=value)
        states.append(dict(journal.items()))
        ends.append(path.stat().st_size)
    journal.close()
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        again = Journal(path)
        assert dict(again.items()) == states[sum(end <= cut for end in ends) - 1]
        again.close()
