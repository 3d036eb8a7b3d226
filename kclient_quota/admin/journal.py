"""The journal of `apply`: what it is about to do, written down before, then what it has done, so as to undo it.

A file of JSON lines in plain ASCII, only ever appended to, each line on the disk before what it announces is done:

- `{"run": 1, "cluster": ..., "at": ..., "changes": [...], "sources": [...]}`: a run begins, nothing is done yet.
- `{"run": 1, "attempted": 2000}`: of so many entities, in this order, it is from now on uncertain whether they are
  altered; those behind them are untouched.
- `{"run": 1, "ended": true}`: all of it is done. A run that undoes another one counts only from here.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kclient_quota.admin.sources import SourceKey, key_of, key_record, records_of
from kclient_quota.errors import ConfigError, misread
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from kclient_quota.admin.unit_quotas import QuotaState, Target

Slot = tuple[ClientQuotaEntity, str]
"""An entity and Kafka's key."""
Sides = tuple[float | None, float | None]
"""Before and after; None where nothing is set."""


@dataclass(slots=True)
class Applied:
    """One run of `apply`, as the journal has it.

    Attributes:
        number: counts the runs of one journal.
        cluster: the cluster's id.
        at: when it began, as ISO 8601.
        changes: what brokers had and were to have.
        sources: what was kept beside them, where that was to differ.
        attempted: how many entities, in the order of `changes`, may have been altered.
        is_ended: whether all of it was done.
        is_undone: whether a later run has taken all of it back.
        undoes: the run that this one takes back, or None.
        file: the name of the file of quotas; None if there was none, or an earlier version did not say.
    """

    number: int
    cluster: str
    at: str
    changes: dict[Slot, Sides]
    sources: dict[SourceKey, Sides]
    attempted: int = 0
    is_ended: bool = False
    is_undone: bool = False
    undoes: int | None = None
    file: str | None = None

    def attempted_entities(self) -> set[ClientQuotaEntity]:
        """Whose quotas may have been altered."""
        return set(list(dict.fromkeys(entity for entity, _ in self.changes))[: self.attempted])


class Journal:
    """The journal of one cluster, or of several.

    Args:
        path: created when there is first something to write.
        say: told in one sentence what was found amiss and mended.
    """

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path = path
        self._say = say

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @contextmanager
    def opened(self, *, create: bool = True) -> Iterator[OpenJournal]:
        """Keep everybody else from writing to it meanwhile; a process that dies lets go.

        A last line that was cut short when a machine died is moved to a file beside it: what it was to announce had
        not begun.

        Args:
            create: whether to make a new file where there is none.

        Raises:
            ConfigError: another process writes to it, or the file cannot be read or written, or is no journal.
        """
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
        try:
            descriptor = os.open(self._path, flags, 0o644)
        except FileNotFoundError:
            if not create:
                raise ConfigError(f"journal {self._path}: it has nothing to undo: there is no such file") from None
            raise ConfigError(f"journal {self._path}: its folder is missing; name a file that can be written") from None
        except OSError as error:
            raise ConfigError(f"journal {self._path}: {error.strerror}; name a file that can be written") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # a device may have no end, and keeps nothing
                raise ConfigError(f"journal {self._path}: it is no regular file; name a file that can be written")
            _lock(descriptor, self._path)
            yield OpenJournal(self._path, descriptor, self._say)
        finally:
            os.close(descriptor)  # the lock goes with it


