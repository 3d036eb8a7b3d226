"""Which pushed metrics say how much a client does and how it is throttled, whichever client pushed them."""

from itertools import product
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.spark.decoding.point_rows import NODE, Shape, seconds_of
from kclient_quota.spark.decoding.schema import COLUMNS, SENDER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"

BYTES, REQUESTS = "bytes", "requests"
BYTE_RATE, REQUEST_RATE = "byte_rate", "request_rate"
THROTTLE_AVG, THROTTLE_MAX, THROTTLE_TOTAL = "throttle_avg_ms", "throttle_max_ms", "throttle_total_ms"
THROTTLE_COUNT = "throttles"
WAIT_TOTAL = "wait_total_ms"
WAIT_WALL = "wait_wall_ms"

_DIRECTION: Final = {PRODUCER: "outgoing", CONSUMER: "incoming"}
_THROTTLED: Final = {PRODUCER: "produce", CONSUMER: "fetch"}
_OF_CLIENT: Final = {PRODUCER: "producer", CONSUMER: "consumer.fetch.manager"}


def _names() -> dict[str, tuple[str, str]]:
    """Metric -> (role, measure). Names with `.node.` are per broker, the others of the whole client."""
    names = {}
    for role, node in product((PRODUCER, CONSUMER), ("", ".node")):
        prefix = f"org.apache.kafka.{role}{node}"
        names[f"{prefix}.{_DIRECTION[role]}.byte.rate"] = (role, BYTE_RATE)
        names[f"{prefix}.{_DIRECTION[role]}.byte.total"] = (role, BYTES)
        names[f"{prefix}.request.rate"] = (role, REQUEST_RATE)
        names[f"{prefix}.request.total"] = (role, REQUESTS)
        throttled = f"{prefix if node else f'org.apache.kafka.{_OF_CLIENT[role]}'}.{_THROTTLED[role]}.throttle"
        names[f"{throttled}.time.avg"] = (role, THROTTLE_AVG)
        names[f"{throttled}.time.max"] = (role, THROTTLE_MAX)
        names[f"{throttled}.time.total"] = (role, THROTTLE_TOTAL)
        names[f"{throttled}.count"] = (role, THROTTLE_COUNT)
    for role in (PRODUCER, CONSUMER):
        names[f"org.apache.kafka.{role}.quota.wait.time.total"] = (role, WAIT_TOTAL)
        names[f"org.apache.kafka.{role}.quota.wait.wall.time.total"] = (role, WAIT_WALL)
    return names


METRICS: Final = _names()
"""Metric -> (role, measure), of Java's clients, librdkafka's and ours."""

MEASURED: Final = Shape(
    columns=tuple(
        name
        for name in COLUMNS
        if name in {*SENDER, "metric", "kind", "temporality", "start_ms", "time_ms", "value", "attributes", "time"}
        and name not in {"receiving_broker", "software_name", "software_version", "source_address", "terminating"}
    ),
    measures=METRICS,
)
"""The shape that every job but `points` needs: for `decode`, far faster than the whole table."""

SPANS: Final = (BYTES, REQUESTS, THROTTLE_TOTAL, THROTTLE_COUNT, WAIT_TOTAL, WAIT_WALL)
"""Measures that are of a span of time."""

PUSHED: Final = Shape(
    columns=("client_instance_id", "client_id", "user", "group_id", "broker", "cluster_id", "push_interval_ms", "time"),
    measures=METRICS,
    spans=SPANS,
)
"""The shape of `by_push`: for `decode`, when nothing is to be made of cumulative sums."""


