"""What is on disk after a restart, after a torn write and after a damaged byte; the log against what was appended."""

import json
import os
from uuid import UUID

import pytest

from kclient_quota.broker.cluster_state import BROKER, TOPIC
from kclient_quota.broker.groups.committed_offsets import CommittedOffset
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.segments import SegmentPool
from kclient_quota.broker.storage.disk import Disk
from kclient_quota.broker.storage.framing import FRAME_BYTES
from kclient_quota.broker.storage.journal import Journal
from kclient_quota.broker.storage.log_files import LogFiles
from kclient_quota.broker.storage.topic_files import PartitionStore
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import ClientQuotaEntity
from tests.unit.broker.storage_life import Life, batch, offsets
from tests.unit.cases import case


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
    assert list(again.groups.offsets.fetch_all("g")) == []
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


class NeverRemoving(Disk):
    """Ends before it has removed anything."""

    def remove_tree(self, path):
        pass


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_files_of_a_topic_whose_deletion_was_interrupted_are_removed(tmp_path, is_made_anew):
    life = Life(tmp_path, disk=NeverRemoving())
    life.create()
    life.append(b"a")
    life.cluster.delete_topic("t")
    if is_made_anew:
        life.create()
    life.cluster.save()
    life.storage.close()
    assert len(list(tmp_path.glob("logs/*"))) == 1
    again = Life(tmp_path)
    assert not list(tmp_path.glob("logs/*"))
    again.storage.close()


def test_that_a_topic_was_deleted_is_not_noted_for_longer_than_its_records_are_there(tmp_path):
    life = Life(tmp_path)
    for _ in range(3):
        life.create()
        life.append(b"a")
        life.cluster.delete_topic("t")
        life.cluster.save()
        life.storage.wait()
    # of the last one, unless its records were gone before anybody looked
    assert len(list(life.storage._journal.items("deleted"))) <= 1
    life.storage.close()
    again = Life(tmp_path)
    assert not list(again.storage._journal.items("deleted"))
    again.storage.close()


def with_records(folder):
    """What three topics have in the data directory, by path; and the journal's lines."""
    life = Life(folder)
    for name in "tuv":
        life.create(name)
        life.append(b"a", topic=name)
    life.storage.close()
    return {path: path.read_bytes() for path in folder.glob("logs/*/*/*.log")}, (folder / "metadata.jsonl").read_bytes()


@pytest.mark.parametrize("is_left", ["nothing", "no byte", "the first line", "zeros"])
def test_a_broker_without_a_whole_journal_does_not_start_and_leaves_records_where_they_are(tmp_path, is_left):
    records, journal = with_records(tmp_path)
    path = tmp_path / "metadata.jsonl"
    if is_left == "nothing":
        path.unlink()
    else:
        first = journal[: journal.index(b"\n", 1) + 1]
        path.write_bytes({"no byte": b"", "the first line": first, "zeros": bytes(len(journal))}[is_left])
    with pytest.raises(ConfigError, match=r"metadata\.jsonl"):
        Life(tmp_path)
    assert {one: one.read_bytes() for one in records} == records
    path.write_bytes(journal)
    again = Life(tmp_path)
    assert [again.log(name).end_offset for name in "tuv"] == [1, 1, 1]
    again.storage.close()


def test_what_a_journal_that_was_cut_off_does_not_name_stays_and_is_named(tmp_path, caplog):
    records, journal = with_records(tmp_path)
    (tmp_path / "logs" / "lost+found").mkdir()
    (tmp_path / "metadata.jsonl").write_bytes(journal[: journal.index(b'"u"') - 20])
    again = Life(tmp_path)
    assert list(again.cluster.topics) == ["t"]
    again.storage.close()
    assert {one: one.read_bytes() for one in records} == records
    assert caplog.text.count("records of a topic that the journal does not name") == 2


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


def test_one_flipped_bit_costs_one_batch_at_most(tmp_path):
    """Fifty batches, one bit of the fifth: of its frame, of its header (offset, length, epoch), of its record."""
    log = PartitionLog(SegmentPool(1 << 20))
    files = LogFiles(tmp_path / "whole")
    log.store = PartitionStore(files, log, lambda start: None, lambda end: None)
    for _ in range(50):
        log.append(batch([b"0123"]), leader_epoch=3, now_ms=0)
    files.close()
    stored = [bytes(each) for each in log.batches()]
    (path,) = (tmp_path / "whole").iterdir()
    whole = path.read_bytes()
    size = len(whole) // 50
    assert size == FRAME_BYTES + 72
    for bit in range(8 * size):
        with case(f"bit {bit}"):
            data = bytearray(whole)
            data[4 * size + bit // 8] ^= 1 << bit % 8
            folder = tmp_path / str(bit)
            folder.mkdir()
            (folder / path.name).write_bytes(data)
            again = PartitionLog(SegmentPool(1 << 20))
            LogFiles(folder).restore(again)
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
