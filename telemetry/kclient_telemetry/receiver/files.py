"""Files of pushes for jobs that read a directory: JSON lines, and Parquet where pyarrow is installed.

A file under way has a name that begins with `_`, which Spark and its kin pass over; it gets its real name when it is
complete. Rows are those of `kclient_telemetry.receiver.rows`.
"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kclient_telemetry.errors import MissingExtraError
from kclient_telemetry.receiver.fanout import ReceivedPush
from kclient_telemetry.receiver.rows import COLUMNS, PointRow, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

ROLL_BYTES = 64 * 1024 * 1024
ROLL_ROWS = 100_000
ROLL_COLLECTED_BYTES = 16 * 1024 * 1024
ROLL_AFTER_MS = 60_000


class _Names:
    """Names of files that never meet those of another writer in the same directory."""

    def __init__(self, directory: Path, suffix: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._suffix = suffix
        self._writer = uuid4().hex[:12]
        self._files = 0

    def next(self) -> Path:
        self._files += 1
        return self._directory / f"telemetry-{self._writer}-{self._files:06}.{self._suffix}"


class _Age:
    """For how long a file has been under way, by what ticks say.

    Pushes are no clock: those read out of a topic may be of last week, when each would have a file of its own, or of a
    machine whose clock is ahead, when the file would never be complete. Nor may a clock that is put back keep it open.
    """

    def __init__(self, roll_after_ms: int) -> None:
        self._roll_after_ms = roll_after_ms
        self._told_unix_ms: int | None = None
        self._began_unix_ms = 0

    def begin(self, received_unix_ms: int) -> None:
        """A push begins a file; when it came counts only where no tick has told the time yet."""
        self._began_unix_ms = received_unix_ms if self._told_unix_ms is None else self._told_unix_ms

    def is_over(self, now_unix_ms: int) -> bool:
        """Whether the file is old enough; told at every tick."""
        self._told_unix_ms = now_unix_ms
        self._began_unix_ms = min(self._began_unix_ms, now_unix_ms)
        return now_unix_ms - self._began_unix_ms >= self._roll_after_ms


def _under_way(path: Path) -> Path:
    return path.with_name(f"_{path.name}")


class JsonLinesWriter:
    """Writes one JSON object a data point; NaN is null, so that every line is JSON.

    Args:
        directory: made if there is none.
        roll_bytes: a file is complete when it has become this large, or …
        roll_after_ms: … when it has been under way for so long.

    Attributes:
        unfinished: pushes in the file under way, which nobody reads if this process dies.
        lost: pushes of files that could not be completed.
    """

    def __init__(
        self, directory: Path | str, *, roll_bytes: int = ROLL_BYTES, roll_after_ms: int = ROLL_AFTER_MS
    ) -> None:
        self._names = _Names(Path(directory), "jsonl")
        self._roll_bytes = roll_bytes
        self._age = _Age(roll_after_ms)
        self._file: int | None = None
        self._path = Path()
        self._size = 0
        self.unfinished = 0
        self.lost = 0

    def write(self, push: ReceivedPush) -> None:
        """Append the rows of `push`; on failure the file is as it was before."""
        lines = b"".join(json.dumps(row.as_dict(), allow_nan=False).encode() + b"\n" for row in rows_of(push))
        if not lines:
            return
        if self._file is None:
            self._path = self._names.next()
            self._file = os.open(_under_way(self._path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            self._size = 0
            self._age.begin(push.received_unix_ms)
        try:
            done = 0
            while done < len(lines):
                done += os.write(self._file, memoryview(lines)[done:])
        except OSError:
            os.ftruncate(self._file, self._size)  # a full disk: leave no part of a line
            os.lseek(self._file, self._size, os.SEEK_SET)
            raise
        self._size += len(lines)
        if self._size >= self._roll_bytes:
            self.close()  # should that fail, whoever writes counts this push by itself
        else:
            self.unfinished += 1

    def tick(self, now_unix_ms: int) -> None:
        """Complete the file when it is old enough."""
        if self._age.is_over(now_unix_ms) and self._file is not None:
            self.close()

    def close(self) -> None:
        """Complete the file under way, if any."""
        if self._file is not None:
            file, self._file = self._file, None
            try:
                os.close(file)
                _under_way(self._path).rename(self._path)
            except OSError:
                self.lost += self.unfinished
                raise
            finally:
                self.unfinished = 0


class ParquetWriter:
    """Collects rows and writes them to a Parquet file at a time (zstd).

    Args:
        directory: made if there is none.
        roll_rows: a file is written when there are this many rows, or …
        roll_after_ms: … when the first of them has been here for so long, or …
        roll_bytes: … when the pushes that they are of have been this large together.

    Attributes:
        unfinished: pushes that are collected and in no file yet.
        lost: pushes whose file could not be written.

    Raises:
        ImportError: pyarrow is not installed.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        roll_rows: int = ROLL_ROWS,
        roll_after_ms: int = ROLL_AFTER_MS,
        roll_bytes: int = ROLL_COLLECTED_BYTES,
    ) -> None:
        self._schema, self._write_table = _parquet()
        self._names = _Names(Path(directory), "parquet")
        self._roll_rows = roll_rows
        self._age = _Age(roll_after_ms)
        self._roll_bytes = roll_bytes
        self._rows: list[PointRow] = []
        self._bytes = 0
        self.unfinished = 0
        self.lost = 0

    def write(self, push: ReceivedPush) -> None:
        """Collect the rows of `push`."""
        self._bytes += push.held_bytes
        for row in rows_of(push):  # one push may have hundreds of thousands
            if not self._rows:
                self._age.begin(push.received_unix_ms)
            self._rows.append(row)
            if len(self._rows) >= max(self._roll_rows, ROLL_ROWS):
                self._write_rows()
        if len(self._rows) >= self._roll_rows or self._bytes >= self._roll_bytes:
            self.close()  # should that fail, whoever writes counts this push by itself
        elif self._rows:
            self.unfinished += 1
        else:
            self.unfinished, self._bytes = 0, 0

    def tick(self, now_unix_ms: int) -> None:
        """Write a file when the rows are old enough."""
        if self._age.is_over(now_unix_ms) and self._rows:
            self.close()

    def close(self) -> None:
        """Write what has been collected, if anything; on failure those rows are lost rather than collected for ever."""
        if self._rows:
            self._write_rows()
            self.unfinished, self._bytes = 0, 0

    def _write_rows(self) -> None:
        rows, self._rows = self._rows, []
        path = self._names.next()
        columns = {name: [getattr(row, name) for row in rows] for name in COLUMNS}
        try:
            self._write_table(columns, self._schema, _under_way(path))
            _under_way(path).rename(path)
        except Exception:
            self.lost += self.unfinished
            self.unfinished, self._bytes = 0, 0
            raise


