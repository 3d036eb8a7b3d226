"""What quotas would have done to those who worked since: the broker's own quota code, played on their usage.

A broker counts together what all send who share a quota (`quota_table.sharer_of`), and tells each of them to wait. So
the demand (see `demand`) of all of them is played against one quota, by as many senders as there were clients, each
with its own bytes, up to `MOST_SENDERS`; where there were more, each sends for several. Every second a sender has to
send what comes up; what it may not send while it is muted it sends when the mute ends, all at once.

Windows hide bursts. What is known of them is the highest rate that each client told. Three plays say how far that
matters:

    even        everybody sends evenly all through the window
    apart       everybody sends at the highest rate for a while, at a lower one for the rest, so that mean and variance
                are those of the window; each at another time. This is the estimate
    together    all send at their highest rates at the same time, for as long as the window's bytes last; these are as
                many as they may have been, by twice the error of demand

The least and the most of the three, and a tenth more of either, are the estimate's error bars: of fleets whose every
second is known, plays of windows in which each client's bytes are told exactly are off by up to 9 %.

Where clients burst and push seldom, the bars are wide, and no estimate can be near: fleets whose pushes are the same,
byte for byte, are throttled for a hundredth or a fifth of the time. `is_told` is false there: read the bars. It is
false, too, where lost pushes leave as much open.

| column | unit | meaning |
| --- | --- | --- |
| cluster_id, broker, role, quota_level | | where, as what, the entry that decides |
| user, client_id | | whose the quota is; null: of whichever |
| quota | bytes/s | what would have applied |
| clients | | that share it, in the mean |
| seconds | s | that were looked at |
| throttles | | answers with a throttle time, by the estimate, all clients together |
| throttled_ms | ms | of one client in the mean, by the estimate, as far as it lies within that time |
| lowest_ms, highest_ms | ms | its error bars |
| is_told | | whether pushes tell it: `highest_ms` is no more than three times `lowest_ms`, or a hundredth of the time |
"""

import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.quota.rate import QUOTA_SAMPLES, QUOTA_WINDOW_MS, SampledRate
from kclient_quota.quota.throttle import throttle_time_ms
from kclient_quota.spark.jobs.closed_windows import SHARED
from kclient_quota.spark.jobs.demand import MOST_GROWTH, with_demand
from kclient_quota.spark.quota_table import Limits, with_quotas

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped] # pandas ships no types
    from pyspark.sql import DataFrame

MOST_SENDERS: Final = 32
"""Played one by one; more clients than that are played by so many that each send for several."""

MOST_SEATS: Final = 256
"""Rows of a window and quota; more clients than that share them."""

EVEN, APART, TOGETHER = "even", "apart", "together"
"""The three plays."""

MOST_SPREAD: Final = 3
"""More than so many times the lowest is too much for the estimate in between to say anything."""

_PLAYED: Final = 0.1
_LITTLE: Final = 0.01
_ERRORS: Final = 2
_TICK_MS: Final = 1_000
_MEMORY_MS: Final = QUOTA_SAMPLES * QUOTA_WINDOW_MS + _TICK_MS
_SAFE: Final = QUOTA_SAMPLES / (QUOTA_SAMPLES - 1)
"""What a steady rate is measured as at most: a sample more than the time that it is divided by."""
_OF_SEAT: Final = ("demand", "burst", "variance", "clients", "most")
COLUMNS: Final = (
    "cluster_id string, broker string, role string, quota_level string, user string, client_id string, quota double, "
    "clients double, seconds bigint, throttles double, throttled_ms bigint, lowest_ms bigint, highest_ms bigint, "
    "is_told boolean"
)

Offer = tuple[float, float, float]
"""What a sender has in a window: bytes per second in the mean, the highest rate, the rate's variance."""

_NOTHING: Final = (0.0, 0.0, 0.0)

Course = tuple[float, float, float, float]
"""Bytes per second all the time; since when and until when, in ms, how many more."""

Window = tuple[int, int, Sequence[Offer]]
"""Begin and end in ms; an offer of each sender."""


class Verdict(NamedTuple):
    """What the broker's quota code makes of the demand under a file of quotas.

    Attributes:
        name: of the file.
        throttled: quotas, each on a broker, that throttle anybody.
        quotas: that anybody has.
        seconds_throttled: of all clients together, as estimated.
        lowest, highest: its error bars.
        seconds: of all clients together.
        untold: quotas of which pushes do not tell, so that only the error bars say anything.
    """

    name: str
    throttled: int
    quotas: int
    seconds_throttled: float
    lowest: float
    highest: float
    seconds: float
    untold: int = 0


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
    limited = with_quotas(known, limits).where(F.col("quota").isNotNull())
    # However many share a quota: no more than so many rows of each window.
    seat = F.pmod(F.hash("user", "client_id", "group_id", "sender"), F.lit(MOST_SEATS)).alias("seat")
    rows = (
        _of_each(limited)
        .groupBy("window_start", "window_end", "quota", *SHARED, seat)
        .agg(
            F.sum("demand").alias("demand"),
            F.sum("burst").alias("burst"),
            F.sum("variance").alias("variance"),
            F.sum("most").alias("most"),
            F.sum(F.coalesce("clients", F.lit(1))).cast("double").alias("clients"),
        )
    )
    begin, end = (F.unix_millis(name).alias(name) for name in ("window_start", "window_end"))
    rest = ("quota", *SHARED, "seat", *_OF_SEAT)
    return rows.select(begin, end, *rest).groupBy("quota", *SHARED).applyInPandas(_one, COLUMNS)