def by_push(points: "DataFrame") -> "DataFrame":
    """Gauges and deltas with a column a measure and, of `SPANS`, the seconds: the columns of the shape `PUSHED`.

    Nothing to do if they have been decoded to that shape, which puts all of a push that can be put into one row there.
    Here each point is a row of its own; sums, means and highest values are the same.
    """
    if "measure" not in points.columns and set(PUSHED.schema.names) <= set(points.columns):
        return points
    seconds = (F.col("time_ms") - F.col("start_ms")) / 1000
    spans = F.when(seconds > 0, seconds)
    columns: dict[str, Column] = {name: F.when(F.col("measure") == name, F.col("value")) for name in PUSHED.values}
    columns |= {seconds_of(name): F.when(F.col("measure") == name, spans) for name in SPANS}
    found = measured(points).where((F.col("kind") != "sum") | (F.col("temporality") == "delta"))
    return found.select(*(columns.get(name, F.col(name)).alias(name) for name in PUSHED.schema.names))


def measured(points: "DataFrame", metrics: "Mapping[str, tuple[str, str]]" = METRICS) -> "DataFrame":
    """The points of some metrics, with `role` (producer, consumer) and `measure` (constants of this module).

    Nothing to do if they have been decoded to the shape `MEASURED`.
    """
    if "measure" in points.columns:
        return points
    parts = [F.lit(text) for name, (role, measure) in metrics.items() for text in (name, f"{role}/{measure}")]
    found = F.try_element_at(F.create_map(*parts), F.col("metric"))
    node = F.coalesce(*(F.try_element_at("attributes", F.lit(name)) for name in NODE))
    is_placed = node.isNull() | F.col("broker").isNotNull()  # see `decoding.point_rows.is_placed`
    return (
        points.where(F.col("metric").isin(*metrics) & F.col("value").isNotNull() & is_placed)
        .withColumn("role", F.substring_index(found, "/", 1))
        .withColumn("measure", F.substring_index(found, "/", -1))
    )


def series_key() -> list["Column"]:
    """What tells one series from another: client, metric, attributes."""
    attributes = F.to_json(F.map_from_entries(F.array_sort(F.map_entries("attributes"))))
    return [F.col("client_instance_id"), F.col("client_id"), F.col("metric"), attributes]


def as_delta(points: "DataFrame") -> "DataFrame":
    """Cumulative sums as changes since the series' last point; every other point as it is. Batches only.

    A value below the last one, or a new start, is a counter that began anew: all of it is change. The first point of
    each series is dropped, since how much of it is new is not known.
    """
    is_counter = (F.col("kind") == "sum") & (F.col("temporality") == "cumulative") & F.col("value").isNotNull()
    order = Window.partitionBy(*series_key()).orderBy("time")
    counters = (
        points.where(is_counter)
        .withColumn("_last", F.lag("value").over(order))
        .withColumn("_start", F.lag("start_ms").over(order))
        .withColumn("_time", F.lag("time").over(order))
        .where(F.col("_last").isNotNull())
    )
    anew = (F.col("value") < F.col("_last")) | (F.col("start_ms") > F.col("_start"))
    columns = {  # all at once: each is made of the values as they came
        "value": F.when(anew, F.col("value")).otherwise(F.col("value") - F.col("_last")),
        "start_ms": F.when(anew, F.col("start_ms")).otherwise(F.unix_millis("_time")),
        "temporality": F.lit("delta"),
    }
    changes = counters.withColumns(columns).drop("_last", "_start", "_time")
    return points.where(~F.coalesce(is_counter, F.lit(False))).unionByName(changes)


def as_cumulative(points: "DataFrame") -> "DataFrame":
    """Deltas of sums as running sums since the series' first point; every other point as it is. Batches only."""
    is_delta = (F.col("kind") == "sum") & (F.col("temporality") == "delta") & F.col("value").isNotNull()
    order = Window.partitionBy(*series_key()).orderBy("time").rowsBetween(Window.unboundedPreceding, 0)
    sums = (
        points.where(is_delta)
        .withColumn("value", F.sum("value").over(order))
        .withColumn("start_ms", F.first("start_ms").over(order))
        .withColumn("temporality", F.lit("cumulative"))
    )
    return points.where(~F.coalesce(is_delta, F.lit(False))).unionByName(sums)
