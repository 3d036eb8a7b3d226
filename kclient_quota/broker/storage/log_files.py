"""A partition's batches on disk in append-only files named by their first offset, one for each segment in memory.

A batch is with the operating system when `append` returns. At opening, every batch is checked; what is damaged is named
in the log and kept where it is, everything sound around it is read, and an unfinished write at the end is cut off.
Where somebody waits for the disk, a file has another name until the disk has all of the file before it: what follows a
hole that a power cut has left was promised to nobody, what follows any other was.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path

from kclient_telemetry import logger_of

from kclient_quota.broker.log.compacted import WAITING
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.storage.disk import AppendedFile, Disk, Later, at_once, missing_above
from kclient_quota.broker.storage.framing import Damaged, Sound, Stale, Tail, frame_of, scan
from kclient_quota.wire.batches import parse_header

SUFFIX = ".log"
_BEGUN = ".begun"
"""Of a file that was begun before the disk had all of the one before it."""
_REPLACEMENT = "compacted"
_SYNCED_AT_ONCE = 1 << 20
"""Bytes of a compacted file: what waits for the disk behind them waits no longer than for these."""
_LOG = logger_of(__name__)


class LogFiles:
    """The files of one partition.

    Args:
        directory: holds nothing but this partition; created at the first append.
        disk: where it is.
        syncs: whether `begin_sync`, `sync` and `end_sync` are called after appends, as somebody waits for the disk.
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
        self._is_gone = False
        # what a round is to sync, and what one is syncing: files, and directories with new names in them
        self._written: dict[AppendedFile, None] = {}
        self._names: dict[Path, None] = {}
        self._syncing: list[AppendedFile] = []
        self._syncing_names: list[Path] = []
        # files with the other name, each with the one before it, which the disk does not have yet
        self._begun: dict[int, tuple[AppendedFile, AppendedFile] | None] = {}
        if directory.exists():
            self._disk.unlink(directory / _REPLACEMENT)
            named, begun = ({int(path.stem) for path in directory.glob(f"*{suffix}")} for suffix in (SUFFIX, _BEGUN))
            self._begun = dict.fromkeys(begun - named)
            self._bases = sorted(named | begun)

    def append(self, batch: memoryview, *, begins_segment: bool = False) -> None:
        """Write a stored batch behind the others; in a new file if it begins a segment.

        Raises:
            OSError: it could not be written; the file ends where it ended before.
        """
        if self._file is None or begins_segment:
            self._open(parse_header(batch).base_offset, is_new=begins_segment or not self._bases)
        file = self._file
        assert file is not None
        file.append(frame_of(batch), batch)
        if self._syncs:
            self._written[file] = None

    def begin_sync(self) -> None:
        """What is there now is to be on the disk itself after the next `sync`.

        Raises:
            OSError: what the last one has lost cannot be written.
        """
        self._syncing, self._written = list(self._written), {}
        self._syncing_names, self._names = list(self._names), {}
        for file in self._syncing:
            file.begin_sync()

    def sync(self) -> None:
        """Wait for the disk; in any thread.

        Raises:
            OSError: it has refused.
        """
        for file in self._syncing:
            file.sync()
        for directory in self._syncing_names:
            self._disk.sync_directory(directory)

    def end_sync(self, error: OSError | None) -> None:
        """What becomes of it: what the disk has refused is for the next time, full files are let go of."""
        for file in self._syncing:
            file.end_sync(error)
            if error is not None and not self._is_gone:
                self._written[file] = None
            elif file is not self._file and file not in self._written:
                self._later(file.discard)
        if error is not None:
            self._names.update(dict.fromkeys(self._syncing_names))
        self._syncing, self._syncing_names = [], []
        if not self._is_gone:
            self._name_begun()

    def _name_begun(self) -> None:
        """Give the files their names whose former files the disk has."""
        for base, files in list(self._begun.items()):
            if files is not None and files[0] in self._written:
                continue
            begun = self._path(base)
            try:
                self._disk.replace(begun, begun.with_suffix(SUFFIX))
            except OSError as error:
                _LOG.warning("%s: could not be given its name (%s); the next sync tries again", begun, error)
                continue
            del self._begun[base]
            if files is not None:
                files[1].path = self._path(base)
            if self._syncs:
                self._names[self._directory] = None

    def restore(self, log: PartitionLog, compacted: int = 0) -> None:
        """Fill an empty log with what is here; before the offset `compacted` nothing that is missing is missed."""
        for base in self._bases:
            path = self._path(base)
            if base > log.end_offset:
                if base in self._begun and base > compacted and log.end_offset > log.start_offset:
                    self._forget_from(base)
                    break
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
        self._name_begun()
        if compacted and self._bases:
            log.start_offset = self._bases[0]

    def _forget_from(self, base: int) -> None:
        """The disk had not got all that was written before this: nothing from here on was acknowledged."""
        _LOG.warning("%s: what was written last, from offset %s on, is cut off", self._directory, base)
        for later in [one for one in self._bases if one >= base]:
            self._remove(later)

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
            self._remove(base)

    def _remove(self, base: int) -> None:
        self._disk.unlink(self._path(base))
        self._bases.remove(base)
        self._begun.pop(base, None)

    def replace(
        self,
        batches: Iterator[memoryview],
        end_offset: int,
        is_current: Callable[[], bool],
        note: Callable[[int], Iterator[int]],
    ) -> Iterator[int]:
        """Put one file of these batches in the place of the files that lie wholly before `end_offset`.

        Args:
            batches: in order, up to `end_offset` at least.
            end_offset: behind what was compacted.
            is_current: whether that is so still.
            note: keeps up to where offsets may be missing from now on, before they are.

        Yields:
            How many bytes were written, after every batch; `WAITING` as long as the disk is waited for.

        Raises:
            OSError: it could not be written; everything is as it was, or the old files lie behind the new one.
        """
        old = [base for base, following in pairwise(self._bases) if following <= end_offset]
        if not old or not self._still(old, is_current):
            return
        end = self._bases[len(old)]
        path = self._directory / _REPLACEMENT
        try:
            file, unsynced = AppendedFile(path, self._disk), 0
            try:
                for batch in batches:
                    if not self._still(old, is_current) or parse_header(batch).base_offset >= end:
                        break
                    file.append(frame_of(batch), batch)
                    unsynced += len(batch)
                    if unsynced >= _SYNCED_AT_ONCE:
                        yield from self._waiting(file.sync)
                        unsynced = 0
                    yield len(batch)
                yield from self._waiting(file.sync)
            finally:
                self._later(file.discard)
            if self._still(old, is_current):
                yield from note(end)
            if self._still(old, is_current):
                self._disk.replace(path, self._path(old[0]))
                if self._syncs:
                    yield from self._waiting(partial(self._disk.sync_directory, self._directory))
                for base in old[1:] if self._still(old, is_current) else ():
                    self._remove(base)
        finally:
            self._disk.unlink(path)

    def _still(self, old: list[int], is_current: Callable[[], bool]) -> bool:
        return not self._is_gone and is_current() and self._bases[: len(old)] == old

    def _waiting(self, work: Callable[[], None]) -> Iterator[int]:
        """Have the disk waited for while others go on."""
        errors: list[OSError | None] = []

        def do() -> None:
            try:
                work()
                errors.append(None)
            except OSError as error:
                errors.append(error)

        self._later(do)
        while not errors:
            yield WAITING
        if errors[0] is not None:
            raise errors[0]

    @property
    def dirty_file(self) -> AppendedFile | None:
        """What is written to, if there is something in it that has not been synced."""
        return self._file if self._file is not None and self._file.is_dirty else None

    def let_go(self) -> list[AppendedFile]:
        """Give up what is written to, for another to close; nothing is written here any more."""
        self._is_gone = True
        files = dict.fromkeys([*self._written, *([] if self._file is None else [self._file])])
        self._file, self._written, self._names = None, {}, {}
        return [file for file in files if file not in self._syncing]

    def close(self) -> None:
        """Sync and let go of the files."""
        self._written = {**dict.fromkeys(self._syncing), **self._written}
        self._syncing = []
        with ExitStack() as rest:
            for file in self.let_go():
                rest.callback(file.close)
        self._name_begun()

    def _open(self, base_offset: int, *, is_new: bool) -> None:
        former, self._file = self._file, None
        is_ahead = former is not None and (former in self._written or former in self._syncing)
        if former is not None and not is_ahead:
            # many may wait for a slow disk: they wait by name, as a process has no descriptors for all of them
            former.discard()
            self._later(former.sync_by_name)
        base = base_offset if is_new else self._bases[-1]
        if self._syncs:
            self._names.update(dict.fromkeys([self._directory, *missing_above(self._directory)]))
        path = self._path(base)
        self._file = AppendedFile(path.with_suffix(_BEGUN) if is_ahead else path, self._disk)
        self._file.is_kept = self._syncs
        if former is not None and is_ahead:
            self._begun[base] = former, self._file
        if not self._bases or self._bases[-1] < base:
            self._bases.append(base)

    def _path(self, base_offset: int) -> Path:
        return self._directory / f"{base_offset:020d}{_BEGUN if base_offset in self._begun else SUFFIX}"


def _offsets(found: Damaged) -> tuple[int, int]:
    return found.first_offset, found.last_offset
