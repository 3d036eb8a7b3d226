"""What a receiver has written (`kclient_telemetry.receiver.files`), as a table of points: JSON lines, Parquet, pushes.

The same for a batch and for a stream; a stream takes up files as they get their real name.
"""

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it
from pyspark.sql.types import DataType, StructType

from kclient_quota.errors import ConfigError
from kclient_quota.spark.decode import TYPES, decode
from kclient_quota.spark.decoding.point_rows import ALL, COORDINATOR, NODE, NODE_PREFIX, USER_PREFIX, Shape
from kclient_quota.spark.decoding.schema import KNOWN_AS, LETTER, RECEIVED_MS, SENDER, SERIES, TABLE, UNTIMELY, ddl

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FORMATS: Final = ("jsonl", "parquet", "pushes")
"""Points as JSON lines; points as Parquet; Parquet of pushes as they came (`value`, and what `decode` takes beside)."""

_NANOS: Final = {"start_ms": "start_unix_nano", "time_ms": "time_unix_nano"}
_MILLIS: Final = {nanos: millis for millis, nanos in _NANOS.items()}
_SERIES: Final = tuple(_NANOS.get(name, name) for name in SERIES.names if name != "row")
_CORRUPT: Final = "_corrupt_record"
_NO_FILES: Final = "UNABLE_TO_INFER_SCHEMA"


def read_files(
    spark: "SparkSession",
    path: str,
    kind: str,
    *,
    is_stream: bool = False,
    at_once: int = 100,
    shape: Shape = ALL,
) -> "DataFrame":
    """Points and dead letters of a directory; see `kclient_quota.spark.decode.points` and `dead_letters`.

    Args:
        spark: the session.
        path: a directory.
        kind: one of `FORMATS`.
        is_stream: whether to go on with files that come later.
        at_once: of a stream, the most files in a batch.
        shape: of raw pushes, which points and which columns of them, see `kclient_quota.spark.decode.decode`; of all,
            how far clients' clocks may be off.

    Raises:
        ConfigError: the format is none of these or another than the files', or they have other columns.
    """
    if kind not in FORMATS:
        raise ConfigError(f"format {kind}: write one of {', '.join(FORMATS)}")
    _check_endings(spark, path, kind)
    reader = spark.readStream.option("maxFilesPerTrigger", at_once) if is_stream else spark.read
    if kind == "jsonl":
        reader = reader.option("columnNameOfCorruptRecord", _CORRUPT)
        return _named(reader.schema(f"{_file_ddl()}, {_CORRUPT} string").json(path), shape.clock_tolerance_ms)
    frame = reader.schema(_parquet_schema(spark, path, kind)).parquet(path)
    return decode(frame, shape) if kind == "pushes" else _named(frame, shape.clock_tolerance_ms)


def _check_endings(spark: "SparkSession", path: str, kind: str) -> None:
    """Say so where all files are of another format: lines that are none would be dead letters, and of a stream no more.

    Raises:
        ConfigError: they are.
    """
    files = spark.read.schema(f"{_CORRUPT} string").json(path).inputFiles()  # these are only listed
    if kind == "jsonl" and files and all(file.endswith(".parquet") for file in files):
        raise ConfigError(f"{path}: these are Parquet files: give --format parquet, or pushes, as they were written")
    if kind != "jsonl" and files and all(file.endswith((".jsonl", ".json")) for file in files):
        raise ConfigError(f"{path}: these are files of JSON lines: give --format jsonl")