def verdict(name: str, usage: "DataFrame", limits: Limits, most_growth: float = MOST_GROWTH) -> Verdict:
    """A `backtest` in one line.

    Args:
        name: of the file.
        usage: as there.
        limits: as there.
        most_growth: as there.
    """
    ms = ("throttled_ms", "lowest_ms", "highest_ms")
    row = (
        backtest(usage, limits, most_growth)
        .agg(
            F.count_if(F.col("throttles") > 0).alias("throttled"),
            F.count("*").alias("quotas"),
            F.count_if(~F.col("is_told")).alias("untold"),
            *(F.coalesce(F.sum(F.col(each) * F.col("clients")), F.lit(0)).alias(each) for each in ms),
            F.coalesce(F.sum(F.col("seconds") * F.col("clients")), F.lit(0)).alias("seconds"),
        )
        .collect()[0]
    )
    estimate, lowest, highest = (row[each] / 1000 for each in ms)
    return Verdict(name, row["throttled"], row["quotas"], estimate, lowest, highest, row["seconds"], row["untold"])


def _of_each(rows: "DataFrame") -> "DataFrame":
    """A row of each of several instances that are told apart."""
    uncertain = 1 + _ERRORS * F.coalesce(F.try_divide("error", "demand"), F.lit(0.0))
    most = (F.col("demand") * uncertain).alias("most")
    whole = F.struct(F.lit(0).alias("sender"), "clients", "demand", "burst", "variance", most)
    more = F.coalesce(F.try_divide("demand", "byte_rate"), F.lit(1.0))
    each = F.transform(
        "senders",
        lambda one: F.struct(
            one["sender"].alias("sender"),
            one["clients"].alias("clients"),
            (one["byte_rate"] * more).alias("demand"),
            (F.greatest(one["byte_rate_max"], one["byte_rate"]) * more).alias("burst"),
            F.coalesce(one["byte_rate_variance"] * more * more, F.lit(0.0)).alias("variance"),
            (one["byte_rate"] * more * uncertain).alias("most"),
        ),
    )
    keys = ("window_start", "window_end", "user", "client_id", "group_id", "quota", *SHARED)
    return rows.select(*keys, F.explode(F.coalesce(each, F.array(whole))).alias("one")).select(*keys, "one.*")


def throttling(windows: Iterable[Window], quota: float, play: str = APART) -> tuple[int, int, list[int]]:
    """What the broker's quota code says to those who share one quota.

    Args:
        windows: in order.
        quota: bytes per second.
        play: how they send, one of the three.

    Returns:
        seconds looked at, answers with a throttle time, and of each sender their sum in ms up to the last window's end.
    """
    windows = list(windows)
    last_ms = max((end_ms for _, end_ms, _ in windows), default=0)
    senders = max((len(offers) for *_, offers in windows), default=0)
    sharing = _Sharing(quota, senders, last_ms)
    seconds = 0
    for number, (begin_ms, end_ms, offers) in enumerate(windows):
        seconds += len(range(begin_ms, end_ms, _TICK_MS))
        # Nothing can be throttled: only what the broker remembers when the next window begins is played.
        most = sum(mean if play == EVEN else max(mean, burst) for mean, burst, _ in offers)
        is_safe = most * _SAFE <= quota and not sharing.is_behind(begin_ms)
        first_ms = max(begin_ms, end_ms - _MEMORY_MS) if is_safe else begin_ms
        chance = random.Random(number)  # noqa: S311 # the same each time
        courses = [_course(begin_ms, end_ms, offer, play, chance.random()) for offer in offers]
        for now_ms in range(first_ms, end_ms, _TICK_MS):
            sharing.second(now_ms, courses)
    return seconds, sharing.throttles, sharing.throttled_ms


def _course(begin_ms: int, end_ms: int, offer: Offer, play: str, phase: float) -> Course:
    """When a sender's bytes come, and how fast."""
    mean, burst, variance = offer
    above = burst - mean
    if play == EVEN or above <= 0 or (play == APART and variance <= 0):
        return mean, begin_ms, begin_ms, 0.0
    rest = max(mean - variance / above, 0.0) if play == APART else 0.0
    lasts_ms = (end_ms - begin_ms) * (mean - rest) / (burst - rest)
    since_ms = begin_ms + (phase * (end_ms - begin_ms - lasts_ms) if play == APART else 0.0)
    return rest, since_ms, since_ms + lasts_ms, burst - rest


