"""When the disk itself has what was written, and who waits for it."""

import threading

import pytest

from kclient_quota.broker.groups.committed_offsets import CommittedOffset
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.internal_topics import CONSUMER_OFFSETS, share_of
from kclient_quota.broker.storage.cluster_storage import Fsync
from kclient_quota.broker.storage.disk import Disk
from kclient_quota.errors import ConfigError
from kclient_quota.wire.error_codes import ErrorCode
from tests.unit.broker.handler_node import ManualScheduler
from tests.unit.broker.storage_life import Life


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


def test_that_a_group_is_gone_is_told_at_once(tmp_path):
    life = Life(tmp_path)
    groups = GroupService(life.cluster, life.scheduler)
    groups.coordinator.get_or_create("g")
    groups.topic.records.is_told = True
    assert groups.delete_group("g") is ErrorCode.NONE
    told = life.cluster.topics[CONSUMER_OFFSETS].partitions[share_of("g")].log
    assert told.end_offset == 1
    life.storage.close()
