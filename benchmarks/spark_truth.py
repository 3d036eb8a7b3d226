"""The pipeline against a fleet whose demand is known: `python -m benchmarks.spark_truth`.

Clients work to a script, second by second. What they push is made from it as Java's clients would: counters since the
last push, the rate of the last 30 to 60 seconds. Some have wrong clocks, some share a quota, some restart; some pushes
are lost, some come late. Then the pipeline is asked, and its answers are laid beside the script: usage, the recommended
quotas, and what these would have done, which the broker's own quota manager says of every second of the script.
"""

import argparse
import math
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.spark_truth_fleets import BEGIN_MS, BROKERS, FLEETS, SECONDS, Bytes, Client, fleet, pushes
from benchmarks.spark_truth_twins import LEAST, MOST, is_same, nearest, twin
from kclient_quota.quota.callback import ClientQuotaType
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.quota.manager import ClientQuotaManager
from kclient_quota.spark.jobs.backtest import backtest
from kclient_quota.spark.jobs.recommend import Policy, quota_file, recommend, wanted_quotas
from kclient_quota.spark.pipeline import Plan, run
from kclient_quota.spark.quota_table import ROLE_KEYS, Limits, read_limits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEAST_WINDOW_S: Final = 60
_COLUMNS: Final = (
    *("fleet", "pushes every", "bytes, all", "bytes, worst client-id", "windows: median, 95 %, worst"),
    *("worst with lost ends", "windows within two errors", "quotas"),
    *("too small: throttled", "back-test (range)", "with the same pushes", "no estimate is nearer than"),
    *("as recommended: throttled", "back-test (range)", "with the same pushes", "quotas beside those"),
)


def by_quota_owner(clients: list[Client], who: tuple[str, ...]) -> dict[tuple[str, ...], Bytes]:
    """(role, the columns `who`) -> the script's bytes of every second, on each broker."""
    found: dict[tuple[str, ...], Bytes] = defaultdict(lambda: np.zeros(SECONDS))
    for client in clients:
        found[client.role, *(getattr(client, name) for name in who)] += client.sends
    return found


@dataclass(frozen=True)
class Throttling:
    """Client seconds throttled under one file of quotas.

    Attributes:
        script: what the brokers' quota manager says of every second of the script.
        told: the back-test's estimate.
        lowest, highest: its error bars.
        seconds: of all clients together.
        twins: the least and the most that fleets with the very same pushes are throttled, the script among them.
        untold: quotas of which the back-test says that pushes do not tell.
    """

    script: float
    told: float
    lowest: float
    highest: float
    seconds: float
    twins: tuple[float, float]
    untold: int

    @property
    def off(self) -> float:
        """How far the estimate is off, as a part of the script's."""
        return self.told / self.script - 1 if self.script else float(self.told > 0)


@dataclass(frozen=True)
class Found:
    """What the pipeline said beside the script.

    Attributes:
        total: the error of everybody's bytes over the whole time, as a part of them.
        worst_total: the largest of any client-id's.
        windows: the median, the 95th percentile and the largest error of a window of a client-id, of those in which all
            instances are known to have been there.
        worst_window: the largest of all windows.
        within: the part of those windows in which the script lies within two of the told errors (or 2 %).
        quotas: the smallest and the largest recommended quota, as a part of the script's own quantile.
        of_twins: the smallest, as a part of the quantile of a fleet with the very same pushes.
        small: under quotas that are too small: the median of the demand.
        asked: under what is recommended unless asked otherwise.
    """

    total: float
    worst_total: float
    windows: tuple[float, float, float]
    worst_window: float
    within: float
    quotas: tuple[float, float]
    of_twins: float
    small: Throttling
    asked: Throttling


def check(spark: "SparkSession", folder: Path, interval_s: int, kind: str = "mixed", seed: int = 1) -> Found:
    """Ask the pipeline about a fleet that pushes every so often."""
    clients = fleet(kind, seed)
    source = folder / "pushes"
    source.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(pushes(clients, interval_s, seed + 1)), source / "0.parquet")
    run(spark, Plan("usage", str(source), str(folder / "usage"), source_format="pushes"))
    usage = spark.read.parquet(str(folder / "usage")).cache()
    window_s = max(interval_s, LEAST_WINDOW_S)  # what the pipeline takes by itself
    totals = _usage_errors(clients, usage.collect(), window_s)
    twins = [clients, *(found for which in (LEAST, MOST) if not is_same(found := twin(clients, which), clients))]
    parts = [_quotas(usage, twins, entity, window_s) for entity in ("client-id", "user")]
    quotas, *others = ([part for each in parts for part in each[place]] for place in range(len(twins)))
    small = _throttling(usage, folder, twins, Policy("user", quantile=0.5, headroom=1.0, default_quantile=0.3))
    asked = _throttling(usage, folder, twins, Policy("user"))
    usage.unpersist()
    return Found(*totals, (min(quotas), max(quotas)), min(map(min, others), default=min(quotas)), small, asked)


