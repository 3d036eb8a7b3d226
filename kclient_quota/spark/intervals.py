"""How often the clients push, as a sample of what they have pushed says, and what that means for windows and gaps."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.errors import ConfigError
from kclient_quota.spark.durations import duration_ms, spark_words, told
from kclient_quota.spark.jobs.usage import PUSH_INTERVAL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kclient_quota.spark.plan import Plan

SAMPLE: Final = 50_000
"""So many rows are looked at."""

_MOST: Final = 0.95
_MINUTE_MS: Final = 60_000
_JITTER: Final = 0.4
"""A client's first push comes up to half an interval earlier or later than agreed (KIP-714): no reason to refuse."""


def seen_ms(points: "DataFrame") -> int | None:
    """The push interval that all but the few longest keep to, in ms; None when nothing there tells.

    Args:
        points: of a batch, in the shape `measures.MEASURED`.
    """
    span = F.when(F.col("temporality") == "delta", F.col("time_ms") - F.col("start_ms"))
    interval = F.coalesce("push_interval_ms", F.when(span > 0, span))
    found = points.select(interval.alias("interval")).where("interval > 0").limit(SAMPLE)
    value = found.agg(F.percentile_approx("interval", _MOST).alias("interval")).collect()[0]["interval"]
    return None if value is None else round(value / 1_000) * 1_000 or int(value)


def settled(plan: "Plan", interval_ms: int | None) -> tuple["Plan", list[str]]:
    """The plan with a window and a push interval, and what there is to tell about them.

    Args:
        plan: what was asked for.
        interval_ms: of `seen_ms`.

    Raises:
        ConfigError: a length that was asked for cannot work with pushes that come so seldom.
    """
    known_ms = interval_ms or duration_ms("push_interval", plan.push_interval or PUSH_INTERVAL)
    _check(plan, interval_ms)
    window_ms = duration_ms("window", plan.window) if plan.window else _window_ms(known_ms)
    given = plan.push_interval or spark_words(known_ms)
    words = []
    if plan.job in {"usage", "outliers", "recommend", "whatif", "gains"}:
        seen = f"clients push every {told(interval_ms)}" if interval_ms else "nobody tells how often clients push"
        words.append(f"{seen}; windows of {told(window_ms)}")
        if interval_ms and window_ms < interval_ms * (1 - _JITTER):
            words.append("windows shorter than the time between pushes show the mean of each push, not what is within")
    return replace(plan, window=spark_words(window_ms), push_interval=given), words


def _window_ms(interval_ms: int) -> int:
    return max(-(-interval_ms // _MINUTE_MS) * _MINUTE_MS, _MINUTE_MS)


def _check(plan: "Plan", interval_ms: int | None) -> None:
    if interval_ms is None:
        return
    least_ms = interval_ms * (1 - _JITTER)
    if plan.job == "throttled" and plan.gap and duration_ms("gap", plan.gap) < least_ms:
        raise ConfigError(
            f"gap {plan.gap}: clients push every {told(interval_ms)}, so that every push would be a session of its "
            f"own; write {told(2 * interval_ms)} or more, or leave it out"
        )
    if plan.checkpoint and plan.push_interval and duration_ms("push_interval", plan.push_interval) < least_ms:
        raise ConfigError(
            f"push_interval {plan.push_interval}: clients push every {told(interval_ms)}; windows would end before "
            "their pushes have come; write as much, or leave it out"
        )
