"""Files that grow by whole pieces, on disks that are full or slow."""

import threading
from contextlib import suppress
from functools import partial

import pytest

from kclient_quota.broker.storage.disk import AppendedFile, Disk
from kclient_quota.broker.storage.write_back import WriteBack
from tests.unit.broker.storage_life import Halting


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


def test_nobody_waits_however_many_wait_for_the_disk():
    go, done = threading.Event(), []
    write_back = WriteBack()
    write_back.later(lambda: go.wait(60))
    for number in range(1_000):
        write_back.later(partial(done.append, number))
    assert not done
    go.set()
    write_back.wait()
    assert done == list(range(1_000))
    write_back.close()


def told(caplog):
    """Whether it was said that the disk is full, or is so no more; in order."""
    said = {"could not be written": "full", "can be written again": "room"}
    return [state for line in caplog.messages for part, state in said.items() if part in line]


def tried(file, piece, times=1):
    for _ in range(times):
        with suppress(OSError):
            file.append(piece)


def test_a_full_disk_is_told_of_once_and_that_it_is_so_no_more(tmp_path, caplog):
    disk = Halting(10)
    file, other = (AppendedFile(tmp_path / name, disk) for name in "fg")
    disk.outage.is_told = True
    tried(file, b"abcdef", 5)
    tried(other, b"abcdef", 5)
    assert told(caplog) == ["full"]
    assert "f could not be written: [Errno 28] No space left on device" in caplog.text
    assert "make room" in caplog.text
    tried(other, b"a")  # what is left behind the end of another file is no room
    assert told(caplog) == ["full"]
    disk.room = 10
    tried(file, b"abcdef")
    assert told(caplog) == ["full", "room"]
    tried(file, b"abcdef", 2)
    assert told(caplog) == ["full", "room", "full"]


def test_a_disk_that_takes_many_pieces_is_full_no_more_though_what_it_refused_does_not_come_again(tmp_path, caplog):
    disk = Halting(10)
    file, other = (AppendedFile(tmp_path / name, disk) for name in "fg")
    disk.outage.is_told = True
    tried(file, b"a" * 100)
    disk.room = 1_000
    tried(other, b"a", 99)
    assert told(caplog) == ["full"]
    tried(other, b"a", 99)
    assert told(caplog) == ["full", "room"]


def test_a_file_that_cannot_be_opened_is_told_of_as_well(tmp_path, caplog):
    (tmp_path / "f").mkdir()
    (disk := Disk()).outage.is_told = True
    with pytest.raises(IsADirectoryError):
        AppendedFile(tmp_path / "f", disk)
    assert told(caplog) == ["full"]
    (tmp_path / "f").rmdir()
    tried(AppendedFile(tmp_path / "f", disk), b"a")
    assert told(caplog) == ["full", "room"]
