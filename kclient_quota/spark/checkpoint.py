"""A mark in a stream's checkpoint: of which version of the pipeline, and of which job, its state and offsets are."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kclient_quota.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION: Final = 3
"""Goes up when a job's columns or state change, so that an old checkpoint cannot be gone on with."""
MARK: Final = "kclient-quota.json"
_REMEDY: Final = "start with a new checkpoint, or go on with what wrote this one"


def claim(spark: "SparkSession", checkpoint: str, facts: Mapping[str, Any]) -> None:
    """Mark a new checkpoint, or see whether an old one is of the same stream.

    Args:
        spark: any path that its Hadoop takes may be a checkpoint.
        checkpoint: the directory.
        facts: what has to stay the same from run to run.

    Raises:
        ConfigError: it is of another version, of another job, or of no pipeline of ours.
    """
    context: Any = spark.sparkContext
    hadoop = context._jvm.org.apache.hadoop.fs  # noqa: SLF001 - PySpark has no other door to Hadoop's file systems
    folder = hadoop.Path(checkpoint)
    files = folder.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001 - as above
    mark = hadoop.Path(folder, MARK)
    wanted = {"version": VERSION, **facts}
    if files.exists(mark):
        stream = files.open(mark)
        try:
            text = context._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")  # noqa: SLF001 - as above
        finally:
            stream.close()
        _compare(checkpoint, text, wanted)
        return
    if files.exists(hadoop.Path(folder, "metadata")):
        raise ConfigError(
            f"checkpoint {checkpoint} was written by an older version of the pipeline, or by another program: {_REMEDY}"
        )
    files.mkdirs(folder)
    out = files.create(mark, True)
    try:
        out.writeBytes(json.dumps(wanted))
    finally:
        out.close()


def _compare(checkpoint: str, text: str, wanted: Mapping[str, Any]) -> None:
    try:
        found = dict(json.loads(text))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"checkpoint {checkpoint}: its {MARK} cannot be read; {_REMEDY}") from error
    if found.get("version") != VERSION:
        raise ConfigError(
            f"checkpoint {checkpoint} is of version {found.get('version')} of the pipeline, this is version {VERSION}: "
            f"{_REMEDY}"
        )
    for name, value in wanted.items():
        if found.get(name) != value:
            raise ConfigError(
                f"checkpoint {checkpoint} is of a stream with {name} {found.get(name)}, this one has {value}: {_REMEDY}"
            )