def _parquet_schema(spark: "SparkSession", path: str, kind: str) -> "StructType":
    """The columns that there are, and those that there may be.

    Spark looks into one file only: where a receiver of before knew less of clients than today's, what newer files say
    beside would be passed over, or not, by the files' names.
    """
    known = DataType.fromDDL(
        ", ".join(f"{name} {type_}" for name, type_ in TYPES.items()) if kind == "pushes" else _file_ddl()
    )
    assert isinstance(known, StructType)
    try:
        found = spark.read.parquet(path).schema
    except AnalysisException as error:
        if error.getCondition() != _NO_FILES:
            raise
        return known
    _check(found, ["value"] if kind == "pushes" else list(_SERIES), path)
    if kind == "pushes" and found["value"].dataType.typeName() != "binary":
        raise ConfigError(f"{path}: the column value is no binary of pushes; give the --format that wrote the files")
    there = set(map(str.lower, found.fieldNames()))  # of two names that differ in case Spark takes but one
    return StructType([*found, *(field for field in known if field.name not in there)])


def _check(schema: "StructType", wanted: list[str], path: str) -> None:
    missing = [name for name in wanted if name not in schema.fieldNames()]
    if missing:
        raise ConfigError(f"{path}: the files have no column {', '.join(missing)}; give the --format that wrote them")


def _file_ddl() -> str:
    sender = [pa.field(known, TABLE.field(name).type) for name, known in KNOWN_AS.items() if known != "group_id"]
    points = [pa.field(name, SERIES.field(_MILLIS.get(name, name)).type) for name in _SERIES]
    return ddl(pa.schema([*sender, *points]))


def _named(frame: "DataFrame", tolerance_ms: int | None) -> "DataFrame":
    """A file's columns as the decoder names them."""
    given: dict[str, Column] = {}
    for name in SERIES.names[1:]:
        nanos = _NANOS.get(name)
        given[name] = F.expr(f"{nanos} div 1000000") if nanos else F.col(name)
    for name in SENDER:
        if name not in {"broker", "group_id"}:
            given[name] = _known(name)
    given["user"] = _without(USER_PREFIX, given["user"])
    given["group_id"] = F.col("resource")["group_id"]
    given["broker"] = _broker()
    received = given["received_ms"]
    is_wrong = (received < RECEIVED_MS[0]) | (received >= RECEIVED_MS[1])
    at_ms = _event_ms(given["time_ms"], received, tolerance_ms)
    given["time"] = F.timestamp_millis(F.when(F.coalesce(~is_wrong, F.lit(True)), at_ms))
    corrupt = F.col(_CORRUPT) if _CORRUPT in frame.columns else F.lit(None).cast("string")
    reason = F.when(corrupt.isNotNull() | F.col("metric").isNull(), "the line is no data point in JSON").when(
        is_wrong, F.format_string(f"{UNTIMELY} %d", received)
    )
    return frame.select(
        *(given[name].alias(name) for name in TABLE.names),
        reason.alias(LETTER.names[0]),
        F.encode(F.coalesce(corrupt, F.lit("")), "UTF-8").alias(LETTER.names[1]),
    )


def _event_ms(time_ms: "Column", received_ms: "Column", tolerance_ms: int | None) -> "Column":
    """See `decoding.point_rows.times`."""
    if tolerance_ms is None:
        return F.coalesce(time_ms, received_ms)
    is_near = F.coalesce(F.abs(time_ms - received_ms) <= tolerance_ms, received_ms.isNull())
    return F.when(is_near, time_ms).otherwise(received_ms)


def _known(name: str) -> "Column":
    known = KNOWN_AS[name]
    beside = F.col(known)
    return F.coalesce(beside, F.col("resource")[known]) if TABLE.field(name).type == pa.string() else beside


def _without(prefix: str, text: "Column") -> "Column":
    return F.when(text.startswith(prefix), F.substr(text, F.lit(len(prefix) + 1))).otherwise(text)


def _broker() -> "Column":
    """See `decoding.point_rows.broker_id`."""
    raw = _without(NODE_PREFIX, F.coalesce(*(F.col("attributes")[name] for name in NODE)))
    number = raw.try_cast("bigint")
    return (
        F.when(number < 0, None)
        .when(number > COORDINATOR // 2, (F.lit(COORDINATOR) - number).cast("string"))
        .otherwise(raw)
    )