def _parquet() -> "tuple[pa.Schema, Callable[[dict[str, list[Any]], pa.Schema, Path], None]]":
    try:
        import pyarrow as pa  # noqa: PLC0415 # optional, and slow to load
        import pyarrow.parquet as pq  # noqa: PLC0415 # as above
    except ImportError as error:
        raise MissingExtraError(
            "Parquet files need pyarrow: pip install 'kclient-quota[parquet]', or write JSON lines"
        ) from error
    texts = pa.map_(pa.string(), pa.string())
    special = {
        "received_unix_ms": pa.int64(),
        "terminating": pa.bool_(),
        "push_interval_ms": pa.int64(),
        "monotonic": pa.bool_(),
        "start_unix_nano": pa.int64(),
        "time_unix_nano": pa.int64(),
        "value": pa.float64(),
        "count": pa.int64(),
        "sum": pa.float64(),
        "bounds": pa.list_(pa.float64()),
        "bucket_counts": pa.list_(pa.int64()),
        "attributes": texts,
        "resource": texts,
    }
    schema = pa.schema([(name, special.get(name, pa.string())) for name in COLUMNS])
    # The first table loads pandas where there is one, which takes seconds: better now than for the last file, in the
    # two seconds that a broker has for it when it stops.
    pa.table({name: [] for name in COLUMNS}, schema=schema)

    def write(columns: dict[str, list[Any]], schema: "pa.Schema", path: Path) -> None:
        for name in ("attributes", "resource"):
            columns[name] = [list(mapping.items()) for mapping in columns[name]]
        pq.write_table(pa.table(columns, schema=schema), path, compression="zstd")

    return schema, write
