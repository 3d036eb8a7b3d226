"""When the disk itself has what was written, and who waits for it."""

import shutil
import threading
from pathlib import Path

import pytest

from kclient_quota.broker.groups.committed_offsets import CommittedOffset
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.internal_topics import CONSUMER_OFFSETS, share_of
from kclient_quota.broker.storage.disk import Disk
from kclient_quota.broker.storage.fsync import Fsync
from kclient_quota.broker.storage.journal import MIN_STALE_LINES
from kclient_quota.errors import ConfigError
from kclient_quota.wire.error_codes import ErrorCode
from tests.unit.broker.handler_node import ManualScheduler
from tests.unit.broker.storage_life import Life, offsets


class Watched(Disk):
    """Counts what has been synced."""

    def __init__(self):
        self.synced = 0

    def sync(self, fd):
        self.synced += 1
        super().sync(fd)


class Always:
    """A life whose syncs are before answers."""

    def __init__(self, path, disk, **changes):
        self.life = Life(path, disk=disk, fsync=Fsync.of("always"), **changes)
        self.life.storage.begin_syncs(self.life.cluster, self.life.scheduler)
        self.go_on()

    def go_on(self):
        """Let rounds be made until there is nothing to sync."""
        for _ in range(4):
            self.life.scheduler.pass_ms(0)
            self.life.storage.wait()
        self.life.scheduler.pass_ms(0)

    def on_disk(self):
        """A list that gets what who waits is told."""
        told = []
        promise = self.life.cluster.on_disk()
        promise.on_resolved(lambda: told.append(promise.value))
        return told


def test_fsync_always_syncs_once_for_all_that_wait(tmp_path):
    disk = Watched()
    always = Always(tmp_path, disk)
    life = always.life
    life.create(partitions=2)
    always.go_on()
    before = disk.synced
    assert always.on_disk() == [None], "there is nothing to wait for"
    waiting = []
    for number in range(50):
        life.append(b"%d" % number)
        life.groups.commit("g", "t", 0, CommittedOffset(number))
        waiting.append(always.on_disk())
    assert disk.synced == before
    assert not any(waiting)
    assert (life.log().high_watermark, life.log().last_stable_offset, life.log().end_offset) == (0, 0, 50)
    always.go_on()
    assert waiting == [[None]] * 50
    assert disk.synced == before + 2, "the journal and the log"
    assert life.log().high_watermark == 50
    life.storage.close()


class Refusing(Disk):
    """Refuses to sync what it is told to, and throws away what it should have synced, as Linux may."""

    def __init__(self):
        self.refuses, self.synced = None, {}

    def open_append(self, path):
        fd = super().open_append(path)
        self.synced[fd] = 0
        return fd

    def sync(self, fd):
        path, synced = Path(f"/proc/self/fd/{fd}").readlink(), self.synced[fd]
        if self.refuses is not None and self.refuses in path.parts:
            data = bytearray(path.read_bytes())
            data[synced:] = bytes(len(data) - synced)
            path.write_bytes(data)
            raise OSError(5, "Input/output error")
        super().sync(fd)
        self.synced[fd] = self.size(fd)


@pytest.mark.parametrize("what", ["logs", "metadata.jsonl"])
def test_what_a_disk_refuses_to_sync_is_told_and_written_once_more(tmp_path, what):
    disk = Refusing()
    always = Always(tmp_path, disk)
    life = always.life
    life.create()
    life.append(b"before")
    always.go_on()
    disk.refuses = what
    life.append(b"refused")
    life.groups.commit("g", "t", 0, CommittedOffset(7))
    told = always.on_disk()
    always.go_on()
    (error,) = told
    assert error.errno == 5
    assert life.log().high_watermark == (1 if what == "logs" else 2)
    told = always.on_disk()
    life.append(b"behind")
    disk.refuses = None
    life.scheduler.pass_ms(1_000)
    always.go_on()
    assert told == [None], "tried again without being asked"
    assert life.log().high_watermark == 3
    life.storage.close()
    again = Life(tmp_path)
    assert again.log().end_offset == 3
    assert not again.log().damaged
    assert again.groups.committed("g", "t", 0) == CommittedOffset(7)
    again.storage.close()


def test_a_journal_is_made_smaller_while_every_change_waits_for_the_disk(tmp_path):
    disk = Refusing()
    always = Always(tmp_path, disk)
    life = always.life
    life.create()
    for number in range(3_000):
        life.groups.commit("g", "t", 0, CommittedOffset(number, metadata="x" * 1_000))
        if number % 100 == 0:
            disk.refuses = "metadata.new" if number == 1_200 else None
            told = always.on_disk()
            always.go_on()
            assert told == [None]
    always.go_on()
    assert (tmp_path / "metadata.jsonl").stat().st_size < 3_000_000
    life.storage.close()
    again = Life(tmp_path)
    assert again.groups.committed("g", "t", 0).offset == 2_999
    again.storage.close()


def test_fsync_close_syncs_at_the_beginning_and_at_the_end_only(tmp_path):
    """At the beginning the journal of a new cluster, without which its records would be nobody's."""
    disk = Watched()
    life = Life(tmp_path, disk=disk)
    assert disk.synced == 1
    disk.synced = 0
    life.create()
    life.append(b"a")
    assert not disk.synced
    life.storage.close()
    assert disk.synced == 2


def test_fsync_every_so_often(tmp_path):
    disk, scheduler = Watched(), ManualScheduler()
    life = Life(tmp_path, disk=disk, fsync=Fsync.of("200"))
    disk.synced = 0
    life.storage.begin_syncs(life.cluster, scheduler)
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
    disk.waited.clear()
    life.storage.begin_syncs(life.cluster, scheduler)
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


