"""A job as a stream: exactly once into files or a table, what cannot be decoded beside it, and what came of it."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.errors import ConfigError
from kclient_quota.spark.decode import dead_letters, points
from kclient_quota.spark.durations import duration_ms
from kclient_quota.spark.intervals import settled
from kclient_quota.spark.jobs.outliers import outliers
from kclient_quota.spark.plan import PARQUET
from kclient_quota.spark.reading import peek, read
from kclient_quota.spark.rows import table_job
from kclient_quota.spark.streaming.checkpoint import (
    check_new,
    check_new_letters,
    check_whole,
    claim,
    marked,
    take_output,
)
from kclient_quota.spark.streaming.output import laid_out, start_stream
from kclient_quota.spark.streaming.progress import LETTERS, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from kclient_quota.spark.plan import Plan
    from kclient_quota.spark.quota_table import Limits

_LOOK_S: Final = 1
_SETTLED: Final = ("window", "push_interval")


def run_stream(spark: "SparkSession", plan: "Plan", limits: "Limits | None") -> str:
    """Run it until it has caught up, or for ever.

    Returns:
        what was written, and what there is to know about it, in lines.

    Raises:
        ConfigError: the checkpoint or the output is of something else.
    """
    checkpoint = plan.checkpoint
    assert checkpoint is not None, "what makes it a stream"
    plan, words = _settled(spark, plan, checkpoint)
    is_new = marked(spark, checkpoint) is None
    if is_new:
        check_new(spark, checkpoint, plan.output, is_table=plan.is_table)
    if plan.dead_letters:
        check_new_letters(spark, _of_letters(checkpoint), plan.dead_letters)
    # other formats and tables know who writes: Delta has a log of its own
    if is_new and plan.output_format == PARQUET and not plan.is_table:
        take_output(spark, checkpoint, plan.output)
    claim(spark, checkpoint, _facts(plan))
    if plan.client is None:
        check_whole(spark, checkpoint)
    watch = Watch(f"kclient-quota {plan.job} {uuid4()}")
    spark.streams.addListener(watch)
    queries = []
    try:
        queries.append(_start(spark, plan, limits, checkpoint, watch.name))
        if plan.dead_letters:
            queries.append(_start_letters(spark, plan, checkpoint, plan.dead_letters))
        _wait(queries)
        totals = watch.wait()
    finally:
        for query in queries:
            query.stop()
        spark.streams.removeListener(watch)
    return "\n".join([f"{plan.output}: {totals.told()}", *words])


def _settled(spark: "SparkSession", plan: "Plan", checkpoint: str) -> tuple["Plan", list[str]]:
    """The plan's lengths: those that the stream began with, else those that what is there asks for."""
    known = marked(spark, checkpoint)
    if known is None:
        return settled(plan, None if plan.job == "points" else peek(spark, plan))
    for name in _SETTLED:
        given, kept = getattr(plan, name), known.get(name)
        if kept is not None and given is not None and duration_ms(name, given) != duration_ms(name, kept):
            raise ConfigError(f"checkpoint {checkpoint} is of a stream with {name} {kept}, this one has {given}")
    return replace(plan, window=known.get("window"), push_interval=known.get("push_interval")), []


def _facts(plan: "Plan") -> dict[str, object]:
    kept = ["job", "source", "late", "gap", "output_format", *_SETTLED]
    facts = {name: getattr(plan, name) for name in (kept if plan.client else [*kept, "source_format"])}
    # of files beside directories of columns Spark reads one or the other, without a word
    return {**facts, "partition_by": ",".join(plan.partition_by) or None}


def _start(
    spark: "SparkSession", plan: "Plan", limits: "Limits | None", checkpoint: str, name: str
) -> "StreamingQuery":
    decoded = read(spark, plan, is_stream=True)
    decoded = decoded.observe(LETTERS, F.count_if(F.col("error").isNotNull()).alias("letters"))
    rows = table_job(plan, points(decoded), limits)
    if plan.job == "outliers":
        writer = _paced(plan, rows.writeStream).option("checkpointLocation", checkpoint).queryName(name)
        return writer.foreachBatch(lambda found, number: _write_outliers(plan, found, number)).start()
    writer = _paced(plan, laid_out(plan, rows).writeStream).option("checkpointLocation", checkpoint).queryName(name)
    return start_stream(plan, writer)


def _start_letters(spark: "SparkSession", plan: "Plan", checkpoint: str, output: str) -> "StreamingQuery":
    """A query of its own, with a checkpoint of its own: it reads the source again, and is as exact as the other."""
    letters = dead_letters(read(spark, plan, is_stream=True))
    writer = _paced(plan, letters.writeStream).option("checkpointLocation", _of_letters(checkpoint))
    return writer.format(PARQUET).start(output)


def _of_letters(checkpoint: str) -> str:
    return f"{checkpoint}/dead-letters"


def _paced(plan: "Plan", writer: "DataStreamWriter") -> "DataStreamWriter":
    if not plan.is_endless:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=plan.trigger) if plan.trigger else writer


def _wait(queries: list["StreamingQuery"]) -> None:
    """Until all have ended; if one fails, its error, and nobody goes on."""
    running = list(queries)
    while running:
        running = [query for query in running if not query.awaitTermination(_LOOK_S)]


def _write_outliers(plan: "Plan", rows: "DataFrame", number: int) -> None:
    """A directory per batch: done again, it holds the same."""
    found = outliers(rows, plan.k, plan.capacity)
    found.write.mode("overwrite").parquet(f"{plan.output}/batch={number}")
