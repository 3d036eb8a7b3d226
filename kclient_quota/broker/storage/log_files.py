"""A partition's batches on disk in append-only files named by their first offset, one for each segment in memory.

A batch is with the operating system when `append` returns. At opening, every batch is checked; what is damaged is named
in the log and kept where it is, everything sound around it is read, and an unfinished write at the end is cut off.
"""

import logging
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.storage.disk import AppendedFile, Disk, Later, at_once
from kclient_quota.broker.storage.framing import Damaged, Sound, Stale, Tail, frame_of, scan
from kclient_quota.wire.batches import parse_header

SUFFIX = ".log"
_REPLACEMENT = "compacted"
_SYNCED_AT_ONCE = 1 << 20
"""Bytes of a compacted file: a disk takes some milliseconds for them, while others wait."""
_LOG = logging.getLogger(__name__)


class LogFiles:
    """The files of one partition.

    Args:
        directory: holds nothing but this partition; created at the first append.
        disk: where it is.
        syncs: whether every append waits for the disk itself.
        later: what is to be done while others go on; at once unless this says when.
    """

    def __init__(
        self, directory: Path, disk: Disk | None = None, *, syncs: bool = False, later: Later | None = None
    ) -> None:
        self._directory = directory
        self._disk = disk or Disk()
        self._syncs = syncs
        self._later = later or at_once
        self._file: AppendedFile | None = None
        self._bases: list[int] = []
        if directory.exists():
            self._disk.unlink(directory / _REPLACEMENT)
            self._bases = sorted(int(path.stem) for path in directory.glob(f"*{SUFFIX}"))

    def append(self, batch: memoryview, *, begins_segment: bool = False) -> None:
        """Write a stored batch behind the others; in a new file if it begins a segment.

        Raises:
            OSError: it could not be written, or not be synced; the file ends where it ended before.
        """
        if self._file is None or begins_segment:
            self._open(parse_header(batch).base_offset, is_new=begins_segment or not self._bases)
        file = self._file
        assert file is not None
        before = file.size
        file.append(frame_of(batch), batch)
        if self._syncs:
            try:
                file.sync()
            except OSError:
                file.cut(before)
                raise

    def restore(self, log: PartitionLog, compacted: int = 0) -> None:
        """Fill an empty log with what is here; before the offset `compacted` nothing that is missing is missed."""
        for base in self._bases:
            path = self._path(base)
            if base > log.end_offset:
                self._skip_to(base, log, compacted)
            data = self._disk.read(path)
            for found in scan(data, log.end_offset):
                if isinstance(found, Sound):
                    log.restore(memoryview(data)[found.start : found.end])
                elif isinstance(found, Damaged):
                    _LOG.error("%s: the batch of offsets %s to %s is damaged", path, *_offsets(found))
                    log.restore_damage(found.first_offset, found.last_offset)
                elif isinstance(found, Stale):
                    _LOG.error("%s: a batch at offset %s lies behind and is passed over", path, found.first_offset)
                else:
                    self._cut(path, found, len(data), log.end_offset)
        if compacted and self._bases:
            log.start_offset = self._bases[0]

    def _skip_to(self, base: int, log: PartitionLog, compacted: int) -> None:
        if base <= compacted:
            log.end_offset = base
        elif log.end_offset > log.start_offset or log.damaged:
            _LOG.error("%s: offsets %s to %s are not on the disk", self._directory, log.end_offset, base - 1)
            log.restore_damage(log.end_offset, base - 1)
        else:
            log.skip_to(base)

    def _cut(self, path: Path, tail: Tail, size: int, next_offset: int) -> None:
        lost = size - tail.start
        _LOG.warning("%s: an unfinished write of %s bytes at offset %s is cut off", path, lost, next_offset)
        file = AppendedFile(path, self._disk)
        file.cut(tail.start)
        file.close()

    def delete_before(self, offset: int) -> None:
        """Remove the files that hold nothing from `offset` on; the newest stays."""
        for base, following in list(pairwise(self._bases)):
            if following > offset:
                break
            self._disk.unlink(self._path(base))
            self._bases.remove(base)

    def replace(
        self,
        batches: Iterator[memoryview],
        end_offset: int,
        is_current: Callable[[], bool],
        note: Callable[[int], None],
    ) -> Iterator[int]:
        """Put one file of these batches in the place of the files that lie wholly before `end_offset`.

        Args:
            batches: in order, up to `end_offset` at least.
            end_offset: behind what was compacted.
            is_current: whether that is so still.
            note: keeps up to where offsets may be missing from now on, before they are.

        Yields:
            How many bytes were written, after every batch.

        Raises:
            OSError: it could not be written; everything is as it was, or the old files lie behind the new one.
        """
        old = [base for base, following in pairwise(self._bases) if following <= end_offset]
        if not old:
            return
        end = self._bases[len(old)]
        path = self._directory / _REPLACEMENT
        try:
            file, unsynced = AppendedFile(path, self._disk), 0
            try:
                for batch in batches:
                    if not is_current() or parse_header(batch).base_offset >= end:
                        break
                    file.append(frame_of(batch), batch)
                    unsynced += len(batch)
                    if unsynced >= _SYNCED_AT_ONCE:
                        file.sync()
                        unsynced = 0
                    yield len(batch)
            finally:
                file.close()
            if is_current() and self._bases[: len(old)] == old:
                note(end)
                self._disk.replace(path, self._path(old[0]))
                if self._syncs:
                    self._disk.sync_directory(self._directory)
                for base in old[1:]:
                    self._disk.unlink(self._path(base))
                    self._bases.remove(base)
        finally:
            self._disk.unlink(path)

    @property
    def dirty_file(self) -> AppendedFile | None:
        """What is written to, if there is something in it that has not been synced."""
        return self._file if self._file is not None and self._file.is_dirty else None

    def let_go(self) -> AppendedFile | None:
        """Give up what is written to, for another to close."""
        file, self._file = self._file, None
        return file

    def close(self) -> None:
        """Sync and let go of the file."""
        file = self.let_go()
        if file is not None:
            file.close()

    def _open(self, base_offset: int, *, is_new: bool) -> None:
        former = self.let_go()
        if former is not None:
            self._later(former.close)
        base = base_offset if is_new else self._bases[-1]
        self._file = AppendedFile(self._path(base), self._disk)
        if not self._bases or self._bases[-1] < base:
            self._bases.append(base)
        if self._syncs:
            self._disk.sync_directory(self._directory)

    def _path(self, base_offset: int) -> Path:
        return self._directory / f"{base_offset:020d}{SUFFIX}"


def _offsets(found: Damaged) -> tuple[int, int]:
    return found.first_offset, found.last_offset
