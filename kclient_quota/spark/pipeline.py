"""Runs a job from a source to files: in one go, or as a stream with a checkpoint."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import StorageLevel
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.spark.decode import dead_letters, points
from kclient_quota.spark.durations import duration_ms
from kclient_quota.spark.intervals import seen_ms, settled
from kclient_quota.spark.jobs.backtest import COLUMNS, backtest, verdict
from kclient_quota.spark.jobs.outliers import noisiest
from kclient_quota.spark.jobs.recommend import quota_file, recommend
from kclient_quota.spark.jvm_errors import Py4JJavaError
from kclient_quota.spark.plan import JOBS, USAGE, Plan
from kclient_quota.spark.quota_table import Limits, read_limits
from kclient_quota.spark.reading import read, written_usage
from kclient_quota.spark.rows import table_job, usage_of
from kclient_quota.spark.streaming.checkpoint import damaged
from kclient_quota.spark.streaming.output import write_batch, written
from kclient_quota.spark.streaming.stream import run_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["JOBS", "Plan", "reason", "run"]

_TELLS_MS: Final = 20_000
"""Of pushes that come so often, the highest rate is that of a push as a whole: nothing can burst within."""
_OURS: Final = re.compile(r"kclient_quota\.errors\.\w+: (.*)")
_DIED: Final = ("exited unexpectedly", "Python worker failed to connect back", "failed to start Python worker")
_OF_JAVA: Final = "An error occurred while calling "
_NOTHING_SAID: Final = "Exception thrown in awaitResult:"
_DAMAGED: Final = ("MALFORMED_LOG_FILE", "MISSING_STATE_DIRECTORY", "CANNOT_LOAD_STATE_STORE", "com.fasterxml.jackson")
"""In what Spark says of a checkpoint of which something is missing or cut short."""
_PATTERNS: Final = frozenset("*?[]{}")
_UNREAD: Final = ("FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER")
_GONE: Final = "FILE_NOT_EXIST"
_CAUSE: Final = re.compile(r"^Caused by: [\w.$]+: (.*)", re.MULTILINE)


def run(spark: "SparkSession", plan: Plan) -> str:
    """Run it.

    Returns:
        what was written, and what there is to know about it, in lines.

    Raises:
        ConfigError: the plan, a file of it or what Spark makes of it is wrong.
        ClusterError: Spark could not do it.
    """
    limits = read_limits(plan.quotas) if plan.quotas else None
    if plan.client is None and not Path(plan.source).exists() and "://" not in plan.source:
        raise ConfigError(f"input {plan.source}: there is no such directory")
    if plan.client is None and "://" not in plan.source and _PATTERNS & set(plan.source):
        raise ConfigError(
            f"input {plan.source}: Spark takes *, ?, brackets and braces in a name for a pattern, and would read other "
            "directories, or one several times; give the directory another name, or a link to it"
        )
    try:
        if plan.checkpoint:
            return run_stream(spark, plan, limits)
        return _batch(spark, plan, limits)
    except StreamingQueryException as error:
        raise ClusterError(f"the stream of {plan.job} failed: {reason(error)}{_remedy(plan, error)}") from error
    except PySparkException as error:
        is_wrong = isinstance(error, AnalysisException) and ClusterError.__name__ not in str(error)
        raised = ConfigError if is_wrong else ClusterError
        raise raised(f"{plan.job} on {plan.source}: {reason(error)}{_remedy(plan, error)}") from error
    except Py4JJavaError as error:  # what PySpark has no exception of its own for: a worker that died, for one
        raise ClusterError(f"{plan.job} on {plan.source}: {reason(error)}{_remedy(plan, error)}") from error


def reason(error: Exception) -> str:
    """What went wrong, in one line: our own message if one came back from a Python worker, else Spark's first line."""
    text = str(error).strip()
    ours = [found[1] for line in text.splitlines() if (found := _OURS.search(line))]
    if ours:
        return ours[-1]
    if any(sign in text for sign in _DIED):
        return (
            "a Python worker of Spark ended without saying why: out of memory, killed, or its Python "
            f"({os.environ.get('PYSPARK_PYTHON', 'python3')}) lacks a library; its last words are in the executor's log"
        )
    lines = text.splitlines() or [type(error).__name__]
    is_java = lines[0].startswith(_OF_JAVA) and len(lines) > 1
    said = lines[1].removeprefix(": ") if is_java else lines[0]
    if said.rstrip().endswith(_NOTHING_SAID) and (cause := _CAUSE.search(text)):  # what PySpark 4.1 makes of a file
        return cause[1]
    return said


def _remedy(plan: Plan, error: Exception) -> str:
    """What to do, where Spark only says what it has met."""
    text = str(error)
    if plan.checkpoint and any(sign in text for sign in _DAMAGED):
        return f"; {damaged(plan.checkpoint)}"
    if _GONE in text:  # compacted or cleared away after Spark had listed it
        leaves_out = "--conf spark.sql.files.ignoreMissingFiles=true"
        return f"; run it again, or have files that go left out: {leaves_out}"
    if any(sign in text for sign in _UNREAD):
        leaves_out = "--conf spark.sql.files.ignoreCorruptFiles=true"
        return f"; take that file away, or have what cannot be read left out: {leaves_out}"
    return ""


def _batch(spark: "SparkSession", plan: Plan, limits: Limits | None) -> str:
    if plan.source_format == USAGE:
        return _of_usage(plan, written_usage(spark, plan.source))
    decoded = read(spark, plan, is_stream=False)
    is_read_again = plan.client is not None or plan.dead_letters is not None or plan.source_format == "pushes"
    if is_read_again:  # what comes over the network, under a quota, comes once; and all look at the same
        decoded = decoded.persist(StorageLevel.DISK_ONLY)
    try:
        return _job(spark, plan, limits, decoded)
    finally:
        if is_read_again:
            decoded.unpersist()


