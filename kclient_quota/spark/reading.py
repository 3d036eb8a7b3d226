"""What a plan reads, as a batch or as a stream."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.errors import ConfigError
from kclient_quota.spark.decode import decode, points
from kclient_quota.spark.decoding.point_rows import ALL
from kclient_quota.spark.files import read_files
from kclient_quota.spark.intervals import seen_ms
from kclient_quota.spark.jobs.closed_windows import WHO
from kclient_quota.spark.jobs.gains import MEASURES
from kclient_quota.spark.kafka.jvm_source import read_kafka
from kclient_quota.spark.kafka.offsets import limited
from kclient_quota.spark.kafka.source import FORMAT, KafkaSource, SourceOptions, observed
from kclient_quota.spark.measures import MEASURED, PUSHED
from kclient_quota.spark.plan import PYTHON, Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OF_USAGE: Final = ("usage", "outliers")
_PEEK: Final = 2_000


def read(spark: "SparkSession", plan: Plan, *, is_stream: bool) -> "DataFrame":
    """What the plan's source holds, decoded to the shape that its job needs."""
    shape = ALL if plan.job == "points" else PUSHED if is_stream and plan.job in _OF_USAGE else MEASURED
    shape = replace(shape, measures=MEASURES) if plan.job == "gains" else shape
    shape = replace(shape, clock_tolerance_ms=plan.clock_tolerance_ms)
    if plan.client is None:
        return read_files(spark, plan.source, plan.source_format, is_stream=is_stream, shape=shape)
    pushes = _topic(spark, source_options(plan, is_stream=is_stream), plan.connector, is_stream=is_stream)
    return decode(pushes.withColumn("received_unix_ms", F.unix_millis("timestamp")), shape)


def written_usage(spark: "SparkSession", path: str) -> "DataFrame":
    """What the job `usage` has written.

    Raises:
        ConfigError: it has not.
    """
    found = spark.read.parquet(path)
    missing = [name for name in ("window_start", "window_end", *WHO, "byte_rate") if name not in found.columns]
    if missing:
        raise ConfigError(f"{path} has no column {missing[0]}: is it what the job usage has written?")
    return found


def source_options(plan: Plan, *, is_stream: bool) -> dict[str, str]:
    """Options of the source of a topic."""
    options = {"subscribe": plan.source, "startingOffsets": "earliest", **plan.source_options}
    if "subscribePattern" in options:
        del options["subscribe"]
    options |= {f"kafka.{key}": str(value) for key, value in (plan.client or {}).items()}
    if is_stream and plan.max_rows is not None:
        options["maxOffsetsPerTrigger"] = str(plan.max_rows)
    return options


def _topic(spark: "SparkSession", options: dict[str, str], connector: str, *, is_stream: bool) -> "DataFrame":
    if connector != PYTHON:
        return read_kafka(spark, options, is_stream=is_stream)
    spark.dataSource.register(KafkaSource)
    if not is_stream:
        return spark.read.format(FORMAT).options(**options).load()
    return observed(spark.readStream.format(FORMAT).options(**options, includePace="true").load())


def peek(spark: "SparkSession", plan: Plan) -> int | None:
    """The push interval, as the first of what the source holds says; None: nothing is there, or says it."""
    some = replace(plan, checkpoint=None, max_rows=None, job="throttled")
    if plan.client is not None:
        options = {name: value for name, value in plan.source_options.items() if name.startswith("subscribe")}
        brokers = SourceOptions(source_options(replace(plan, source_options=options), is_stream=False)).brokers()
        try:
            first, last = brokers.offsets()
        finally:
            brokers.close()
        options |= {"startingOffsets": json.dumps(first)}
        options |= {"endingOffsets": json.dumps(limited(first, last, first, _PEEK))}
        some = replace(some, source_options=options)
    elif not any(Path(plan.source).glob("*")) and "://" not in plan.source:
        return None
    return seen_ms(points(read(spark, some, is_stream=False)))
