"""Files that grow by whole pieces, on disks that are full or slow."""

import threading
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
