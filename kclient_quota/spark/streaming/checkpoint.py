"""A mark in a stream's checkpoint: of which version of the pipeline, and of which job, its state and offsets are.

It is written and read by Spark itself, so that it may be wherever Spark writes, through Spark Connect, too.
"""

import json
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException, PySparkException

from kclient_quota.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION: Final = 5
"""Goes up when a job's columns or state change, so that an old checkpoint cannot be gone on with."""
MARK: Final = "kclient-quota.json"
_OWNER: Final = "_kclient-quota"
"""In an output: whose it is; Spark reads no names that begin so."""
_EXISTS: Final = "PATH_ALREADY_EXISTS"
_MARKS_S: Final = 10.0
"""A mark is a line: whoever has not written it in so long has been killed."""
_LOOK_S: Final = 0.5
_REMEDY: Final = "start with a new checkpoint and a new output, or go on with what wrote this one"


def marked(spark: "SparkSession", checkpoint: str) -> dict[str, Any] | None:
    """The facts that an earlier run has left; None: the checkpoint is new, or its first run got no further than that.

    Args:
        spark: any path that it takes may be a checkpoint.
        checkpoint: the directory.

    Raises:
        ConfigError: it is of another version, or of no pipeline of ours.
    """
    lines = _lines(spark, f"{checkpoint}/{MARK}")
    if not lines and _lines(spark, f"{checkpoint}/metadata") is None:
        return None
    if lines is None:
        raise ConfigError(
            f"checkpoint {checkpoint} was written by an older version of the pipeline, or by another program: {_REMEDY}"
        )
    try:
        found = dict(json.loads("".join(lines)))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"checkpoint {checkpoint}: its {MARK} cannot be read; {_REMEDY}") from error
    if found.get("version") != VERSION:
        raise ConfigError(
            f"checkpoint {checkpoint} is of version {found.get('version')} of the pipeline, this is version {VERSION}: "
            f"{_REMEDY}"
        )
    return found


def claim(spark: "SparkSession", checkpoint: str, facts: Mapping[str, Any], *, patience_s: float = _MARKS_S) -> None:
    """Mark a new checkpoint, or see whether an old one is of the same stream.

    Args:
        spark: as `marked`.
        checkpoint: the directory.
        facts: what has to stay the same from run to run.
        patience_s: how long another run may take to write its mark; it is taken for killed then.

    Raises:
        ConfigError: as `marked`; or it is of another job, or another run marks it at this moment.
    """
    found = marked(spark, checkpoint)
    if found is None:
        text = json.dumps({"version": VERSION, **facts})
        try:
            mode = "overwrite" if _is_left(spark, checkpoint, patience_s) else "error"
            spark.createDataFrame([(text,)], "value string").coalesce(1).write.mode(mode).text(f"{checkpoint}/{MARK}")
        except AnalysisException as error:
            if error.getCondition() != _EXISTS:
                raise
            raise ConfigError(
                f"checkpoint {checkpoint}: another run has begun with it at this moment; a checkpoint is for one "
                "run at a time, give each its own, and its own output"
            ) from error
        return
    for name, value in facts.items():
        if found.get(name, value) != value:  # a mark of before says less
            raise ConfigError(
                f"checkpoint {checkpoint} is of a stream with {name} {found[name]}, this one has {value}: {_REMEDY}"
            )


def _is_left(spark: "SparkSession", checkpoint: str, patience_s: float) -> bool:
    """Whether there is a mark without its line, of a run that was killed as it wrote it; or that is just writing it."""
    end_s = time.monotonic() + patience_s
    while (lines := _lines(spark, f"{checkpoint}/{MARK}")) == [] and time.monotonic() < end_s:
        time.sleep(_LOOK_S)
    return lines == []


def damaged(checkpoint: str) -> str:
    """What to do about a checkpoint of which something is missing or cut short."""
    return (
        f"checkpoint {checkpoint} is damaged: put back a copy of it and of its output, both of one time, or start with "
        "a new checkpoint and a new output"
    )


def check_whole(spark: "SparkSession", checkpoint: str) -> None:
    """Whether a stream of files still knows which it has read: Spark takes new ones for read where that is gone.

    Raises:
        ConfigError: it does not.
    """
    if _has_text(spark, f"{checkpoint}/offsets") and not _has_text(spark, f"{checkpoint}/sources/0"):
        raise ConfigError(f"sources/0 is missing in it; {damaged(checkpoint)}")


def check_new(spark: "SparkSession", checkpoint: str, output: str, *, is_table: bool = False) -> None:
    """Whether a new checkpoint may write there: only where nothing is.

    Files that another checkpoint's stream has written know which batches they are of, and Spark counts batches anew
    with every checkpoint: it would take the first of the new ones for done, and leave them out.

    Raises:
        ConfigError: something is there.
    """
    if spark.catalog.tableExists(output) if is_table else _is_there(spark, output):
        raise _of_another(checkpoint, f"output {output}")


def take_output(spark: "SparkSession", checkpoint: str, output: str) -> None:
    """Say in an empty output whose it is: of those that see nothing there at one moment one goes on at most.

    Raises:
        ConfigError: another one's line is there, or beside its own.
    """
    owner = f"{output}/{_OWNER}"
    if not _lines(spark, owner, is_nested=True):
        # a directory for each: whichever job ends first takes the other's `_temporary` away
        own = f"{owner}/{sha256(checkpoint.encode()).hexdigest()[:16]}"
        spark.createDataFrame([(checkpoint,)], "value string").coalesce(1).write.mode("overwrite").text(own)
    if set(_lines(spark, owner, is_nested=True) or ()) != {checkpoint}:
        remedy = f"where {owner} is all that is there, as two began at one moment, remove that"
        raise ConfigError(f"{_of_another(checkpoint, f'output {output}')}; {remedy}")


def check_new_letters(spark: "SparkSession", checkpoint: str, letters: str) -> None:
    """The same of dead letters, whose query has a checkpoint of its own, without a mark.

    Raises:
        ConfigError: something is there.
    """
    if _lines(spark, f"{checkpoint}/metadata") is None and _is_there(spark, letters):
        raise _of_another(checkpoint, f"--dead-letters {letters}")


def _of_another(checkpoint: str, place: str) -> ConfigError:
    return ConfigError(
        f"{place} is not empty, and checkpoint {checkpoint} is new: what is there is of another stream, and this one's "
        "rows would be left out or written over it; name a new place, or the checkpoint of what is there"
    )


def _is_there(spark: "SparkSession", output: str) -> bool:
    if _is_directory(spark, f"{output}/_spark_metadata"):  # a stream has begun there, though it has written nothing yet
        return True
    try:
        files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(output)
        return bool(files.select("path").limit(1).collect())
    except AnalysisException:  # there is no such directory
        return False


def _is_directory(spark: "SparkSession", path: str) -> bool:
    try:
        spark.read.text(path).limit(1).collect()
    except AnalysisException:
        return False
    return True


def _has_text(spark: "SparkSession", path: str) -> bool:
    try:
        return bool(spark.read.text(path).limit(1).collect())
    except AnalysisException:
        return False


def _lines(spark: "SparkSession", path: str, *, is_nested: bool = False) -> list[str] | None:
    """Of a text, and of those in folders below; None: there is none."""
    try:
        return [row[0] for row in spark.read.text(path, recursiveFileLookup=is_nested).collect()]
    except AnalysisException:
        return None
    except PySparkException as error:
        raise ConfigError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