class _Sharing:
    """Senders that share one quota of one broker."""

    def __init__(self, quota: float, senders: int, last_ms: int) -> None:
        self.throttles = 0
        self.throttled_ms = [0] * senders
        self._quota = quota
        self._rate = SampledRate()
        self._waiting = [0.0] * senders
        self._muted_until_ms = [0] * senders
        self._last_ms = last_ms

    def is_behind(self, now_ms: int) -> bool:
        """Whether anybody has something to send from before, or is muted."""
        return any(self._waiting) or max(self._muted_until_ms, default=0) > now_ms

    def second(self, now_ms: int, courses: Sequence[Course]) -> None:
        """What comes up in a second; those who may send what they have."""
        for sender, (rest, since_ms, until_ms, more) in enumerate(courses):
            inside_ms = min(until_ms, now_ms + _TICK_MS) - max(since_ms, now_ms)
            self._waiting[sender] += rest + (more * inside_ms / _TICK_MS if inside_ms > 0 else 0.0)
        for sender, muted_until_ms in enumerate(self._muted_until_ms):
            if muted_until_ms <= now_ms and self._waiting[sender]:
                self._send(sender, now_ms)

    def _send(self, sender: int, now_ms: int) -> None:
        self._rate.record(self._waiting[sender], now_ms)
        self._waiting[sender] = 0.0
        value = self._rate.measure(now_ms)
        if value > self._quota:
            delay_ms = throttle_time_ms(value, self._quota, self._rate.window_size_ms(now_ms))
            self.throttles += delay_ms > 0
            self.throttled_ms[sender] += min(delay_ms, self._last_ms - now_ms)
            self._muted_until_ms[sender] = now_ms + delay_ms


def seated(rows: "pd.DataFrame", mean: str = "demand") -> tuple[list[Window], list[float]]:
    """What each of no more than so many senders has in every window, and for how many clients it sends.

    Args:
        rows: window_start, window_end in ms, seat, demand, burst, variance, clients, most.
        mean: the column of their bytes per second.
    """
    if rows["seat"].nunique() > MOST_SENDERS:
        rows = _merged(rows)
    at_once = rows.groupby("seat")["clients"].mean()
    is_few = at_once.sum() <= MOST_SENDERS
    senders = [(seat, max(round(count), 1) if is_few else 1) for seat, count in at_once.items()]
    sends_for = [float(at_once[seat]) / count for seat, count in senders for _ in range(count)]
    windows: list[Window] = []
    for (begin_ms, end_ms), found in rows.groupby(["window_start", "window_end"], sort=True):
        columns = (found[name].tolist() for name in ("clients", mean, "burst", "variance"))
        told = dict(zip(found["seat"].tolist(), zip(*columns, strict=True), strict=True))
        offers: list[Offer] = []
        for seat, count in senders:
            clients, rate, burst, variance = told.get(seat, (0.0, 0.0, 0.0, 0.0))
            works = min(max(round(clients), 1), count)  # the others have ended, or not begun
            # of several alike that vary by themselves, each varies more by its size than all together
            offers += [(rate / works, burst / works, variance / works)] * works + [_NOTHING] * (count - works)
        windows.append((int(begin_ms), int(end_ms), offers))
    return windows, sends_for


def _merged(rows: "pd.DataFrame") -> "pd.DataFrame":
    """No more seats than senders can be played."""
    whole = rows.assign(seat=rows["seat"] % MOST_SENDERS)
    return whole.groupby(["window_start", "window_end", "seat"], as_index=False)[list(_OF_SEAT)].sum()


def _one(rows: "pd.DataFrame") -> "pd.DataFrame":
    windows, sends_for = seated(rows)
    quota, clients = float(rows["quota"].iloc[0]), float(rows.groupby("window_start")["clients"].sum().mean())
    most, _ = seated(rows, "most")
    told = {play: throttling(windows if play != TOGETHER else most, quota, play) for play in (APART, EVEN, TOGETHER)}
    found = rows.head(1)[[*SHARED, "quota"]].rename(columns={"quota_user": "user", "quota_client_id": "client_id"})
    found["clients"] = clients
    found["seconds"] = told[APART][0]
    found["throttles"] = told[APART][1] * sum(sends_for) / len(sends_for)
    of_client = [
        round(sum(ms * count for ms, count in zip(each, sends_for, strict=True)) / clients)
        for _, _, each in told.values()
    ]
    all_ms = found["seconds"].iloc[0] * 1_000
    lowest = round(min(of_client) * (1 - _PLAYED))
    highest = min(round(max(of_client) * (1 + _PLAYED)), all_ms)
    found["throttled_ms"], found["lowest_ms"], found["highest_ms"] = of_client[0], lowest, highest
    found["is_told"] = highest <= max(MOST_SPREAD * lowest, _LITTLE * all_ms)
    return found[[each.split()[0] for each in COLUMNS.split(", ")]]