class Stuck(Disk):
    """Waits for the test before anything is on the disk itself; counts open files, and notes what has been synced."""

    def __init__(self):
        self.goes, self.opened, self.synced = threading.Event(), 0, []
        self.goes.set()

    def open_append(self, path):
        self.opened += 1
        return super().open_append(path)

    def close(self, fd):
        self.opened -= 1
        super().close(fd)

    def sync(self, fd):
        # more than any test may take; a loop that waits for it fails what is asserted behind it
        self.goes.wait(3)
        self.synced.append(Path(f"/proc/self/fd/{fd}").readlink())
        super().sync(fd)


@pytest.mark.parametrize("fsync", ["close", "1"])
def test_hundreds_of_full_segments_wait_for_a_slow_disk_while_others_go_on(tmp_path, fsync):
    disk, scheduler = Stuck(), ManualScheduler()
    life = Life(tmp_path, disk=disk, segment_bytes=1, fsync=Fsync.of(fsync))
    life.storage.begin_syncs(life.cluster, scheduler)
    life.create()
    life.create("u")
    life.storage.wait()
    disk.goes.clear()
    before = len(disk.synced)
    for number in range(200):
        life.append(b"%d" % number)
        if number < 100:
            life.append(b"%d" % number, topic="u")
        scheduler.pass_ms(1)
    life.cluster.delete_topic("u")
    life.cluster.save()
    assert len(disk.synced) == before, "nothing has been waited for"
    assert disk.opened < 10, "what waits holds no file open"
    disk.goes.set()
    life.storage.wait()
    kept = set(tmp_path.glob("logs/*/0/*.log"))
    assert len(kept) == 200
    assert len(kept - set(disk.synced)) <= 1, "all but what is written to"
    life.storage.close()
    assert kept <= set(disk.synced)


@pytest.mark.parametrize("fsync", ["close", "1"])
def test_nobody_waits_for_the_disk_while_the_journal_is_rewritten(tmp_path, fsync):
    disk, scheduler = Threads(), ManualScheduler()
    life = Life(tmp_path, disk=disk, fsync=Fsync.of(fsync))
    disk.waited.clear()
    life.storage.begin_syncs(life.cluster, scheduler)
    life.create()
    journal = (tmp_path / "metadata.jsonl").stat().st_ino
    for number in range(2 * MIN_STALE_LINES):
        life.groups.commit("g", "t", 0, CommittedOffset(number, metadata="m" * 1_000))
        life.cluster.save()
        if number % 100 == 0:
            life.storage.wait()
    assert (tmp_path / "metadata.jsonl").stat().st_ino != journal
    assert threading.get_ident() not in disk.waited
    life.storage.close()


def written_in_one_round(path):
    """Files of one batch each, of which only the first is on the disk; as a power cut finds them."""
    always = Always(path / "running", Watched(), segment_bytes=1)
    always.life.create()
    always.life.append(b"0")
    always.go_on()
    for number in (1, 2, 3):
        always.life.append(b"%d" % number)
    shutil.copytree(path / "running", path / "left")
    return always


def files_in(path):
    return sorted(file.name.lstrip("0") for file in path.glob("logs/*/0/*"))


def test_what_follows_a_hole_that_a_power_cut_has_left_was_promised_to_nobody_and_is_cut_off(tmp_path):
    always = written_in_one_round(tmp_path)
    assert files_in(tmp_path / "left") == [".log", "1.log", "2.begun", "3.begun"]
    always.go_on()
    assert files_in(tmp_path / "running") == [".log", "1.log", "2.log", "3.log"], "the disk has all of them"
    always.life.storage.close()
    (lost,) = tmp_path.glob("left/logs/*/0/*1.log")
    lost.write_bytes(b"")
    again = Life(tmp_path / "left", segment_bytes=1)
    assert offsets(again.log()) == [0]
    assert not again.log().damaged
    assert again.append(b"new").base_offset == 1
    again.storage.close()


def test_what_follows_no_hole_stays_and_has_its_name_from_then_on(tmp_path):
    written_in_one_round(tmp_path).life.storage.close()
    assert files_in(tmp_path / "running") == [".log", "1.log", "2.log", "3.log"], "closing is a sync"
    for _ in range(2):
        again = Life(tmp_path / "left", segment_bytes=1)
        assert offsets(again.log()) == [0, 1, 2, 3]
        again.storage.close()
    assert files_in(tmp_path / "left") == [".log", "1.log", "2.log", "3.log"]


class SlowToRemove(Watched):
    """Removes nothing before it is let."""

    def __init__(self):
        super().__init__()
        self.goes, self.is_removing = threading.Event(), threading.Event()

    def remove_tree(self, path):
        self.is_removing.set()
        assert self.goes.wait(60)
        super().remove_tree(path)


def test_topics_that_are_being_removed_hold_up_neither_syncs_nor_the_loop(tmp_path):
    disk, scheduler = SlowToRemove(), ManualScheduler()
    life = Life(tmp_path, disk=disk, fsync=Fsync.of("200"))
    try:
        life.storage.begin_syncs(life.cluster, scheduler)
        life.create("kept")
        for number in range(200):
            life.create(f"t{number}")
            life.append(b"v", topic=f"t{number}")
            life.cluster.delete_topic(f"t{number}")
            life.cluster.save()
        assert disk.is_removing.wait(60)
        life.append(b"v", topic="kept")
        life.storage.wait_for_syncs()
        before = disk.synced
        scheduler.pass_ms(200)
        life.storage.wait_for_syncs()
        assert disk.synced == before + 2
    finally:
        disk.goes.set()
        life.storage.close()
    assert len(list(tmp_path.glob("logs/*"))) == 1


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