def _job(spark: "SparkSession", plan: Plan, limits: Limits | None, decoded: "DataFrame") -> str:
    table = points(decoded)
    plan, words = settled(plan, None if plan.job == "points" else seen_ms(table))
    if plan.job == "recommend":
        said = _recommend(plan, usage_of(plan, table, None))
        _keep_letters(plan, decoded)
        return "\n".join([*said, *words])
    found = table_job(plan, table, limits)
    if plan.job == "outliers":
        assert plan.window is not None, "settled"
        found = noisiest(table, found, plan.k, plan.capacity, plan.window)
    write_batch(plan, found)
    _keep_letters(plan, decoded)
    count, untold = _counted(spark, plan)
    if not count:
        _check_decoded(plan, dead_letters(decoded))
        if plan.job == "gains":
            words.append("no producer there tells of its batches; subscribe to org.apache.kafka.producer.")
    return "\n".join([f"{plan.output}: {count} rows", *untold, *words])


def _keep_letters(plan: Plan, decoded: "DataFrame") -> None:
    """Once the rows are there: they are added to others, and a batch that fails is run again."""
    if plan.dead_letters:
        dead_letters(decoded).write.mode("append").parquet(plan.dead_letters)


def _of_usage(plan: Plan, table: "DataFrame") -> str:
    """What begins with usage that was written before: no pushes are looked at again."""
    if plan.job == "recommend":
        return "\n".join(_recommend(plan, table))
    rows = backtest(table, read_limits(plan.quotas or ""), plan.policy.most_growth)
    write_batch(plan, rows)
    count, untold = _counted(table.sparkSession, plan)
    return "\n".join([f"{plan.output}: {count} rows", *untold])


def _counted(spark: "SparkSession", plan: Plan) -> tuple[int, list[str]]:
    """How many rows there are; of a back-test, of how many the pushes do not tell."""
    rows = written(spark, plan)
    if plan.job != "whatif":
        return rows.count(), []
    if "is_told" not in rows.columns:  # CSV names no columns, and JSON of no rows has none
        rows = spark.read.format(plan.output_format).schema(COLUMNS).load(plan.output)
    found = rows.agg(F.count("*").alias("rows"), F.count_if(~F.col("is_told")).alias("untold")).collect()[0]
    return found["rows"], _untold(plan, found["untold"], found["rows"], "lowest_ms and highest_ms")


def _untold(plan: Plan, untold: int, quotas: int, where: str) -> list[str]:
    """What to say of estimates that stand for nothing."""
    if not untold:
        return []
    said = (
        f"{untold} of {quotas} quotas (by broker): clients may burst, or pushes were lost, so that nothing tells for "
        f"how long they would be throttled; all that is known lies between {where}"
    )
    if plan.push_interval and duration_ms("push_interval", plan.push_interval) <= _TELLS_MS:
        return [said]
    return [f"{said}. Where pushes come more seldom, every 20 s tells of bursts (interval.ms of their subscription)"]


def _check_decoded(plan: Plan, letters: "DataFrame") -> None:
    """Say why there is nothing, if it is that nothing could be decoded."""
    first = letters.limit(1).collect()
    if first:
        raise ConfigError(
            f"{plan.source}: nothing for {plan.job} there, but what could not be decoded: {first[0]['error']}; "
            "is it what the receiver wrote, in this --format?"
        )


def _recommend(plan: Plan, table: "DataFrame") -> list[str]:
    held = None
    if plan.hold_out:
        table = table.persist(StorageLevel.DISK_ONLY)
        table, held = _split(table, plan.hold_out)
    rows = recommend(table, plan.policy).limit(plan.most_overrides + 3).collect()  # two of them are defaults
    if len(rows) > plan.most_overrides + 2:
        raise ConfigError(
            f"recommend: more than {plan.most_overrides} overrides; raise default_quantile, so that the default serves "
            "more, or most_overrides"
        )
    if not rows:
        raise ConfigError(
            f"{plan.source}: no client there tells how many bytes it sends; subscribe to "
            "org.apache.kafka.producer.node. and org.apache.kafka.consumer.node. of Java's clients"
        )
    try:
        Path(plan.output).write_text(quota_file(rows, plan.policy), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"output {plan.output}: {error.strerror}; recommend writes one file") from error
    said = [f"{plan.output}: {len(rows)} quotas; look at them with: kafka-quotas plan {plan.output}"]
    return said if held is None else [*said, *_tried(plan, held, read_limits(plan.output))]


def _split(table: "DataFrame", part: float) -> tuple["DataFrame", "DataFrame"]:
    """Usage before and since the moment that leaves the last `part` of the time."""
    begin = F.unix_millis("window_start")
    found = table.agg(F.min(begin).alias("first"), F.max(begin).alias("last")).collect()[0]
    cut = (found["last"] or 0) - part * ((found["last"] or 0) - (found["first"] or 0))
    return table.where(begin < cut), table.where(begin >= cut)


def _tried(plan: Plan, held: "DataFrame", limits: Limits) -> list[str]:
    """How the recommendation would have done."""
    found = verdict("recommended", held, limits, plan.policy.most_growth)
    said = (
        f"tried on the time held out: {found.throttled} of {found.quotas} quotas (by broker) throttled, "
        f"{found.seconds_throttled:,.0f} of {found.seconds:,.0f} client seconds, between {found.lowest:,.0f} "
        f"and {found.highest:,.0f} by when bursts come"
    )
    return [said, *_untold(plan, found.untold, found.quotas, "those two")]
