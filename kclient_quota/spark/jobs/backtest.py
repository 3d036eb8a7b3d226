"""What recommended quotas would have done to those who worked since: the broker's own quota code on their usage.

Every second a client has to send what it wanted to on average in that window: what it sent, and what its quota did not
let through (see `demand`). Whatever it may not send while the broker has it muted it sends when the mute ends, all at
once.

| column | unit | meaning |
| --- | --- | --- |
| user, client_id, role, broker | | who, as what, where |
| quota | bytes/s | what would have applied |
| seconds | s | that were looked at |
| throttles | | answers with a throttle time |
| throttled_ms | ms | their sum, as far as they lie within that time |
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.quota.rate import SampledRate
from kclient_quota.quota.throttle import throttle_time_ms
from kclient_quota.spark.jobs.demand import MOST_GROWTH, with_demand
from kclient_quota.spark.quota_table import Limits, with_quotas

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped] # pandas ships no types
    from pyspark.sql import DataFrame

_WHO: Final = ("user", "client_id", "role", "broker")
_COLUMNS: Final = (
    "user string, client_id string, role string, broker string, quota double, seconds bigint, throttles bigint, "
    "throttled_ms bigint"
)


def backtest(usage: "DataFrame", limits: Limits, most_growth: float = MOST_GROWTH) -> "DataFrame":
    """Throttling of every client on every broker under `limits`; spread over executors.

    Args:
        usage: rows of the job `usage` of the time to test on, or what `with_demand` made of them; those of a broker
            with a byte rate count.
        limits: such as `quota_table.read_limits` of a recommended file.
        most_growth: of `with_demand`.
    """
    wanted = usage if "demand" in usage.columns else with_demand(usage, most_growth)
    known = wanted.where(F.col("broker").isNotNull() & F.col("demand").isNotNull())
    begin, end = (F.unix_millis(name).alias(name) for name in ("window_start", "window_end"))
    limited = with_quotas(known.select(begin, end, *_WHO, "demand"), limits).where(F.col("quota").isNotNull())
    return limited.groupBy(*_WHO).applyInPandas(_one, _COLUMNS)


def throttling(windows: Iterable[tuple[int, int, float]], quota: float) -> tuple[int, int, int]:
    """What the broker's quota code says to one client.

    Args:
        windows: (begin, end, bytes per second), times in ms, in order.
        quota: bytes per second.

    Returns:
        seconds looked at, answers with a throttle time, sum of these in ms up to the end of the last window.
    """
    windows = list(windows)
    last_ms = max((end_ms for _, end_ms, _ in windows), default=0)
    rate = SampledRate()
    seconds = throttles = throttled_ms = muted_until_ms = 0
    waiting = 0.0
    for begin_ms, end_ms, offered in windows:
        for now_ms in range(begin_ms, end_ms, 1_000):
            seconds += 1
            waiting += offered
            if now_ms < muted_until_ms:
                continue
            rate.record(waiting, now_ms)
            waiting = 0.0
            value = rate.measure(now_ms)
            if value > quota:
                delay_ms = throttle_time_ms(value, quota, rate.window_size_ms(now_ms))
                throttles += delay_ms > 0
                throttled_ms += min(delay_ms, last_ms - now_ms)
                muted_until_ms = now_ms + delay_ms
    return seconds, throttles, throttled_ms


def _one(rows: "pd.DataFrame") -> "pd.DataFrame":
    rows = rows.sort_values("window_start")
    quota = float(rows["quota"].iloc[0])
    windows = zip(rows["window_start"].tolist(), rows["window_end"].tolist(), rows["demand"].tolist(), strict=True)
    found = rows.head(1)[[*_WHO, "quota"]].copy()
    found["seconds"], found["throttles"], found["throttled_ms"] = throttling(windows, quota)
    return found
