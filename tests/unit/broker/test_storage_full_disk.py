"""What a directory holds where the disk takes no more, fails, or is to have more room."""

import pytest

from kclient_quota.broker.cluster_state import TOPIC
from kclient_quota.broker.groups.committed_offsets import CommittedOffset
from kclient_quota.broker.internal_topics import CONSUMER_OFFSETS, InternalTopic, internal_topic
from kclient_quota.broker.storage.cluster_storage import ClusterStorage
from kclient_quota.broker.storage.disk import Disk
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.wire.error_codes import ErrorCode
from tests.unit.broker.storage_life import Halting, Life


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


def test_a_topic_that_cannot_be_kept_leaves_no_records_behind(tmp_path):
    disk = Halting(1 << 30)
    life = Life(tmp_path, disk=disk)
    life.cluster.new_store = life.storage._files.new_store
    topic = life.cluster.create_topic("t", 1)
    life.storage._files.attach(topic)
    life.append(b"a")
    disk.room = 0
    with pytest.raises(OSError, match="No space"):
        life.cluster.save()
    life.storage.close()
    assert not list(tmp_path.glob("logs/*"))


def test_that_the_disk_is_full_is_said_once_with_the_reason_and_the_remedy(tmp_path, caplog):
    disk = Halting(1 << 30)
    life = Life(tmp_path, disk=disk)
    life.create()
    internal_topic(life.cluster, CONSUMER_OFFSETS)
    life.cluster.save()
    disk.room = 0
    for number in range(3):
        assert life.append(b"a").error is ErrorCode.KAFKA_STORAGE_ERROR
        life.cluster.create_topic(f"t{number}", 1)
        with pytest.raises(OSError, match="No space"):
            life.cluster.save()
    assert [line for line in caplog.messages if "No space left" in line and "make room" in line] == caplog.messages
    assert len(caplog.messages) == 1
    offsets = InternalTopic(CONSUMER_OFFSETS, life.cluster, life.scheduler)
    with pytest.raises(OSError, match=r"does not take what has changed of g: .*No space left"):
        offsets.append("g", b"k", b"v")
    life.storage.close()


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


@pytest.mark.parametrize("room", [0, 40])
def test_a_group_that_cannot_be_deleted_is_there_with_all_its_positions(tmp_path, room):
    disk = Halting(1 << 30)
    life = Life(tmp_path, disk=disk)
    life.create(partitions=20)
    for partition in range(20):
        life.groups.coordinator.get_or_create("g")
        life.groups.commit("g", "t", partition, CommittedOffset(partition))
    life.groups.commit("h", "t", 0, CommittedOffset(3))
    life.groups.commit_pending(7, "g", "t", 0, CommittedOffset(9))
    disk.room = room
    with pytest.raises(OSError, match="No space"):
        life.groups.delete_group("g")
    assert "g" in life.groups.coordinator.groups
    assert len(list(life.groups.offsets.fetch_all("g"))) == 20
    life.storage.close()
    disk.room = 1 << 30
    again = Life(tmp_path, disk=disk)
    assert len(list(again.groups.offsets.fetch_all("g"))) == 20
    assert again.groups.delete_group("g") is ErrorCode.NONE
    again.storage.close()
    last = Life(tmp_path)
    assert (list(last.groups.offsets.fetch_all("g")), last.groups.offsets.groups()) == ([], ["h"])
    assert not last.groups.offsets.pending_producers()
    last.storage.close()


@pytest.mark.parametrize("cut", range(0, 1_500, 97))
def test_a_process_that_ends_while_a_group_is_deleted_leaves_all_of_it_or_nothing(tmp_path, cut):
    life = Life(tmp_path)
    life.create(partitions=20)
    for partition in range(20):
        life.groups.coordinator.get_or_create("g")
        life.groups.commit("g", "t", partition, CommittedOffset(partition))
    before = (tmp_path / "metadata.jsonl").stat().st_size
    assert life.groups.delete_group("g") is ErrorCode.NONE
    life.storage.close()
    path = tmp_path / "metadata.jsonl"
    path.write_bytes(path.read_bytes()[: before + cut])
    again = Life(tmp_path)
    assert len(list(again.groups.offsets.fetch_all("g"))) in {0, 20}
    again.storage.close()


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
    disk.synced.clear()
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
