"""What jobs have written, as SQL views: one of each job's name, and a few that answer what is asked most.

| view | a row is | made of |
| --- | --- | --- |
| usage, throttled, outliers, whatif, gains, points | what the job of that name wrote | its directory |
| clients | a user, client-id and role: mean and highest rate, throttled how often, highest utilisation | usage |
| over_quota | a window in which those who share a quota together did more than it allows | usage |
| throttled_hours | an hour and broker in which anybody was throttled: how many, how long at most | usage |
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kclient_quota.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES: Final = ("usage", "throttled", "outliers", "whatif", "gains", "points")

_OF_USAGE: Final = {
    "clients": """
        select user, client_id, role, count_if(byte_rate is not null) as windows,
               avg(byte_rate) as byte_rate_mean, max(byte_rate) as byte_rate_highest,
               count_if(throttle_max_ms > 0) as windows_throttled, max(throttle_max_ms) as throttle_max_ms,
               max(utilisation) as utilisation_highest
        from usage group by user, client_id, role
    """,
    "over_quota": """
        select window_start, window_end, cluster_id, broker, role, quota_level, quota_user, quota_client_id, quota,
               max(quota_byte_rate) as byte_rate, max(utilisation) as utilisation, count(*) as sharers
        from usage where utilisation > 1
        group by window_start, window_end, cluster_id, broker, role, quota_level, quota_user, quota_client_id, quota
    """,
    "throttled_hours": """
        select date_trunc('hour', window_start) as hour, cluster_id, broker,
               count(distinct user, client_id) as clients, max(throttle_max_ms) as throttle_max_ms
        from usage where throttle_max_ms > 0 group by date_trunc('hour', window_start), cluster_id, broker
    """,
}


def create_views(spark: "SparkSession", directory: Path | str) -> list[str]:
    """Make them in the session; what is there already under a name is replaced.

    Args:
        spark: the session.
        directory: holds what jobs have written, each in a directory of the job's name.

    Returns:
        the names of the views that there are now.

    Raises:
        ConfigError: no job has written anything there.
    """
    found = [name for name in TABLES if (Path(directory) / name).is_dir()]
    if not found:
        raise ConfigError(f"input {directory}: there is none of the directories {', '.join(TABLES)}")
    for name in found:
        rows = spark.read.option("recursiveFileLookup", "true").parquet(str(Path(directory) / name))
        rows.createOrReplaceTempView(name)
    if "usage" not in found:
        return found
    for name, query in _OF_USAGE.items():
        spark.sql(query).createOrReplaceTempView(name)
    return [*found, *_OF_USAGE]


def answer(spark: "SparkSession", directory: Path | str, query: str | None, most: int = 100) -> str:
    """The first rows that a query gives, as text; without a query the names of the views and their columns."""
    names = create_views(spark, directory)
    if query is None:
        return "\n".join(f"{name}: {', '.join(spark.table(name).columns)}" for name in names)
    rows = spark.sql(query)
    lines = [[_text(each) for each in row] for row in rows.limit(most).collect()]
    widths = [max(map(len, column)) for column in zip(rows.columns, *lines, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in (rows.columns, *lines)
    )


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 1 else f"{value:,.6g}"
    return "" if value is None else str(value)
