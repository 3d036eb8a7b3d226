"""Where rows go: files of any format that the session knows, or a table; by directories, in as many files as asked."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.clock import sleep
from kclient_quota.errors import ConfigError
from kclient_quota.spark.jvm_errors import Py4JError
from kclient_quota.spark.plan import PARQUET

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from kclient_quota.spark.plan import Plan

_TIMES: Final = ("window_start", "start", "time")
_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
_FILE_BYTES: Final = 128 * 1024 * 1024
_AGAIN_S: Final = 0.1
_TRIES: Final = 20
"""So often it is looked whether a task has begun a file after its batch had failed."""


def laid_out(plan: "Plan", rows: "DataFrame") -> "DataFrame":
    """The rows with the columns that make directories, in as few tasks as there are to be files.

    Raises:
        ConfigError: there is no such column.
    """
    made = {name: column for name, column in _dates(rows).items() if name in plan.partition_by}
    missing = sorted(set(plan.partition_by) - {*rows.columns, *made})
    if missing:
        there = ", ".join(dict.fromkeys([*_dates(rows), *rows.columns]))
        raise ConfigError(f"partition by {missing[0]}: {plan.job} has no such column; there are {there}")
    found = rows.withColumns(made) if made else rows
    return found if plan.files is None else found.repartition(plan.files, *plan.partition_by)


def _dates(rows: "DataFrame") -> dict[str, "Column"]:
    """`date` and `hour` of the rows, in UTC whatever the session's time zone."""
    found = [name for name in _TIMES if name in rows.columns]
    if not found:
        return {}
    at_ms = F.unix_millis(found[0])
    return {
        "date": F.date_from_unix_date(F.floor(at_ms / _DAY_MS).cast("int")),
        "hour": F.floor(F.pmod(at_ms, F.lit(_DAY_MS)) / _HOUR_MS).cast("int"),
    }


def write_batch(plan: "Plan", rows: "DataFrame") -> None:
    """Write them, where nothing is yet."""
    writer = laid_out(plan, rows).write.format(plan.output_format).partitionBy(*plan.partition_by)
    was_there = Path(plan.output).exists()
    try:
        (writer.saveAsTable if plan.is_table else writer.save)(plan.output)
    except (PySparkException, Py4JError) as error:
        if not was_there:
            _remove_if_empty(Path(plan.output))
        raise _unknown_format(plan, error) from error


def _remove_if_empty(folder: Path) -> None:
    """Spark leaves an empty directory where it has failed, and would refuse it as one that exists at the next try.

    Tasks that it has told to end may begin a file there yet, in the directory that is Spark's own.
    """
    for _ in range(_TRIES):
        with suppress(OSError):  # there is none, or it is not empty
            shutil.rmtree(folder / "_temporary", ignore_errors=True)
            folder.rmdir()
        sleep(_AGAIN_S)
        if not folder.exists():
            return


def start_stream(plan: "Plan", writer: "DataStreamWriter") -> "StreamingQuery":
    """Begin to write them."""
    writer = writer.format(plan.output_format).outputMode("append").partitionBy(*plan.partition_by)
    try:
        return writer.toTable(plan.output) if plan.is_table else writer.start(plan.output)
    except (PySparkException, Py4JError) as error:
        raise _unknown_format(plan, error) from error


def written(spark: "SparkSession", plan: "Plan") -> "DataFrame":
    """What is there now."""
    return spark.table(plan.output) if plan.is_table else spark.read.format(plan.output_format).load(plan.output)


def compact(spark: "SparkSession", source: str, output: str, files: int | None = None) -> str:
    """Rows of Parquet in many small files into a new directory of few, as they are, directories of columns included.

    Args:
        spark: the session.
        source: the directory, of a batch or of a stream, which may go on.
        output: a new directory.
        files: how many for each directory of columns; None: one.

    Returns:
        a line that says what was written.
    """
    rows = spark.read.parquet(source)
    before = len(rows.inputFiles())
    directories = [name for name in ("date", "hour") if f"/{name}=" in "".join(rows.inputFiles()[:1])]
    keys = [F.col(name) for name in directories]
    found = rows.repartition(files or 1, *keys)
    writer = found.write.partitionBy(*directories)
    writer.parquet(output)
    return f"{output}: {len(spark.read.parquet(output).inputFiles())} files of what were {before}"


def _unknown_format(plan: "Plan", error: Exception) -> Exception:
    if "DATA_SOURCE_NOT_FOUND" not in str(error) and "find data source" not in str(error):
        return error
    return ConfigError(
        f"output format {plan.output_format}: this session has no such data source; start it with its libraries, such "
        f"as --conf spark.jars.packages=..., or write {PARQUET}"
    )
