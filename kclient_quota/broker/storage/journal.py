"""A key/value journal in one file of JSON lines: small, append-only, rewritten when it has grown stale.

A value is with the operating system when `set` returns: it survives the end of the process, `kill -9` included, but a
power cut only after the system's own write-back or a `sync`. A last line that a crash has torn is cut off at opening.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from kclient_quota.errors import ConfigError

Key = tuple[str | int | None, ...]
MIN_STALE_LINES = 1000


class Journal:
    """Last value by key. JSON values only; None deletes.

    Args:
        path: the file; created when absent.

    Raises:
        ConfigError: the file holds something else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[Key, Any] = {}
        self._lines = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._load()
        except ConfigError:
            os.close(self._fd)
            raise

    def get(self, *key: str | int | None) -> Any:
        """The value of a key, or None."""
        return self._values.get(key)

    def items(self, *prefix: str | int | None) -> Iterator[tuple[Key, Any]]:
        """Keys that begin with `prefix`, and their values, oldest key first."""
        for key, value in list(self._values.items()):
            if key[: len(prefix)] == prefix:
                yield key, value

    def set(self, *key: str | int | None, value: Any) -> None:
        """Keep a value, unless it is the one there already; None forgets the key.

        Raises:
            OSError: it could not be written (a full disk); the journal is as it was before.
        """
        if self._values.get(key) == value:
            return
        write_whole(self._fd, _line(key, value))
        self._lines += 1
        if value is None:
            del self._values[key]
        else:
            self._values[key] = value
        if self._lines > 2 * len(self._values) + MIN_STALE_LINES:
            self._rewrite()

    def sync(self) -> None:
        """Wait until everything is on the disk itself."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Sync and let go of the file."""
        self.sync()
        os.close(self._fd)

    def _load(self) -> None:
        data = self._path.read_bytes()
        whole = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                entry = json.loads(line)
                key, value = tuple(entry["k"]), entry["v"]
            except (ValueError, TypeError, KeyError) as error:
                raise ConfigError(f"{self._path}, line {number}: not a line of a broker's journal ({error})") from None
            self._values.pop(key, None) if value is None else self._values.update({key: value})
            self._lines += 1
        os.ftruncate(self._fd, whole)

    def _rewrite(self) -> None:
        fresh = self._path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.writelines(_line(key, value) for key, value in self._values.items())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        os.close(self._fd)
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND)
        self._lines = len(self._values)


def _line(key: Key, value: Any) -> bytes:
    return json.dumps({"k": key, "v": value}, separators=(",", ":")).encode() + b"\n"


def write_whole(fd: int, *parts: bytes | memoryview) -> None:
    """Append all of it or nothing.

    Raises:
        OSError: as the system said; what had been written of it is cut off again.
    """
    size = os.fstat(fd).st_size
    wanted = sum(len(part) for part in parts)
    try:
        written = os.writev(fd, parts)
        rest = b"".join(parts)[written:] if written < wanted else b""
        while rest:
            rest = rest[os.write(fd, rest) :]
    except OSError:
        with suppress(OSError):  # the first error is the one to report
            os.ftruncate(fd, size)
        raise
