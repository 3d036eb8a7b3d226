"""The few calls on the file system that storage makes: one place to put a full, slow or dying disk in a test."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from kclient_telemetry import logger_of

_LOG = logger_of(__name__)
_IN_A_ROW = 100
Later = Callable[[Callable[[], None]], None]
"""Has something done while others go on."""


def at_once(work: Callable[[], None]) -> None:
    """The `Later` that has nobody else to wait for."""
    work()


def missing_above(directory: Path) -> list[Path]:
    """The directories that get a new name in them when this one is made."""
    missing = takewhile(lambda path: not path.exists(), (directory, *directory.parents))
    return [path.parent for path in missing]


class Outage:
    """Says once that a disk takes nothing more, however many ask, and once that it does again.

    A full disk still has room for a little behind the end of some file. So it is over when a file takes as much as it
    has refused, or when many pieces have been taken, one after the other, wherever to.

    Attributes:
        is_told: whether it says so; not before the broker has begun: whoever starts it is told otherwise.
    """

    def __init__(self) -> None:
        self.is_told = False
        self._refused: dict[Path, int] = {}
        self._taken = 0

    @property
    def is_on(self) -> bool:
        """Whether it takes nothing just now."""
        return bool(self._refused)

    def refused(self, path: Path, error: OSError, nbytes: int = 0) -> None:
        """So many bytes could not be written, or the file not even be opened."""
        if not self.is_told:
            return
        if not self._refused:
            _LOG.error(
                "%s could not be written: %s. Until it can be, records and changes are refused with "
                "KAFKA_STORAGE_ERROR, what coordinators keep with NOT_COORDINATOR; make room on that disk",
                path,
                error,
            )
        self._refused[path] = min(nbytes, self._refused.get(path, nbytes))
        self._taken = 0

    def taken(self, path: Path, nbytes: int) -> None:
        """So many bytes have been written."""
        self._taken += 1
        if self._taken == _IN_A_ROW or nbytes >= self._refused.get(path, sys.maxsize):
            self._refused.clear()
            _LOG.warning("%s can be written again: the disk takes what is to be kept", path)


class Disk:
    """The operating system's file system. A test overrides what it wants to fail."""

    @cached_property
    def outage(self) -> Outage:
        """Whether it takes anything just now."""
        return Outage()

    def open_append(self, path: Path) -> int:
        """Open a file for appending, made with its directories when absent."""
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, fd: int, parts: Sequence[bytes | memoryview]) -> int:
        """Append; how many bytes were taken, maybe fewer than given."""
        return os.writev(fd, parts)

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file off."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Wait until a file is on the disk itself."""
        os.fsync(fd)

    def sync_named(self, path: Path) -> None:
        """Wait until a file that nobody need hold open is on the disk itself."""
        fd = os.open(path, os.O_RDONLY)
        try:
            self.sync(fd)
        finally:
            os.close(fd)

    def sync_directory(self, path: Path) -> None:
        """Wait until the names in a directory are on the disk itself."""
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self) -> None:
        """Wait until the disks have everything."""
        os.sync()

    def size(self, fd: int) -> int:
        """Bytes in an open file."""
        return os.fstat(fd).st_size

    def close(self, fd: int) -> None:
        """Let go of an open file."""
        os.close(fd)

    def read(self, path: Path) -> bytearray:
        """A whole file."""
        size = path.stat().st_size
        data = bytearray(size)
        with path.open("rb") as file:
            return data[: file.readinto(data)]

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file over another."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Remove a file; nothing if there is none."""
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with all that is in it, as far as that is possible."""
        shutil.rmtree(path, ignore_errors=True)


class AppendedFile:
    """A file that grows by whole pieces or not at all.

    Args:
        path: made when absent.
        disk: where it is.

    Attributes:
        path: its name; whoever renames it says so here.
        size: bytes in it that count.
        is_dirty: whether something was appended since the last `sync`.
        is_kept: whether what is not synced yet is kept in memory from now on, to be written anew where a sync fails:
            the system may have thrown away what it could not write, and say nothing of it with the next sync.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self._disk = disk
        self.path = path
        try:
            self._fd = disk.open_append(path)
        except OSError as error:
            disk.outage.refused(path, error)
            raise
        self.size = disk.size(self._fd)
        self.is_dirty = False
        self.is_kept = False
        self._unsynced: list[bytes] = []
        self._syncing: list[bytes] = []
        self._lost: list[bytes] = []
        self._is_torn = False

    def append(self, *parts: bytes | memoryview) -> None:
        """Write all of it or nothing.

        Raises:
            OSError: as the system said; what had been written of it is cut off again, now or before the next append.
        """
        wanted = sum(map(len, parts))
        try:
            self._append(parts, wanted)
        except OSError as error:
            self._disk.outage.refused(self.path, error, wanted)
            raise
        if self._disk.outage.is_on:
            self._disk.outage.taken(self.path, wanted)

    def _append(self, parts: Sequence[bytes | memoryview], wanted: int) -> None:
        if self._is_torn:
            self._mend()
        self.is_dirty = True
        try:
            self._write(parts, wanted)
        except OSError:
            self.cut(self.size)
            raise
        finally:
            # another thread may have synced in the midst of it
            self.is_dirty = True
        self.size += wanted
        if self.is_kept:
            self._unsynced.append(b"".join(parts))

    def _write(self, parts: Sequence[bytes | memoryview], wanted: int) -> None:
        written = self._disk.write(self._fd, parts)
        rest = memoryview(b"".join(parts))[written:] if written < wanted else memoryview(b"")
        while rest:
            rest = rest[self._disk.write(self._fd, [rest]) :]

    def cut(self, size: int) -> None:
        """Let the file end at `size`; when the disk refuses that now, it is made up for before the next append."""
        self.size, self._is_torn = size, True
        try:
            self._mend()
        except OSError:
            return  # nothing is appended behind what should be gone: `append` tries again first

    def _mend(self) -> None:
        self._disk.truncate(self._fd, self.size)
        if self._lost:
            again = b"".join(self._lost)
            self._write([again], len(again))
            self.size += len(again)
            self.is_dirty = True
            self._unsynced, self._lost = [again], []
        self._is_torn = False

    def begin_sync(self) -> None:
        """What has been appended so far is what the next `sync` is for; until `end_sync`.

        Raises:
            OSError: what the last one has lost cannot be written.
        """
        if self._is_torn:
            self._mend()
        self._syncing, self._unsynced = self._unsynced, []

    def end_sync(self, error: OSError | None) -> None:
        """The disk has it, or has refused: then it is written once more before anything else is."""
        if error is not None:
            lost, self._unsynced = self._syncing + self._unsynced, []
            self._lost += lost
            self.size -= sum(map(len, lost))
            self._is_torn = True
        self._syncing = []

    def sync(self) -> None:
        """Wait until everything is on the disk itself."""
        self._sync(lambda: self._disk.sync(self._fd))

    def sync_by_name(self) -> None:
        """The same where it may be let go of, or be deleted, before or meanwhile."""
        self._sync(self._sync_if_there)

    def _sync_if_there(self) -> None:
        with suppress(FileNotFoundError):
            self._disk.sync_named(self.path)

    def _sync(self, wait: Callable[[], None]) -> None:
        if not self.is_dirty:
            return
        # what is appended meanwhile makes it so again
        self.is_dirty = False
        try:
            wait()
        except OSError:
            self.is_dirty = True
            raise

    def close(self) -> None:
        """Sync and let go."""
        try:
            self.sync()
        finally:
            self.discard()

    def discard(self) -> None:
        """Let go of what is not needed any more."""
        self._disk.close(self._fd)