def _throttling(usage: "DataFrame", folder: Path, twins: list[list[Client]], policy: Policy) -> Throttling:
    limits = _recommended(usage, folder, policy)
    rows = backtest(usage, limits).collect()
    names = ("throttled_ms", "lowest_ms", "highest_ms")
    told = [sum(row[name] * row["clients"] for row in rows) / 1000 for name in names]
    seconds = sum(client.until_s - client.since_s for client in twins[0]) * len(BROKERS)
    untold = sum(not row["is_told"] for row in rows)
    true = [_simulated_s(clients, limits) for clients in twins]
    return Throttling(true[0], told[0], told[1], told[2], float(seconds), (min(true), max(true)), untold)


def _usage_errors(
    clients: list[Client],
    rows: list,  # type: ignore[type-arg] # Spark's rows
    window_s: int,
) -> tuple[float, float, tuple[float, float, float], float, float]:
    truth = by_quota_owner(clients, ("user", "client_id"))
    windows: dict[tuple[str, ...], Bytes] = defaultdict(lambda: np.zeros(SECONDS // window_s))
    bars: dict[tuple[str, ...], Bytes] = defaultdict(lambda: np.zeros(SECONDS // window_s))
    for row in rows:
        at = round(row["window_start"].timestamp() - BEGIN_MS / 1000) // window_s
        if row["broker"] == BROKERS[0] and 0 <= at < SECONDS // window_s:
            windows[row["role"], row["user"], row["client_id"]][at] += row["byte_rate"]
            bars[row["role"], row["user"], row["client_id"]][at] += row["byte_rate_error"]
    unknown = _unknown(clients, window_s)
    rates = {key: sends.reshape(-1, window_s).mean(axis=1) for key, sends in truth.items()}
    totals = [abs(windows[key].sum() / each.sum() - 1) for key, each in rates.items()]
    told, meant = (sum(each.sum() for each in found.values()) for found in (windows, rates))
    errors = {key: np.abs(windows[key] / each - 1) for key, each in rates.items()}
    known = np.concatenate([each[~unknown[key]] for key, each in errors.items()])
    median, most, worst = (float(np.quantile(known, part)) for part in (0.5, 0.95, 1.0))
    is_within = [np.abs(windows[key] - each) <= 2 * bars[key] + 0.02 * each for key, each in rates.items()]
    within = float(np.mean(np.concatenate([each[~unknown[key]] for each, key in zip(is_within, rates, strict=True)])))
    every = float(max(each.max() for each in errors.values()))
    return float(abs(told / meant - 1)), float(max(totals)), (median, most, worst), every, within


def _unknown(clients: list[Client], window_s: int) -> dict[tuple[str, ...], np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Windows of a client-id in which an instance worked of whose being there no push tells."""
    found: dict[tuple[str, ...], np.ndarray[tuple[int], np.dtype[np.bool_]]] = defaultdict(
        lambda: np.zeros(SECONDS // window_s, bool)
    )
    for client in clients:
        first, last = min(client.known_s, default=client.until_s), max(client.known_s, default=client.until_s)
        for begin, end in ((client.since_s, first), (last, client.until_s)):
            if begin < end:
                found[client.role, client.user, client.client_id][begin // window_s : -(-end // window_s)] = True
    return found


def _recommended(usage: "DataFrame", folder: Path, policy: Policy) -> Limits:
    file = folder / "quotas.yaml"
    file.write_text(quota_file(recommend(usage, policy).collect(), policy), encoding="utf-8")
    return read_limits(file)


def _quotas(usage: "DataFrame", twins: list[list[Client]], entity: str, window_s: int) -> list[list[float]]:
    """What everybody would get with little head-room, as a part of each script's own quantile."""
    policy = Policy(entity, quantile=0.95, headroom=1.05, default_quantile=0.5)
    named = {}
    for row in wanted_quotas(usage, policy).collect():
        role = next(role for role, key in ROLE_KEYS.items() if key == row["quota_key"])
        named[role, row[entity.replace("-", "_")]] = row["value"]
    found = []
    for clients in twins:
        found.append([])
        for (role, name), sends in by_quota_owner(clients, (entity.replace("-", "_"),)).items():
            rates = np.sort(sends.reshape(-1, window_s).mean(axis=1))
            wanted = rates[math.ceil(0.95 * len(rates)) - 1]
            found[-1].append(float(named[role, name] / wanted))
    return found


def _simulated_s(clients: list[Client], limits: Limits) -> float:
    """Every second each client that is not muted sends what it has; the brokers' own quota manager answers."""
    total_ms = 0
    for role, kind in (("producer", ClientQuotaType.PRODUCE), ("consumer", ClientQuotaType.FETCH)):
        manager = ClientQuotaManager(kind)
        for (user, client_id), value in limits.get(f"{role}_byte_rate", {}).items():
            manager.update_quota(ClientQuotaEntity.of(user=user, client_id=client_id), value)
        members = [client for client in clients if client.role == role]
        waiting, until_ms = [0.0] * len(members), [0] * len(members)
        for second in range(SECONDS):
            now_ms = BEGIN_MS + second * 1000
            for place, client in enumerate(members):
                waiting[place] += client.sends[second]
                if until_ms[place] > now_ms or not waiting[place]:
                    continue
                wait_ms = manager.record_and_get_throttle_time_ms(client.user, client.client_id, waiting[place], now_ms)
                waiting[place] = 0.0
                until_ms[place] = now_ms + wait_ms
                total_ms += min(wait_ms, BEGIN_MS + SECONDS * 1000 - now_ms)
    return total_ms * len(BROKERS) / 1000


def table(found: dict[tuple[str, int], list[Found]]) -> str:
    """As Markdown: of each fleet and interval the worst of its seeds; of the back-test all of them."""
    lines = [
        f"| {' | '.join(_COLUMNS)} |",
        f"|{' --- |' * len(_COLUMNS)}",
    ]
    for (kind, interval_s), seeds in found.items():
        windows = ", ".join(f"{max(each.windows[place] for each in seeds):.1%}" for place in range(3))
        lines.append(
            f"| {kind} | {interval_s} s | {max(each.total for each in seeds):.2%} "
            f"| {max(each.worst_total for each in seeds):.2%} | {windows} "
            f"| {max(each.worst_window for each in seeds):.0%} | {min(each.within for each in seeds):.0%} "
            f"| {min(each.quotas[0] for each in seeds):.2f} to {max(each.quotas[1] for each in seeds):.2f} "
            f"| {_told([each.small for each in seeds])} | {max(nearest(each.small.twins) for each in seeds):.0%} "
            f"| {_told([each.asked for each in seeds])} | {min(each.of_twins for each in seeds):.2f} |"
        )
    return "\n".join(lines)


def _told(seeds: list[Throttling]) -> str:
    script = [each.script / each.seconds for each in seeds]
    off = [f"{each.off:+.1%} ({each.lowest / each.seconds:.1%} to {each.highest / each.seconds:.1%})" for each in seeds]
    twins = [f"{each.twins[0] / each.seconds:.1%} to {each.twins[1] / each.seconds:.1%}" for each in seeds]
    return f"{min(script):.1%} to {max(script):.1%} | {', '.join(off)} | {', '.join(twins)}"


def main() -> None:
    """Print the table."""
    from kclient_quota.spark.session import session  # noqa: PLC0415 - starts Spark

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="fleets of each kind (default: %(default)s)")
    parser.add_argument("--fleet", action="append", choices=tuple(FLEETS), help="only these; again for more")
    parser.add_argument("--interval", action="append", type=int, metavar="SECONDS", help="only these (20 and 300)")
    options = parser.parse_args()
    spark = session("truth", "local[2]", {"spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"})
    found: dict[tuple[str, int], list[Found]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.fleet or FLEETS:
            for interval_s in options.interval or (20, 300):
                for seed in range(1, options.seeds + 1):
                    place = Path(folder) / f"{kind}-{interval_s}-{seed}"
                    found[kind, interval_s].append(check(spark, place, interval_s, kind, seed))
                    print(f"{kind}, {interval_s} s, seed {seed}: {found[kind, interval_s][-1]}", file=sys.stderr)
    print(table(found))
    spark.stop()


if __name__ == "__main__":
    main()
