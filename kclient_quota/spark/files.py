"""What a receiver has written (`telemetry.receiver.files`), as the table of points: JSON lines, Parquet, raw pushes.

The same for a batch and for a stream; a stream takes up files as they get their real name.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.errors import ConfigError
from kclient_quota.spark.decode import decode
from kclient_quota.spark.schema import CARRIED, DECODED, SERIES, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMATS: Final = ("jsonl", "parquet", "pushes")
"""Points as JSON lines; points as Parquet; Parquet of pushes as they came (`value`, and what `decode` takes beside)."""

_NANOS: Final = {"start_ms": "start_unix_nano", "time_ms": "time_unix_nano"}
_CORRUPT: Final = "_corrupt_record"


def read_files(
    spark: "SparkSession", path: str, kind: str, *, is_stream: bool = False, at_once: int = 100
) -> "DataFrame":
    """Points and dead letters of a directory; see `kclient_quota.spark.decode.points` and `dead_letters`.

    Args:
        spark: the session.
        path: a directory.
        kind: one of `FORMATS`.
        is_stream: whether to go on with files that come later.
        at_once: of a stream, the most files in a batch.

    Raises:
        ConfigError: the format is none of these, or the files have other columns.
    """
    if kind not in FORMATS:
        raise ConfigError(f"format {kind}: write one of {', '.join(FORMATS)}")
    reader = spark.readStream.option("maxFilesPerTrigger", at_once) if is_stream else spark.read
    if kind == "jsonl":
        reader = reader.option("columnNameOfCorruptRecord", _CORRUPT)
        return _named(reader.schema(f"{_file_ddl()}, {_CORRUPT} string").json(path))
    schema = spark.read.parquet(path).schema
    wanted = ["value"] if kind == "pushes" else [column for column in _file_columns() if column not in CARRIED.names]
    _check(schema, wanted, path)
    if kind == "pushes" and schema["value"].dataType.typeName() != "binary":
        raise ConfigError(f"{path}: the column value is no binary of pushes; give the --format that wrote the files")
    frame = reader.schema(schema).parquet(path)
    return decode(frame) if kind == "pushes" else _named(frame.withColumn(_CORRUPT, F.lit(None).cast("string")))


def _check(schema: "StructType", wanted: list[str], path: str) -> None:
    missing = [name for name in wanted if name not in schema.fieldNames()]
    if missing:
        raise ConfigError(f"{path}: the files have no column {', '.join(missing)}; give the --format that wrote them")


def _file_columns() -> list[str]:
    return [*CARRIED.names, *(_NANOS.get(name, name) for name in SERIES.names if name != "row")]


def _file_ddl() -> str:
    text = ddl(DECODED)
    for millis, nanos in _NANOS.items():
        text = text.replace(f"`{millis}`", f"`{nanos}`")
    return text.removesuffix(", `error` string, `payload` binary")


def _named(frame: "DataFrame") -> "DataFrame":
    """A file's columns as the decoder names them."""
    millis = [F.expr(f"{nanos} div 1000000").alias(name) for name, nanos in _NANOS.items()]
    reason = F.when(F.col(_CORRUPT).isNotNull() | F.col("metric").isNull(), "the line is no data point in JSON")
    return frame.select(
        "*", *millis, reason.alias("error"), F.encode(F.coalesce(F.col(_CORRUPT), F.lit("")), "UTF-8").alias("payload")
    ).select(*DECODED.names)
