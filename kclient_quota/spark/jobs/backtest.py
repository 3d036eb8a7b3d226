"""What quotas would have done to those who worked since: the broker's own quota code, played on their usage.

A broker counts together what all send who share a quota (`quota_table.sharer_of`), and tells each of them to wait. So
the demand (see `demand`) of all of them is played against one quota, by so many senders as there were clients, up to
`MOST_SENDERS`. Every second a sender has to send its part; what it may not send while it is muted it sends when the
mute ends, all at once.

Windows hide bursts. What is known of them is the highest rate that each client told. Three plays say how far that
matters:

    lowest      everybody sends evenly all through the window
    estimate    everybody sends as fast as the highest rate for as long as the window's bytes last, each when it likes:
                highest rates add up as independent ones do, by the squares of what lies above the mean
    highest     all send at their highest rate at the same time

| column | unit | meaning |
| --- | --- | --- |
| cluster_id, broker, role, quota_level | | where, as what, the entry that decides |
| user, client_id | | whose the quota is; null: of whichever |
| quota | bytes/s | what would have applied |
| clients | | that share it, in the mean |
| seconds | s | that were looked at |
| throttles | | answers with a throttle time, by the estimate, all clients together |
| throttled_ms | ms | of one client in the mean, by the estimate, as far as it lies within that time |
| lowest_ms, highest_ms | ms | the same by the other two plays |
"""

from collections.abc import Iterable, Sequence
from math import sqrt
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.quota.rate import QUOTA_SAMPLES, QUOTA_WINDOW_MS, SampledRate
from kclient_quota.quota.throttle import throttle_time_ms
from kclient_quota.spark.jobs.closed_windows import SHARED
from kclient_quota.spark.jobs.demand import MOST_GROWTH, with_demand
from kclient_quota.spark.quota_table import Limits, with_quotas

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped] # pandas ships no types
    from pyspark.sql import DataFrame

MOST_SENDERS: Final = 8
"""Played one by one; more clients than that are played by so many that each send for several."""

_TICK_MS: Final = 1_000
_MEMORY_MS: Final = QUOTA_SAMPLES * QUOTA_WINDOW_MS + _TICK_MS
_SAFE: Final = QUOTA_SAMPLES / (QUOTA_SAMPLES - 1)
"""What a steady rate is measured as at most: a sample more than the time that it is divided by."""

_COLUMNS: Final = (
    "cluster_id string, broker string, role string, quota_level string, user string, client_id string, quota double, "
    "clients double, seconds bigint, throttles double, throttled_ms bigint, lowest_ms bigint, highest_ms bigint"
)

Window = tuple[int, int, float, float]
"""Begin and end in ms; bytes per second in the mean; the rate at which they are sent, until the bytes are gone."""


def backtest(usage: "DataFrame", limits: Limits, most_growth: float = MOST_GROWTH) -> "DataFrame":
    """Throttling under every quota of `limits` on every broker; spread over executors.

    Args:
        usage: rows of the job `usage` of the time to test on, or what `with_demand` made of them; those of a broker
            with a byte rate count.
        limits: such as `quota_table.read_limits` of a recommended file.
        most_growth: of `with_demand`.
    """
    wanted = usage if "demand" in usage.columns else with_demand(usage, most_growth)
    known = wanted.where(F.col("broker").isNotNull() & F.col("demand").isNotNull())
    above = F.col("burst") - F.col("demand")
    limited = with_quotas(known, limits).where(F.col("quota").isNotNull())
    windows = limited.groupBy("window_start", "window_end", "quota", *SHARED).agg(
        F.sum("demand").alias("demand"),
        F.sum("burst").alias("burst"),
        F.sum(above * above / F.greatest("clients", F.lit(1))).alias("squares"),
        F.sum(F.coalesce("clients", F.lit(1))).cast("double").alias("clients"),
    )
    begin, end = (F.unix_millis(name).alias(name) for name in ("window_start", "window_end"))
    rest = ("quota", *SHARED, "demand", "burst", "squares", "clients")
    return windows.select(begin, end, *rest).groupBy("quota", *SHARED).applyInPandas(_one, _COLUMNS)


