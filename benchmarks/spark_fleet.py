"""Fleets as rows made inside Spark: `python -m benchmarks.spark_fleet [CLIENTS [HOURS...]]`.

Every client pushes every five minutes; `usage` by five minutes and `recommend` look at all of it. Told are the time and
how large the driver's Python and its JVM got, for each number of hours: what does not grow with the hours is bounded.
Half of the clients share one user's quota, so that skew is part of it.
"""

import resource
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from benchmarks.spark_processes import cost, jvm_of
from kclient_quota.spark.jobs.recommend import Policy, recommend
from kclient_quota.spark.jobs.usage import usage
from kclient_quota.spark.measures import PUSHED
from kclient_quota.spark.point_rows import seconds_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INTERVAL_S: Final = 300
BEGIN_S: Final = 1_800_000_000
RATE: Final = 1_000
QUOTA: Final = 1e6
_MEBI: Final = 1024 * 1024


def pushes(spark: "SparkSession", clients: int, hours: float) -> "DataFrame":
    """Rows of the shape `PUSHED`, none of which has been on the driver: client n does (1 + n % 10) kB/s."""
    each = round(hours * 3600 / INTERVAL_S)
    number, turn = F.col("id") % clients, F.floor(F.col("id") / clients) + 1
    at_s = BEGIN_S + turn * INTERVAL_S + number % INTERVAL_S
    made: dict[str, Any] = {
        "client_instance_id": F.concat(F.lit("i"), number),
        "client_id": F.concat(F.lit("app-"), number),
        "user": F.when(number % 2 == 0, F.lit("shared")).otherwise(F.concat(F.lit("user-"), number % 1_000)),
        "broker": F.lit("1"),
        "cluster_id": F.lit("k"),
        "push_interval_ms": F.lit(INTERVAL_S * 1000).cast("bigint"),
        "role": F.lit("producer"),
        "time": F.timestamp_seconds(at_s),
        "bytes": ((1 + number % 10) * RATE * INTERVAL_S).cast("double"),
        seconds_of("bytes"): F.lit(float(INTERVAL_S)),
    }
    rows = spark.range(clients * each)
    kinds = {"time": "timestamp", "push_interval_ms": "bigint"}
    texts = {"client_instance_id", "client_id", "user", "group_id", "broker", "cluster_id", "role"}
    return rows.select(
        *(
            made.get(name, F.lit(None)).cast(kinds.get(name, "string" if name in texts else "double")).alias(name)
            for name in PUSHED.schema.names
        )
    )


def measure(spark: "SparkSession", clients: int, hours: float) -> tuple[int, float, float, int]:
    """Look at a fleet.

    Returns:
        rows of usage, the sum of their byte rates in the middle of the time as a part of what it should be, seconds,
        overrides and defaults recommended.
    """
    begin = time.monotonic()
    limits = {"producer_byte_rate": {("shared", None): QUOTA}}
    table = usage(pushes(spark, clients, hours), "5 minutes", limits=limits).cache()
    middle = BEGIN_S + round(hours * 1800 / INTERVAL_S) * INTERVAL_S
    in_middle = table.where(F.unix_millis("window_start") == (middle + INTERVAL_S) * 1000)
    found = in_middle.agg(F.sum("byte_rate").alias("rate")).collect()[0]["rate"]
    rows = table.count()
    quotas = len(recommend(table, Policy("user", default_quantile=0.5)).limit(1_000).collect())
    table.unpersist()
    wanted = sum(1 + number % 10 for number in range(clients)) * RATE
    return rows, found / wanted, time.monotonic() - begin, quotas


def main() -> None:
    """Print a line for each number of hours."""
    from kclient_quota.spark.session import session  # noqa: PLC0415 - starts Spark

    clients = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    spark = session("fleet", "local[2]", {"spark.log.level": "ERROR", "spark.driver.memory": "2g"})
    jvm = jvm_of(spark)
    for hours in map(float, sys.argv[2:] or ["1", "6"]):
        rows, part, seconds, quotas = measure(spark, clients, hours)
        python = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _MEBI
        java = cost(jvm).jvm_bytes / _MEBI
        print(
            f"{clients:,} clients, {hours:g} h: {rows:,} rows of usage ({part:.3f} of the true rate) and "
            f"{quotas} quotas in {seconds:,.1f} s; driver: Python {python:,.0f} MiB, JVM {java:,.0f} MiB"
        )
    spark.stop()


if __name__ == "__main__":
    main()
