"""Runs a job from a source to files: in one go, or as a stream with a checkpoint."""

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # py4j ships no types
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.spark.checkpoint import claim
from kclient_quota.spark.decode import dead_letters, decode, points
from kclient_quota.spark.files import read_files
from kclient_quota.spark.jobs.backtest import backtest
from kclient_quota.spark.jobs.outliers import noisiest, outliers
from kclient_quota.spark.jobs.recommend import Policy, quota_file, recommend
from kclient_quota.spark.jobs.throttled import throttled
from kclient_quota.spark.jobs.usage import usage
from kclient_quota.spark.jvm_source import read_kafka
from kclient_quota.spark.kafka_source import FORMAT, KafkaSource, observed
from kclient_quota.spark.measures import MEASURED, PUSHED, as_delta
from kclient_quota.spark.point_rows import ALL
from kclient_quota.spark.quota_table import Limits, read_limits
from kclient_quota.spark.sizes import shuffled, state_of, throttled_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("kclient_quota")

_OURS: Final = re.compile(r"kclient_quota\.errors\.\w+: (.*)")
_DIED: Final = ("exited unexpectedly", "Python worker failed to connect back", "failed to start Python worker")
_OF_JAVA: Final = "An error occurred while calling "
PYTHON: Final = "python"
CONNECTORS: Final = (PYTHON, "jvm")
_OF_USAGE: Final = ("usage", "outliers")
JOBS: Final = ("points", "usage", "throttled", "outliers", "recommend")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run.

    Attributes:
        job: one of `JOBS`.
        source: directory that the receiver writes; with `client` a topic of pushes instead, or several with commas.
        source_format: one of `files.FORMATS`; plays no part with `client`.
        client: a consumer's configuration, `bootstrap.servers` at least, to read a topic; None: files.
        output: directory of Parquet files; of `recommend` the file for `kafka-quotas`.
        dead_letters: directory for what could not be decoded; None passes it over.
        quotas: file of `kafka-quotas export`; None: no limits beside usage.
        window: of `usage` and what is built on it.
        late: of a stream, how late points may come; of `throttled` also how long a pause ends a session.
        checkpoint: directory; makes it a stream, exactly once into Parquet.
        is_endless: a stream goes on when it has caught up.
        k: of `outliers`.
        capacity: bytes per second that one broker has.
        policy: of `recommend`.
        most_overrides: of `recommend`: more than these are refused.
        hold_out: of `recommend`: the part of the time, the last, that is left out and tried on; 0 tries nothing.
        connector: what reads a topic: `python`, the source of this package, paced by the quota; or `jvm`, Spark's own.
        max_rows: of a stream from a topic: the most records in a batch; None: what is there.
    """

    job: str
    source: str
    output: str
    source_format: str = "jsonl"
    client: Mapping[str, Any] | None = None
    dead_letters: str | None = None
    quotas: str | None = None
    window: str = "1 minute"
    late: str = "2 minutes"
    checkpoint: str | None = None
    is_endless: bool = False
    k: int = 3
    capacity: float | None = None
    policy: Policy = field(default_factory=Policy)
    most_overrides: int = 1_000
    hold_out: float = 0.0
    connector: str = PYTHON
    max_rows: int | None = None

    def __post_init__(self) -> None:
        if self.connector not in CONNECTORS:
            raise ConfigError(f"connector {self.connector}: write one of {', '.join(CONNECTORS)}")
        if self.max_rows is not None and self.max_rows < 1:
            raise ConfigError(f"max_rows {self.max_rows}: write 1 or more")
        if not 0 <= self.hold_out < 1:
            raise ConfigError(f"hold_out {self.hold_out}: write 0 or more, below 1")


def run(spark: "SparkSession", plan: Plan) -> str:
    """Run it.

    Returns:
        a line that says what was written.

    Raises:
        ConfigError: the plan, a file of it or what Spark makes of it is wrong.
        ClusterError: Spark could not do it.
    """
    if plan.job not in JOBS:
        raise ConfigError(f"job {plan.job}: write one of {', '.join(JOBS)}")
    limits = read_limits(plan.quotas) if plan.quotas else None
    if plan.client is None and not Path(plan.source).exists() and "://" not in plan.source:
        raise ConfigError(f"input {plan.source}: there is no such directory")
    try:
        before = shuffled(spark).bytes
        said = _stream(spark, plan, limits) if plan.checkpoint else _batch(spark, plan, limits)
        now = shuffled(spark)
        logger.info("%s: %d bytes shuffled, %d executors at work", plan.job, now.bytes - before, now.executors)
    except StreamingQueryException as error:
        raise ClusterError(f"the stream of {plan.job} failed: {reason(error)}") from error
    except PySparkException as error:
        is_wrong = isinstance(error, AnalysisException) and ClusterError.__name__ not in str(error)
        raised = ConfigError if is_wrong else ClusterError
        raise raised(f"{plan.job} on {plan.source}: {reason(error)}") from error
    except Py4JJavaError as error:  # what PySpark has no exception of its own for: a worker that died, for one
        raise ClusterError(f"{plan.job} on {plan.source}: {reason(error)}") from error
    return said


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
    return lines[1].removeprefix(": ") if is_java else lines[0]


def _read(spark: "SparkSession", plan: Plan) -> "DataFrame":
    is_stream = plan.checkpoint is not None
    shape = ALL if plan.job == "points" else PUSHED if is_stream and plan.job in _OF_USAGE else MEASURED
    if plan.client is None:
        return read_files(spark, plan.source, plan.source_format, is_stream=is_stream, shape=shape)
    options = {"subscribe": plan.source, "startingOffsets": "earliest"}
    options |= {f"kafka.{key}": str(value) for key, value in plan.client.items()}
    if is_stream and plan.max_rows is not None:
        options["maxOffsetsPerTrigger"] = str(plan.max_rows)
    pushes = _topic(spark, options, plan.connector, is_stream=is_stream)
    return decode(pushes.withColumn("received_unix_ms", F.unix_millis("timestamp")), shape)


def _topic(spark: "SparkSession", options: dict[str, str], connector: str, *, is_stream: bool) -> "DataFrame":
    if connector != PYTHON:
        return read_kafka(spark, options, is_stream=is_stream)
    spark.dataSource.register(KafkaSource)
    if not is_stream:
        return spark.read.format(FORMAT).options(**options).load()
    return observed(spark.readStream.format(FORMAT).options(**options, includePace="true").load())


def _batch(spark: "SparkSession", plan: Plan, limits: Limits | None) -> str:
    decoded = _read(spark, plan)
    table = points(decoded)
    if plan.dead_letters:
        dead_letters(decoded).write.mode("append").parquet(plan.dead_letters)
    if plan.job == "recommend":
        return _recommend(plan, usage(as_delta(table), plan.window, plan.late))
    found = _table_job(plan, table if plan.job == "points" else as_delta(table), limits)
    if plan.job == "outliers":
        found = noisiest(table, found, plan.k, plan.capacity, plan.window)
    found.write.parquet(plan.output)
    count = spark.read.parquet(plan.output).count()
    if not count:
        _check_decoded(plan, dead_letters(decoded))
    return f"{plan.output}: {count} rows"


def _check_decoded(plan: Plan, letters: "DataFrame") -> None:
    """Say why there is nothing, if it is that nothing could be decoded."""
    first = letters.limit(1).collect()
    if first:
        raise ConfigError(
            f"{plan.source}: nothing for {plan.job} there, but what could not be decoded: {first[0]['error']}; "
            "is it what the receiver wrote, in this --format?"
        )


def _table_job(plan: Plan, table: "DataFrame", limits: Limits | None) -> "DataFrame":
    if plan.job == "points":
        return table
    if plan.job == "throttled":
        return throttled(table, plan.late, plan.late, limits)
    return usage(table, plan.window, plan.late, limits)


def _recommend(plan: Plan, table: "DataFrame") -> str:
    held = None
    if plan.hold_out:
        table = table.cache()
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
    said = f"{plan.output}: {len(rows)} quotas; look at them with: kafka-quotas plan {plan.output}"
    return said if held is None else f"{said}\n{_tried(held, read_limits(plan.output), plan.policy.most_growth)}"


def _split(table: "DataFrame", part: float) -> tuple["DataFrame", "DataFrame"]:
    """Usage before and since the moment that leaves the last `part` of the time."""
    begin = F.unix_millis("window_start")
    found = table.agg(F.min(begin).alias("first"), F.max(begin).alias("last")).collect()[0]
    cut = (found["last"] or 0) - part * ((found["last"] or 0) - (found["first"] or 0))
    return table.where(begin < cut), table.where(begin >= cut)


def _tried(held: "DataFrame", limits: Limits, most_growth: float) -> str:
    """How the recommendation would have done."""
    found = (
        backtest(held, limits, most_growth)
        .agg(
            F.count("*").alias("clients"),
            F.count_if(F.col("throttles") > 0).alias("throttled"),
            F.coalesce(F.sum("throttled_ms"), F.lit(0)).alias("throttled_ms"),
            F.coalesce(F.sum("seconds"), F.lit(0)).alias("seconds"),
        )
        .collect()[0]
    )
    return (
        f"tried on the time held out: {found['throttled']} of {found['clients']} clients (by broker) throttled, "
        f"{found['throttled_ms'] / 1000:.0f} of {found['seconds']} client seconds"
    )


def _stream(spark: "SparkSession", plan: Plan, limits: Limits | None) -> str:
    if plan.job == "recommend":
        raise ConfigError("recommend looks at a span of time as a whole: run it without a checkpoint")
    assert plan.checkpoint is not None, "what makes it a stream"
    kept = ("job", "source", "window", "late") if plan.client else ("job", "source", "source_format", "window", "late")
    claim(spark, plan.checkpoint, {name: getattr(plan, name) for name in kept})
    table = points(_read(spark, plan))
    writer = _table_job(plan, table, limits).writeStream.option("checkpointLocation", plan.checkpoint)
    if not plan.is_endless:
        writer = writer.trigger(availableNow=True)
    if plan.job == "outliers":
        query = writer.foreachBatch(lambda rows, number: _write_outliers(plan, rows, number)).start()
    else:
        query = writer.format("parquet").outputMode("append").start(plan.output)
    query.awaitTermination()
    return f"{plan.output}: {_told(query.recentProgress)}"


def _told(progress: list[Any]) -> str:
    """What the query's progress comes to."""
    words = [f"{sum(each['numInputRows'] for each in progress)} rows read in {len(progress)} batches"]
    rows, size = state_of(progress)
    if rows:
        words.append(f"state of at most {rows} rows, {size} bytes")
    _, throttle_ms = throttled_of(progress, FORMAT)
    if throttle_ms:
        words.append(f"brokers throttled its tasks for {throttle_ms} ms together")
    return "; ".join(words)


def _write_outliers(plan: Plan, rows: "DataFrame", number: int) -> None:
    """A directory per batch: done again, it holds the same."""
    found = outliers(rows, plan.k, plan.capacity)
    found.write.mode("overwrite").parquet(f"{plan.output}/batch={number}")