class OpenJournal:
    """A journal that this process alone writes to.

    Args:
        path: for messages.
        descriptor: the file, open for appending.
        say: told what was mended.

    Raises:
        ConfigError: the file cannot be read, or is no journal.
    """

    def __init__(self, path: Path, descriptor: int, say: Callable[[str], None]) -> None:
        self._path = path
        self._descriptor = descriptor
        data = self._read_all()
        self.runs, end = read_runs(data, path)
        if end < len(data):
            self._set_aside(data, end, say)

    def begin(
        self,
        state: QuotaState,
        target: Target,
        *,
        cluster: str,
        at: str,
        undoes: int | None = None,
        file: str | None = None,
    ) -> int:
        """Write down what is about to be done.

        Returns:
            the run's number.

        Raises:
            ConfigError: the file cannot be written; nothing has begun.
        """
        number = max((run.number for run in self.runs), default=0) + 1
        changes = {
            (entity, key): (state.written.get(entity, {}).get(key), value)
            for entity, ops in target.changes.items()
            for key, value in ops.items()
        }
        before, after = records_of(state.sources), records_of(target.sources)
        sources = {
            key: (before.get(key), after.get(key))
            for key in dict.fromkeys((*before, *after))
            if before.get(key) != after.get(key)
        }
        run = Applied(number, cluster, at, changes, sources, undoes=undoes, file=file)
        self._append(_record(run))
        self.runs.append(run)
        return number

    def attempt(self, number: int, entities: int) -> None:
        """Write down that so many entities, from the first on, are now being altered.

        Raises:
            ConfigError: the file cannot be written; no more must be altered.
        """
        self._append({"run": number, "attempted": entities})

    def end(self, number: int) -> None:
        """Write down that a run is done.

        Raises:
            ConfigError: the file cannot be written.
        """
        self._append({"run": number, "ended": True})

    def _append(self, record: Mapping[str, Any]) -> None:
        data = (json.dumps(record) + "\n").encode("ascii")
        length = os.fstat(self._descriptor).st_size
        try:
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
            os.fsync(self._descriptor)
        except OSError as error:
            os.ftruncate(self._descriptor, length)  # a full disk: leave no half of a line
            raise ConfigError(f"journal {self._path}: {error.strerror}; name a file that can be written") from error

    def _read_all(self) -> bytes:
        parts = []
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        while part := os.read(self._descriptor, 1 << 20):
            parts.append(part)
        return b"".join(parts)

    def _set_aside(self, data: bytes, end: int, say: Callable[[str], None]) -> None:
        torn = self._path.with_name(f"{self._path.name}.torn")
        try:
            with torn.open("ab") as file:
                file.write(data[end:] + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.ftruncate(self._descriptor, end)
            os.fsync(self._descriptor)
        except OSError as error:
            raise ConfigError(f"journal {self._path}: its last line is torn: {error.strerror}") from error
        say(
            f"journal {self._path}: its last line was cut short, as when a machine dies; it was moved to {torn}. "
            "What it was to announce had not begun"
        )


def _lock(descriptor: int, path: Path) -> None:
    """Lock an open file until it is closed or this process dies.

    Raises:
        ConfigError: somebody else has it, or the file system has no locks.
    """
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 - there is none elsewhere

        lock = partial(msvcrt.locking, descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl  # noqa: PLC0415 - there is none on Windows

        lock = partial(fcntl.flock, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        lock()
    except OSError as error:
        if error.errno in {errno.EAGAIN, errno.EACCES, errno.EDEADLK}:
            words = "another run is writing to it; wait until that has ended"
        else:  # a network's file system may have no locks
            words = f"it cannot be locked: {error.strerror}; name a file on another file system"
        raise ConfigError(f"journal {path}: {words}") from error


def read_runs(data: bytes, path: Path) -> tuple[list[Applied], int]:
    """All runs of a journal's bytes, oldest first, and where its last whole line ends.

    Raises:
        ConfigError: it is no journal; the message names the line.
    """
    runs: dict[int, Applied] = {}
    lines = data.split(b"\n")
    last = len(lines) - 1 if lines[-1] else len(lines) - 2
    end = 0
    for number, line in enumerate(lines[: last + 1]):
        try:
            if number == len(lines) - 1:
                raise ValueError("it has no end")  # noqa: TRY301 - whatever is wrong with the last line is one case
            _read(runs, json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
            if number == last and (number or not _is_foreign(line)):
                break
            words = f"{misread(error)}; name the one that `apply` has written"
            raise ConfigError(f"journal {path}:{number + 1}: this is no journal of quotas: {words}") from error
        end += len(line) + 1
    for run in runs.values():
        if run.is_ended and run.undoes is not None:
            runs[run.undoes].is_undone = True
    return list(runs.values()), end


_START = b'{"run": '


def is_begun(path: Path) -> bool:
    """Whether a file begins as a journal does; one that cannot be read is for whoever opens it."""
    try:
        with path.open("rb") as file:
            return _START.startswith(file.read(len(_START)))
    except OSError:
        return True


def _is_foreign(line: bytes) -> bool:
    """Whether a file's only line is no beginning of one of ours: then it is left as it is."""
    return not (_START.startswith(line[: len(_START)]) or not line.strip(b"\0"))


def _record(run: Applied) -> dict[str, Any]:
    record: dict[str, Any] = {
        "run": run.number,
        "cluster": run.cluster,
        "at": run.at,
        "changes": [
            {"entity": dict(entity.wire_entries()), "key": key, "before": before, "after": after}
            for (entity, key), (before, after) in run.changes.items()
        ],
        "sources": [
            {"key": key_record(key), "before": before, "after": after} for key, (before, after) in run.sources.items()
        ],
    }
    more = {"undoes": run.undoes, "file": run.file}
    return record | {key: value for key, value in more.items() if value is not None}


def _read(runs: dict[int, Applied], line: Mapping[str, Any]) -> None:
    number = line["run"]
    if "attempted" in line:
        runs[number].attempted = int(line["attempted"])
    elif "ended" in line:
        runs[number].is_ended = True
    elif number in runs:
        raise ValueError(f"run {number} begins twice")
    else:
        runs[number] = Applied(
            int(number),
            line["cluster"],
            line["at"],
            {(_entity(each["entity"]), each["key"]): _sides(each) for each in line["changes"]},
            {key_of(each["key"]): _sides(each) for each in line["sources"]},
            undoes=runs[line["undoes"]].number if "undoes" in line else None,
            file=line.get("file"),
        )


def _sides(change: Mapping[str, Any]) -> Sides:
    before, after = change["before"], change["after"]
    return None if before is None else float(before), None if after is None else float(after)


def _entity(names: Mapping[str, str | None]) -> ClientQuotaEntity:
    return ClientQuotaEntity({kind: DEFAULT if name is None else name for kind, name in names.items()})