def throttling(windows: Iterable[Window], quota: float, senders: int = 1) -> tuple[int, int, int]:
    """What the broker's quota code says to those who share one quota.

    Args:
        windows: what all send together, in order.
        quota: bytes per second.
        senders: how many send, an equal part each.

    Returns:
        seconds looked at, answers with a throttle time, sum of these in ms up to the end of the last window.
    """
    windows = list(windows)
    last_ms = max((end_ms for _, end_ms, *_ in windows), default=0)
    play = _Play(quota, senders, last_ms)
    for begin_ms, end_ms, mean, burst in windows:
        lasts_ms = (end_ms - begin_ms) * mean / burst if burst > mean else end_ms - begin_ms
        # Nothing can be throttled: only what the broker remembers when the next window begins is played.
        is_safe = max(mean, burst) * _SAFE <= quota and not play.is_behind(begin_ms)
        first_ms = max(begin_ms, end_ms - _MEMORY_MS // _TICK_MS * _TICK_MS) if is_safe else begin_ms
        for now_ms in range(first_ms, end_ms, _TICK_MS):
            left_ms = min(max(begin_ms + lasts_ms - now_ms, 0), _TICK_MS)
            play.second(now_ms, max(mean, burst) * left_ms / _TICK_MS)
    seconds = sum(len(range(begin_ms, end_ms, _TICK_MS)) for begin_ms, end_ms, *_ in windows)
    return seconds, play.throttles, play.throttled_ms


class _Play:
    """Senders that share one quota of one broker."""

    def __init__(self, quota: float, senders: int, last_ms: int) -> None:
        self.throttles = 0
        self.throttled_ms = 0
        self._quota = quota
        self._rate = SampledRate()
        self._waiting = [0.0] * senders
        self._muted_until_ms = [0] * senders
        self._last_ms = last_ms

    def is_behind(self, now_ms: int) -> bool:
        """Whether anybody has something to send from before, or is muted."""
        return any(self._waiting) or max(self._muted_until_ms) > now_ms

    def second(self, now_ms: int, offered: float) -> None:
        """So many bytes come up, an equal part for each sender; those who may send what they have."""
        each = offered / len(self._waiting)
        for sender, until_ms in enumerate(self._muted_until_ms):
            self._waiting[sender] += each
            if until_ms <= now_ms and (self._waiting[sender] or each):
                self._send(sender, now_ms)

    def _send(self, sender: int, now_ms: int) -> None:
        self._rate.record(self._waiting[sender], now_ms)
        self._waiting[sender] = 0.0
        value = self._rate.measure(now_ms)
        if value > self._quota:
            delay_ms = throttle_time_ms(value, self._quota, self._rate.window_size_ms(now_ms))
            self.throttles += delay_ms > 0
            self.throttled_ms += min(delay_ms, self._last_ms - now_ms)
            self._muted_until_ms[sender] = now_ms + delay_ms


def plays(rows: Sequence[tuple[int, int, float, float, float]]) -> dict[str, list[Window]]:
    """The three: lowest, estimate, highest.

    Args:
        rows: begin and end in ms, demand, sum of the bursts, sum of the squares of what bursts are above the demand.
    """
    found: dict[str, list[Window]] = {"lowest": [], "estimate": [], "highest": []}
    for begin_ms, end_ms, demand, burst, squares in rows:
        found["lowest"].append((begin_ms, end_ms, demand, demand))
        found["estimate"].append((begin_ms, end_ms, demand, min(demand + sqrt(max(squares, 0.0)), burst)))
        found["highest"].append((begin_ms, end_ms, demand, burst))
    return found


def _one(rows: "pd.DataFrame") -> "pd.DataFrame":
    rows = rows.sort_values("window_start")
    quota, clients = float(rows["quota"].iloc[0]), max(float(rows["clients"].mean()), 1.0)
    senders = min(round(clients), MOST_SENDERS)
    columns = [rows[name].tolist() for name in ("window_start", "window_end", "demand", "burst", "squares")]
    played = plays(list(zip(*columns, strict=True)))
    told = {name: throttling(windows, quota, senders) for name, windows in played.items()}
    names = {"quota_user": "user", "quota_client_id": "client_id"}
    found = rows.head(1)[[*SHARED, "quota"]].rename(columns=names)
    found["clients"], found["seconds"] = clients, told["estimate"][0]
    found["throttles"] = told["estimate"][1] * clients / senders
    for column, name in (("throttled_ms", "estimate"), ("lowest_ms", "lowest"), ("highest_ms", "highest")):
        found[column] = round(told[name][2] / senders)
    return found[[each.split()[0] for each in _COLUMNS.split(", ")]]
