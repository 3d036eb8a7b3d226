"""What a report shows, out of what jobs have written: so many rows, however many clients there are."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.errors import ConfigError
from kclient_quota.spark.jobs.backtest import Verdict, verdict
from kclient_quota.spark.jobs.demand import with_demand
from kclient_quota.spark.quota_table import Limits, limit_of, read_limits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOP: Final = 20
"""How many clients each picture and table has."""

TIMES: Final = 72
"""How many columns the heat map has."""

BINS: Final = 40
"""How many bars the histogram of utilisation has; the last one is everything above, too."""

UTILISATION: Final = 2.0
"""Where the axes of utilisation end, 1 being the quota."""

_CLIENT: Final = ("user", "client_id", "role")


@dataclass(slots=True)
class Heat:
    """Throttling by client and time.

    Attributes:
        clients: names, the most throttled first.
        begin_ms: of the first column.
        width_ms: of a column.
        seconds: by client and column, the longest throttle time; 0 where nobody was throttled, None where nothing came.
    """

    clients: list[str]
    begin_ms: int
    width_ms: int
    seconds: list[list[float | None]]


@dataclass(slots=True)
class Tables:
    """All that a report shows; what no job has written stays empty.

    Attributes:
        facts: what is counted over everything, label to text.
        heat: of `usage`.
        utilisation: of `usage`, for the clients that come nearest to their quota: name, median, highest.
        spread: of `usage`: how many windows of a client have a utilisation in each of `BINS` bars up to `UTILISATION`.
        sessions: of `throttled`, the deepest.
        outliers: of `outliers`: name, in how many places and windows, mean share, highest rate, containing quota.
        quotas: of `recommend`, for the busiest clients: name, demand, quota before, quota after (None: no limit).
        verdicts: before and after.
    """

    facts: dict[str, str] = field(default_factory=dict)
    heat: Heat | None = None
    utilisation: list[tuple[str, float, float]] = field(default_factory=list)
    spread: list[int] = field(default_factory=list)
    sessions: list[dict[str, Any]] = field(default_factory=list)
    outliers: list[dict[str, Any]] = field(default_factory=list)
    quotas: list[tuple[str, float, float | None, float | None]] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


def collect(spark: "SparkSession", directory: Path) -> Tables:
    """Read `usage`, `throttled` and `outliers` (directories, with or without .parquet), recommended.yaml, quotas.yaml.

    Raises:
        ConfigError: no job has written anything there.
    """
    found = Tables()
    usage = _table(spark, directory, "usage")
    throttled = _table(spark, directory, "throttled")
    outliers = _table(spark, directory, "outliers")
    if usage is None and throttled is None and outliers is None:
        raise ConfigError(
            f"input {directory}: there is none of the directories usage, throttled and outliers; write them with: "
            f"kclient-quota pipeline usage --output {directory}/usage"
        )
    if usage is not None:
        usage = usage.cache()
        found.facts = _facts(usage)
        found.heat = _heat(usage)
        found.utilisation, found.spread = _utilisation(usage)
        before, after = (_limits(directory, name) for name in ("quotas", "recommended"))
        if after is not None:
            wanted = with_demand(usage).cache()
            found.quotas = _quotas(wanted, before or {}, after)
            found.verdicts = [verdict("recommended", wanted, after)]
            if before is not None:
                found.verdicts.insert(0, verdict("in force", wanted, before))
            wanted.unpersist()
        usage.unpersist()
    if throttled is not None:
        order = throttled.orderBy(F.col("depth_ms").desc_nulls_last(), "start").limit(TOP)
        order = order.withColumns({f"{name}_ms": F.unix_millis(name) for name in ("start", "end")})
        found.sessions = [_session(row.asDict()) for row in order.collect()]
    if outliers is not None:
        found.outliers = _outliers(outliers)
    return found


def _table(spark: "SparkSession", directory: Path, name: str) -> "DataFrame | None":
    for path in (directory / name, directory / f"{name}.parquet"):
        if path.exists():
            return spark.read.option("recursiveFileLookup", "true").parquet(str(path))
    return None


def _limits(directory: Path, name: str) -> Limits | None:
    path = directory / f"{name}.yaml"
    return read_limits(path) if path.exists() else None


def client_name(row: Any) -> str:
    """User and client-id as one text; the role only where it is no producer's."""
    who = " / ".join(str(row[name]) for name in ("user", "client_id") if row[name])
    return f"{who or 'unknown'}{' (consumer)' if row['role'] == 'consumer' else ''}"


def _facts(usage: "DataFrame") -> dict[str, str]:
    each = usage.groupBy(*_CLIENT).agg(F.max("throttle_max_ms").alias("most"))
    clients = each.agg(F.count("*").alias("all"), F.count_if(F.col("most") > 0).alias("throttled")).collect()[0]
    row = usage.agg(
        F.unix_millis(F.min("window_start")).alias("begin"),
        F.unix_millis(F.max("window_end")).alias("end"),
        F.count_distinct("broker").alias("brokers"),
        F.max("throttle_max_ms").alias("longest"),
        F.count_if(F.col("utilisation") > 1).alias("above"),
        F.count("utilisation").alias("windows"),
    ).collect()[0]
    above = f"{row['above']:,} of {row['windows']:,} windows of clients" if row["windows"] else "no quotas known"
    return {
        "time": _span(row["begin"], row["end"]) if row["begin"] else "nothing",
        "clients (user, client-id, role)": f"{clients['all']:,} on {row['brokers']:,} brokers",
        "throttled at some time": f"{clients['throttled']:,}",
        "longest throttle time": f"{(row['longest'] or 0) / 1000:,.3f} s",
        "above the quota": above,
    }


