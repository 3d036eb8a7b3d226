"""A partition's batches on disk, as they are, in append-only files named by their first offset.

A batch is with the operating system when `append` returns. At opening, files are read in order, every batch is checked
against its checksum, and everything from the first torn or damaged batch on is cut off.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from kclient_quota.broker.storage.journal import write_whole
from kclient_quota.errors import WireError
from kclient_quota.wire.batches import check_crc, parse_header

FILE_BYTES = 128 * 1024 * 1024
SUFFIX = ".log"


class LogFiles:
    """The files of one partition.

    Args:
        directory: holds nothing but this partition; created at the first append.
        file_bytes: size beyond which a new file is begun.
    """

    def __init__(self, directory: Path, file_bytes: int = FILE_BYTES) -> None:
        self._directory = directory
        self._file_bytes = file_bytes
        self._fd: int | None = None
        self._size = 0

    def append(self, batch: memoryview) -> None:
        """Write a stored batch behind the others.

        Raises:
            OSError: it could not be written; the file ends where it ended before.
        """
        if self._fd is None or self._size + len(batch) > self._file_bytes:
            self._begin_file(parse_header(batch).base_offset)
        assert self._fd is not None
        write_whole(self._fd, batch)
        self._size += len(batch)

    def restore(self, take: Callable[[memoryview], None]) -> int | None:
        """Hand every whole batch to `take`, oldest first.

        Returns:
            The offset at which the newest file begins, or None without files: the end of the log if nothing was taken.
        """
        paths = self._paths()
        for position, path in enumerate(paths):
            data = path.read_bytes()
            whole = 0
            for whole, batch in _whole_batches(data):  # noqa: B007 - where the last one ends is needed below
                take(batch)
            if whole < len(data):
                os.truncate(path, whole)
                for later in paths[position + 1 :]:
                    later.unlink()
                break
        remaining = self._paths()
        return int(remaining[-1].stem) if remaining else None

    def delete_before(self, offset: int) -> None:
        """Remove the files that hold nothing from `offset` on; the newest stays."""
        paths = self._paths()
        for path, following in pairwise(paths):
            if int(following.stem) > offset:
                break
            path.unlink()

    def sync(self) -> None:
        """Wait until everything is on the disk itself."""
        if self._fd is not None:
            os.fsync(self._fd)

    def close(self) -> None:
        """Sync and let go of the file."""
        if self._fd is not None:
            self.sync()
            os.close(self._fd)
            self._fd = None

    def remove(self) -> None:
        """Delete the partition from the disk."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        for path in self._paths():
            path.unlink()
        with suppress(FileNotFoundError):
            self._directory.rmdir()

    def _begin_file(self, base_offset: int) -> None:
        paths = self._paths()
        path = self._directory / f"{base_offset:020d}{SUFFIX}"
        if self._fd is not None:
            os.close(self._fd)
        elif paths and paths[-1].stat().st_size < self._file_bytes:
            path = paths[-1]
        self._directory.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._size = os.fstat(self._fd).st_size

    def _paths(self) -> list[Path]:
        return sorted(self._directory.glob(f"*{SUFFIX}"))


def _whole_batches(data: bytes) -> Iterator[tuple[int, memoryview]]:
    """Each sound batch and where it ends, up to the first that is not."""
    view, at = memoryview(data), 0
    while at < len(data):
        try:
            header = parse_header(view, at)
        except WireError:
            return
        if not check_crc(view, at, header):
            return
        yield at + header.size, view[at : at + header.size]
        at += header.size
