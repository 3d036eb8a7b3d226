"""A key/value journal in one file of JSON lines: small, append-only, rewritten when it has grown stale.

A value is with the operating system when `set` returns: it survives the end of the process, `kill -9` included, but a
power cut only after the system's own write-back or a `sync`. Every line carries a checksum, and what must not be lost
is written twice: a damaged line is passed over and named in the log. A last line that a crash has torn is cut off,
and that is logged.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crc32c
from kclient_telemetry import logger_of

from kclient_quota.broker.storage.disk import AppendedFile, Disk, Later, at_once
from kclient_quota.broker.storage.group_commit import GroupCommit
from kclient_quota.errors import ConfigError

Key = tuple[str | int | None, ...]
MIN_STALE_LINES = 1000
MIN_STALE_BYTES = 1 << 20
_STALE_SIZES = 4
_AT_ONCE = 100
"""How many values are written anew with every change."""
_DAMAGED: Key = ("damaged",)
"""That lines were lost is remembered when the journal is rewritten without them."""
_FORGOTTEN: Key = ("forgotten",)
"""A line whose value is the keys that have no value from here on, all at once."""
_LOG = logger_of(__name__)


@dataclass(slots=True)
class _Rewriting:
    """The new file, what is to be copied into it, and how far that has come."""

    file: AppendedFile
    keys: list[Key]
    copied: int = 0
    is_asked: bool = False
    is_synced: bool = False
    error: OSError | None = None

    def next(self) -> list[Key]:
        """What is copied next."""
        part = self.keys[self.copied : self.copied + _AT_ONCE]
        self.copied += len(part)
        return part

    @property
    def is_copied(self) -> bool:
        """Whether everything is."""
        return self.copied == len(self.keys)

    def begin_sync(self) -> bool:
        """Whether it goes with what is synced next: most of it has been."""
        if not self.is_synced or self.error is not None:
            return False
        try:
            self.file.begin_sync()
        except OSError as error:
            self.error = error
        return self.error is None

    def sync(self) -> None:
        """Wait until most of it is on the disk itself, so that the rest takes no time."""
        try:
            self.file.sync()
            self.is_synced = True
        except OSError as error:
            self.error = error


class Journal:
    """Last value by key. JSON values only; None deletes.

    Args:
        path: the file; created when absent.
        disk: where it is.
        commit: sees to it that the disk itself has every change, if somebody waits for that.
        stale_bytes: it is not rewritten before it is larger by so much than four times what counts of it: to rewrite
            what is large takes its time. That is done by and by, a hundred values with each change.
        later: what is to be done while others go on; at once unless this says when.

    Attributes:
        damaged_lines: how many lines could not be read.

    Raises:
        ConfigError: the file holds something else.
    """

    def __init__(
        self,
        path: Path,
        disk: Disk | None = None,
        *,
        commit: GroupCommit | None = None,
        stale_bytes: int = MIN_STALE_BYTES,
        later: Later | None = None,
    ) -> None:
        self._path = path
        self._disk = disk or Disk()
        self._commit: GroupCommit | None = None
        # what a round syncs: the file, the one that is to take its place, whether there is a new name
        self._syncing: tuple[AppendedFile, _Rewriting | None, bool] | None = None
        self._has_new_name = True
        self._later: Later = at_once
        self._rewriting: _Rewriting | None = None
        self._values: dict[Key, Any] = {}
        self._lines = 0
        self._stale_bytes = stale_bytes
        self._sizes: dict[Key, int] = {}
        self._sound_bytes = 0
        self.damaged_lines = 0
        self._file = AppendedFile(path, self._disk)
        try:
            self._load()
        except (ConfigError, OSError):
            self._file.discard()
            raise
        self._later = later or at_once
        self._commit = commit
        self._file.is_kept = commit is not None

    def get(self, *key: str | int | None) -> Any:
        """The value of a key, or None."""
        return self._values.get(key)

    def items(self, *prefix: str | int | None) -> Iterator[tuple[Key, Any]]:
        """Keys that begin with `prefix`, and their values, oldest key first."""
        for key, value in list(self._values.items()):
            if key[: len(prefix)] == prefix:
                yield key, value

    def set(self, *key: str | int | None, value: Any, twice: bool = True) -> None:
        """Keep a value, unless it is the one there already; None forgets the key.

        Args:
            key: any parts.
            value: anything that JSON can tell.
            twice: write it twice, so that one damaged line does not lose it.

        Raises:
            OSError: it could not be written (a full disk); the journal is as it was before.
        """
        if self._values.get(key) == value:
            return
        lines = _lines(key, value, twice=twice)
        self._append(lines)
        self._take(key, value, len(lines) if twice else 2 * len(lines))
        self._make_smaller(lines)

    def forget_at_once(self, keys: Iterable[Key]) -> None:
        """Forget all these keys or, wherever the process or the disk ends, none.

        Raises:
            OSError: it could not be written (a full disk); the journal is as it was before.
        """
        known = [key for key in keys if key in self._values]
        if not known:
            return
        lines = _lines(_FORGOTTEN, [list(key) for key in known], twice=False)
        self._append(lines)
        self._take(_FORGOTTEN, known, 0)
        self._make_smaller(lines)

    def _append(self, lines: bytes) -> None:
        self._file.append(lines)
        if self._commit is not None:
            self._commit.wrote(self)

    def _make_smaller(self, lines: bytes) -> None:
        """Write the file anew where that is due, or some of it."""
        if self._rewriting is not None:
            self._rewrite_some(self._rewriting, lines)
        elif self._lines > 2 * len(self._values) + MIN_STALE_LINES and self._file.size > self._stale_size:
            self._rewrite()

    def begin_sync(self) -> None:
        """What is there now is to be on the disk itself after the next `sync`.

        Raises:
            OSError: what the last one has lost cannot be written.
        """
        self._syncing = None
        self._file.begin_sync()
        rewriting = self._rewriting
        if rewriting is not None and not rewriting.begin_sync():
            rewriting = None
        self._syncing = self._file, rewriting, self._has_new_name
        self._has_new_name = False

    def sync_now(self) -> None:
        """Wait for the disk, however rarely that is done otherwise.

        Raises:
            OSError: it has refused.
        """
        self.begin_sync()
        self.sync()
        self.end_sync(None)

    def sync(self) -> None:
        """Wait for the disk; in any thread.

        Raises:
            OSError: it has refused.
        """
        assert self._syncing is not None
        file, rewriting, has_new_name = self._syncing
        file.sync()
        if has_new_name:
            self._disk.sync_directory(self._path.parent)
        if rewriting is not None:
            rewriting.sync()

    def end_sync(self, error: OSError | None) -> None:
        """What becomes of it; what is being written anew takes its place once the disk has all of that as well."""
        if self._syncing is None:
            self._file.end_sync(error)
            return
        (file, rewriting, has_new_name), self._syncing = self._syncing, None
        file.end_sync(error)
        self._has_new_name |= has_new_name and error is not None
        if rewriting is None or rewriting is not self._rewriting:
            return
        rewriting.file.end_sync(error or rewriting.error)
        if error is None and rewriting.error is None:
            try:
                self._take_place(rewriting.file)
            except OSError as refused:
                rewriting.error = refused

    def _take(self, key: Key, value: Any, size: int) -> None:
        """A line has been written or read; rewritten it would be of this size."""
        self._lines += 1
        if key == _FORGOTTEN:
            self.forget(tuple(one) for one in value)
            return
        self._sound_bytes -= self._sizes.pop(key, 0)
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value
            self._sizes[key] = size
            self._sound_bytes += size

    @property
    def _stale_size(self) -> int:
        return _STALE_SIZES * self._sound_bytes + self._stale_bytes

    def forget(self, keys: Iterable[Key]) -> None:
        """Leave out what nothing refers to any more when this is rewritten; until then it may come back."""
        for key in keys:
            self._values.pop(key, None)
            self._sound_bytes -= self._sizes.pop(key, 0)

    @property
    def file(self) -> AppendedFile:
        """What is written to."""
        return self._file

    def close(self) -> None:
        """Sync and let go of the file."""
        if self._rewriting is not None:
            self._rewriting.file.discard()
        self._file.close()

    def _load(self) -> None:
        data = self._whole(bytes(self._disk.read(self._path)))
        lines = [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line]
        is_checked = any(b'"c":' in line for _, line in lines[:2])
        for number, line in lines:
            entry = _entry(line, is_checked=is_checked)
            if entry is None:
                self.damaged_lines += 1
                _LOG.error("%s, line %s is damaged: %.60r", self._path, number, line)
            else:
                self._take(*entry, 2 * len(line))
        if lines and self.damaged_lines == len(lines):
            raise ConfigError(f"{self._path}, line {lines[0][0]}: not a line of a broker's journal")
        self.damaged_lines = max(self.damaged_lines, self._values.get(_DAMAGED, 0))
        if lines and not is_checked:
            self._rewrite()
            while self._rewriting is not None:
                self._rewrite_some(self._rewriting, b"")

    def _whole(self, data: bytes) -> bytes:
        """The file without a last line that was never finished; one that lacks nothing but its end gets that."""
        whole = data.rfind(b"\n") + 1
        rest = data[whole:]
        if not rest:
            return data
        if _entry(rest, is_checked=True) is not None:
            self._file.append(b"\n")
            return data + b"\n"
        _LOG.warning("%s: an unfinished last line of %s bytes is cut off: %.60r", self._path, len(rest), rest)
        self._file.cut(whole)
        return data[:whole]

    def _rewrite(self) -> None:
        """Begin to write what still counts into a new file; every further change writes some of it, and itself."""
        fresh = self._path.with_suffix(".new")
        if self.damaged_lines:
            self._values[_DAMAGED] = self.damaged_lines
        try:
            self._disk.unlink(fresh)
            file = AppendedFile(fresh, self._disk)
        except OSError as error:
            self._not_smaller(error)
            return
        self._rewriting = _Rewriting(file, list(self._values))
        self._rewrite_some(self._rewriting, b"")

    def _rewrite_some(self, rewriting: "_Rewriting", lines: bytes) -> None:
        """Write what has changed and the next of what has not; where that fails, the old file goes on."""
        try:
            if rewriting.error is not None:
                raise rewriting.error
            keys = [key for key in rewriting.next() if key in self._values]
            rewriting.file.append(lines + b"".join(_lines(key, self._values[key], twice=True) for key in keys))
            if rewriting.is_copied and not rewriting.is_asked:
                rewriting.is_asked = True
                rewriting.file.is_kept = self._commit is not None
                self._later(rewriting.sync)
            if rewriting.is_synced and self._commit is None:
                # what has been added meanwhile; nobody waits for it
                self._later(rewriting.file.sync)
                self._take_place(rewriting.file)
        except OSError as error:
            self._give_up(rewriting)
            self._not_smaller(error)

    def _take_place(self, file: AppendedFile) -> None:
        """Let the new file take the old one's place: the disk has of it what it has of that."""
        self._disk.replace(self._path.with_suffix(".new"), self._path)
        former, self._file, self._rewriting = self._file, file, None
        self._lines = len(self._values)
        # what may be waiting for it comes first
        self._later(former.discard)
        self._has_new_name = True
        if self._commit is not None:
            self._commit.wrote(self)

    def _give_up(self, rewriting: "_Rewriting") -> None:
        self._rewriting = None
        self._later(rewriting.file.discard)
        with contextlib.suppress(OSError):  # it is removed before the next attempt at the latest
            self._disk.unlink(self._path.with_suffix(".new"))

    def _not_smaller(self, error: OSError) -> None:
        _LOG.warning("%s: could not be made smaller (%s)", self._path, error)
        self._lines = len(self._values)


def _lines(key: Key, value: Any, *, twice: bool) -> bytes:
    body = json.dumps({"k": key, "v": value}, separators=(",", ":"))
    line = f'{body[:-1]},"c":"{crc32c.crc32c(body.encode()):08x}"}}\n'.encode()
    # the empty line keeps the copies apart even when a line's end is damaged
    return b"\n" + line + b"\n" + line if twice else line


def _entry(line: bytes, *, is_checked: bool) -> tuple[Key, Any] | None:
    """Key and value of a sound line; the first version wrote lines without a checksum."""
    try:
        entry = json.loads(line)
        key, value = tuple(entry["k"]), entry["v"]
        return (key, value) if not is_checked or line + b"\n" == _lines(key, value, twice=False) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