def _utc(at_ms: int) -> datetime:
    """A driver's own time zone plays no part: what Spark collects would be in it."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)


def _span(begin_ms: int, end_ms: int) -> str:
    begin, end = _utc(begin_ms), _utc(end_ms)
    until = f"{end:%H:%M}" if begin.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"
    return f"{begin:%Y-%m-%d %H:%M} to {until} UTC"


def _heat(usage: "DataFrame") -> Heat | None:
    throttled = usage.where(F.col("throttle_max_ms") > 0)
    worst = throttled.groupBy(*_CLIENT).agg(
        F.sum("throttle_avg_ms").alias("_sum"), F.max("throttle_max_ms").alias("_max")
    )
    rows = worst.orderBy(F.col("_sum").desc_nulls_last(), F.col("_max").desc(), *_CLIENT).limit(TOP).collect()
    if not rows:
        return None
    begin, end = F.unix_millis(F.min("window_start")), F.unix_millis(F.max("window_end"))
    length = F.max(F.unix_millis("window_end") - F.unix_millis("window_start"))
    span = usage.agg(begin.alias("begin"), end.alias("end"), length.alias("length")).collect()[0]
    columns = -(-(span["end"] - span["begin"]) // span["length"])
    width_ms = span["length"] * -(-columns // TIMES)
    names = {tuple(row[name] for name in _CLIENT): place for place, row in enumerate(rows)}
    bins = F.floor((F.unix_millis("window_start") - span["begin"]) / width_ms)
    marks = worst.sparkSession.createDataFrame(
        [(*who, place) for who, place in names.items()], "user string, client_id string, role string, _place int"
    )
    same = [F.col(f"u.{name}").eqNullSafe(F.col(f"m.{name}")) for name in _CLIENT]
    cells = (
        usage.where(F.col("throttle_max_ms").isNotNull())
        .alias("u")
        .join(F.broadcast(marks.alias("m")), same)
        .groupBy("_place", bins.alias("_bin"))
        .agg(F.max("throttle_max_ms").alias("most"))
        .collect()
    )
    seconds: list[list[float | None]] = [[None] * -(-(span["end"] - span["begin"]) // width_ms) for _ in rows]
    for cell in cells:
        seconds[cell["_place"]][cell["_bin"]] = cell["most"] / 1000
    return Heat([client_name(row) for row in rows], span["begin"], width_ms, seconds)


def _utilisation(usage: "DataFrame") -> tuple[list[tuple[str, float, float]], list[int]]:
    known = usage.where(F.col("utilisation").isNotNull())
    found = known.groupBy(*_CLIENT).agg(
        F.percentile_approx("utilisation", 0.5).alias("median"), F.max("utilisation").alias("most")
    )
    rows = found.orderBy(F.col("most").desc(), *_CLIENT).limit(TOP).collect()
    bars = F.least(F.floor(F.col("utilisation") / (UTILISATION / BINS)), F.lit(BINS - 1)).cast("int")
    counted = {row["bar"]: row["count"] for row in known.groupBy(bars.alias("bar")).count().collect()}
    spread = [counted.get(bar, 0) for bar in range(BINS)] if counted else []
    return [(client_name(row), row["median"], row["most"]) for row in rows], spread


def _session(row: dict[str, Any]) -> dict[str, Any]:
    headroom = row["heartbeat_headroom_ms"]
    return {
        "client": client_name(row),
        "since, UTC": f"{_utc(row['start_ms']):%Y-%m-%d %H:%M:%S}",
        "until, UTC": f"{_utc(row['end_ms']):%Y-%m-%d %H:%M:%S}",
        "longest, s": f"{(row['depth_ms'] or 0) / 1000:,.3f}",
        "quota": row["quota_level"] or "unknown",
        "group": row["group_id"] or "",
        "head-room, s": "" if headroom is None else f"{headroom / 1000:,.0f}",
    }


def _outliers(outliers: "DataFrame") -> list[dict[str, Any]]:
    found = outliers.groupBy(*_CLIENT).agg(
        F.count("*").alias("times"),
        F.avg("share").alias("share"),
        F.max("byte_rate").alias("most"),
        F.max("containing_quota").alias("contained"),
    )
    rows = found.orderBy(F.col("share").desc_nulls_last(), F.col("most").desc(), *_CLIENT).limit(TOP).collect()
    return [{**row.asDict(), "client": client_name(row)} for row in rows]


def _quotas(wanted: "DataFrame", before: Limits, after: Limits) -> list[tuple[str, float, float | None, float | None]]:
    known = wanted.where(F.col("demand").isNotNull() & F.col("broker").isNotNull())
    found = known.groupBy(*_CLIENT).agg(F.percentile_approx("demand", 0.95).alias("demand"))
    rows = found.orderBy(F.col("demand").desc(), *_CLIENT).limit(TOP).collect()
    return [
        (
            client_name(row),
            row["demand"],
            *(limit_of(limits, *(row[name] for name in _CLIENT))[1] for limits in (before, after)),
        )
        for row in rows
    ]
