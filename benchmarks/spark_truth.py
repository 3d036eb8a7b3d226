"""The pipeline against a fleet whose demand is known: `python -m benchmarks.spark_truth`.

Clients work to a script, second by second. What they push is made from it as Java's clients would: counters since the
last push, the rate of the last 30 to 60 seconds. Some have wrong clocks, some share a quota, some restart; some pushes
are lost, some come late. Then the pipeline is asked, and its answers are laid beside the script: usage, the recommended
quotas, and what these would have done, which the broker's own quota manager says of every second of the script.
"""

import argparse
import math
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from kclient_telemetry.metric import MetricKind, Point, PointKey, PushPoint
from kclient_telemetry.otlp import encode

from kclient_quota.quota.callback import ClientQuotaType
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.quota.manager import ClientQuotaManager
from kclient_quota.spark.jobs.backtest import backtest
from kclient_quota.spark.jobs.recommend import Policy, quota_file, recommend
from kclient_quota.spark.pipeline import Plan, run
from kclient_quota.spark.quota_table import Limits, limit_of, read_limits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGIN_MS: Final = 1_800_000_000_000
SECONDS: Final = 7_200
LEAST_WINDOW_S: Final = 60
BROKERS: Final = ("1", "2")
LOST, LATE = 0.02, 0.05
LATEST_S: Final = 90
RESTART_S: Final = 40
_DIRECTION: Final = {"producer": "outgoing", "consumer": "incoming"}
_COLUMNS: Final = (
    *("fleet", "pushes every", "bytes, all", "bytes, worst client-id", "windows: median, 95 %, worst"),
    *("worst with lost ends", "least quota"),
    *("too small: throttled", "back-test (range)", "as recommended: throttled", "back-test (range)"),
)
_Bytes = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass
class Client:
    """One instance, from its start to its end.

    Attributes:
        user, client_id, group_id, role: who.
        sends: bytes of every second of the whole time, on every broker.
        skew_ms: how far its clock is ahead.
        since_s, until_s: when it runs.
        known_s: begin and end of every push of it that came.
    """

    user: str
    client_id: str
    sends: _Bytes
    role: str = "producer"
    group_id: str | None = None
    skew_ms: int = 0
    since_s: int = 0
    until_s: int = SECONDS
    instance: str = field(default="")
    known_s: list[int] = field(default_factory=list)

    def at(self, since_s: int, until_s: int) -> "Client":
        """The same client as another instance."""
        sends = np.zeros(SECONDS)
        sends[since_s:until_s] = self.sends[since_s:until_s]
        return replace(self, sends=sends, since_s=since_s, until_s=until_s)


def fleet(kind: str = "mixed", seed: int = 1) -> list[Client]:
    """The clients of one of `FLEETS`.

    Args:
        kind: its name.
        seed: of its phases and restarts.
    """
    found = FLEETS[kind](random.Random(seed))  # not for secrets
    return [replace(client, instance=f"instance-{number}") for number, client in enumerate(found)]


def _mixed(chance: random.Random) -> list[Client]:
    """Steady, swinging and bursty clients; several to a client-id, a user, a consumer group; three wrong clocks."""
    found: list[Client] = []
    for number in range(4):
        for each in range(3):
            rate = _swinging(40_000.0 * (number + 1), chance)
            client = Client("sensors", f"sensor-{number}", rate, skew_ms=10_800_000 if (number, each) == (0, 0) else 0)
            found += _restarted(client, chance) if (number, each) in {(2, 0), (2, 1)} else [client]
    for each in range(4):
        found.append(Client("batch", "etl", _steady(150_000.0), skew_ms=-600_000 if each == 1 else 0))
    for group in ("g1", "g2", "g3"):
        for each in range(2):
            skew_ms = 40_000 if (group, each) == ("g2", 0) else 0
            found.append(Client("apps", "reader", _steady(50_000.0), "consumer", group, skew_ms))
    return [*found, *(Client("bursty", f"spiky-{each % 2}", _bursts(chance)) for each in range(6))]


def _shared(chance: random.Random) -> list[Client]:
    """Users with many client-ids, client-ids of many users, groups on both; every fourth clock is wrong."""
    found = []
    for number in range(24):
        user, client_id = f"user-{number % 3}", f"app-{number % 8}"
        skew_ms = chance.choice([-7_200_000, -100_000, 90_000, 3_600_000]) if number % 4 == 0 else 0
        rate = _swinging(20_000.0 * (1 + number % 5), chance)
        found.append(Client(user, client_id, rate, skew_ms=skew_ms))
        if number % 2:
            group = f"group-{number % 4}"
            found.append(Client(user, client_id, _steady(30_000.0), "consumer", group, skew_ms))
    return found


def _bursty(chance: random.Random) -> list[Client]:
    """Nothing but bursts, of several lengths."""
    lasts = (30, 60, 120, 240)
    return [Client(f"user-{each % 2}", f"spiky-{each % 4}", _bursts(chance, lasts[each % 4])) for each in range(16)]


def _deployed(chance: random.Random) -> list[Client]:
    """Everybody is started anew twice, one after the other, and rates grow."""
    found: list[Client] = []
    seconds = np.arange(SECONDS)
    for number in range(6):
        for _ in range(4):
            rate = 30_000.0 * (1 + number) * (1 + seconds / SECONDS) * chance.uniform(0.8, 1.2)
            found += _restarted(Client("service", f"service-{number}", rate), chance)
    return found


FLEETS: Final[dict[str, Callable[[random.Random], list[Client]]]] = {
    "mixed": _mixed,
    "shared": _shared,
    "deployed": _deployed,
    "bursty": _bursty,
}
"""Name -> what makes its clients."""


def _steady(rate: float) -> _Bytes:
    return rate + np.zeros(SECONDS)


def _swinging(rate: float, chance: random.Random) -> _Bytes:
    return rate * (1 + 0.2 * np.sin(np.arange(SECONDS) * 2 * math.pi / 2_400 + chance.uniform(0, 6.3)))


def _bursts(chance: random.Random, lasts_s: int = 120) -> _Bytes:
    is_on = (np.arange(SECONDS) + chance.randrange(600)) % 600 < lasts_s
    return np.where(is_on, 200_000.0, 10_000.0)


def _restarted(client: Client, chance: random.Random) -> Iterator[Client]:
    since_s = 0
    for until_s in sorted(chance.sample(range(1_000, SECONDS - 1_000), 2)):
        yield client.at(since_s, until_s)
        since_s = until_s + RESTART_S
    yield client.at(since_s, SECONDS)


def pushes(clients: list[Client], interval_s: int, seed: int = 2) -> list[dict[str, object]]:
    """What a receiver would have written, in the order in which it came."""
    chance = random.Random(seed)  # not for secrets
    rows = []
    for client in clients:
        client.known_s = []
        last_s, next_s = client.since_s, client.since_s + round(interval_s * chance.uniform(0.5, 1.5))
        while last_s < client.until_s:
            at_s = min(next_s, client.until_s)  # the last push is the terminating one
            if chance.random() > LOST:
                late_s = chance.uniform(1, LATEST_S) if chance.random() < LATE else 0.1
                rows.append(_push(client, last_s, at_s, interval_s, late_s))
                client.known_s += [last_s, at_s]
            last_s, next_s = at_s, at_s + interval_s
    return sorted(rows, key=lambda row: row["received_unix_ms"])  # type: ignore[arg-type, return-value]


def _push(client: Client, last_s: int, at_s: int, interval_s: int, late_s: float) -> dict[str, object]:
    at_ms = BEGIN_MS + at_s * 1000 + client.skew_ms
    prefix = f"org.apache.kafka.{client.role}.node.{_DIRECTION[client.role]}.byte"
    counted = float(client.sends[last_s:at_s].sum())
    sampled = float(client.sends[max(at_s - 30 - at_s % 30, 0) : at_s].mean())
    points = []
    for broker in BROKERS:
        node = (("node_id", f"node-{broker}"),)
        total = Point(PointKey(f"{prefix}.total", node), MetricKind.SUM, counted)
        start_ms = at_ms - (at_s - last_s) * 1000
        points.append(PushPoint(total, counted, start_ms, at_ms, delta=True))
        rate = Point(PointKey(f"{prefix}.rate", node), MetricKind.GAUGE, sampled)
        points.append(PushPoint(rate, sampled, None, at_ms, delta=False))
    resource = (("group_id", client.group_id),) if client.group_id else ()
    return {
        "value": encode(points, resource, 0).payload,
        "client_instance_id": client.instance,
        "client_id": client.client_id,
        "principal": f"User:{client.user}",
        "cluster_id": "k",
        "push_interval_ms": interval_s * 1000,
        "received_unix_ms": BEGIN_MS + round((at_s + late_s) * 1000),
    }


def by_quota_owner(clients: list[Client], who: tuple[str, ...]) -> dict[tuple[str, ...], _Bytes]:
    """(role, the columns `who`) -> the script's bytes of every second, on each broker."""
    found: dict[tuple[str, ...], _Bytes] = defaultdict(lambda: np.zeros(SECONDS))
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
    """

    script: float
    told: float
    lowest: float
    highest: float
    seconds: float

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
        least_quota: the smallest recommended quota, as a part of the script's own quantile.
        small: under quotas that are too small: the median of the demand.
        asked: under what is recommended unless asked otherwise.
    """

    total: float
    worst_total: float
    windows: tuple[float, float, float]
    worst_window: float
    least_quota: float
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
    least = min(_least_quota(usage, folder, clients, entity, window_s) for entity in ("client-id", "user"))
    small = _throttling(usage, folder, clients, Policy("user", quantile=0.5, headroom=1.0, default_quantile=0.3))
    asked = _throttling(usage, folder, clients, Policy("user"))
    usage.unpersist()
    return Found(*totals, least, small, asked)


def _throttling(usage: "DataFrame", folder: Path, clients: list[Client], policy: Policy) -> Throttling:
    limits = _recommended(usage, folder, policy)
    rows = backtest(usage, limits).collect()
    names = ("throttled_ms", "lowest_ms", "highest_ms")
    told = [sum(row[name] * row["clients"] for row in rows) / 1000 for name in names]
    seconds = sum(client.until_s - client.since_s for client in clients) * len(BROKERS)
    return Throttling(_simulated_s(clients, limits), told[0], told[1], told[2], float(seconds))


def _usage_errors(
    clients: list[Client],
    rows: list,  # type: ignore[type-arg] # Spark's rows
    window_s: int,
) -> tuple[float, float, tuple[float, float, float], float]:
    truth = by_quota_owner(clients, ("user", "client_id"))
    windows: dict[tuple[str, ...], _Bytes] = defaultdict(lambda: np.zeros(SECONDS // window_s))
    for row in rows:
        at = round(row["window_start"].timestamp() - BEGIN_MS / 1000) // window_s
        if row["broker"] == BROKERS[0] and 0 <= at < SECONDS // window_s:
            windows[row["role"], row["user"], row["client_id"]][at] += row["byte_rate"]
    unknown = _unknown(clients, window_s)
    rates = {key: sends.reshape(-1, window_s).mean(axis=1) for key, sends in truth.items()}
    totals = [abs(windows[key].sum() / each.sum() - 1) for key, each in rates.items()]
    told, meant = (sum(each.sum() for each in found.values()) for found in (windows, rates))
    errors = {key: np.abs(windows[key] / each - 1) for key, each in rates.items()}
    known = np.concatenate([each[~unknown[key]] for key, each in errors.items()])
    median, most, worst = (float(np.quantile(known, part)) for part in (0.5, 0.95, 1.0))
    every = float(max(each.max() for each in errors.values()))
    return float(abs(told / meant - 1)), float(max(totals)), (median, most, worst), every


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


def _least_quota(usage: "DataFrame", folder: Path, clients: list[Client], entity: str, window_s: int) -> float:
    limits = _recommended(usage, folder, Policy(entity, quantile=0.95, headroom=1.05, default_quantile=0.5))
    parts = []
    for (role, name), sends in by_quota_owner(clients, (entity.replace("-", "_"),)).items():
        rates = np.sort(sends.reshape(-1, window_s).mean(axis=1))
        wanted = rates[math.ceil(0.95 * len(rates)) - 1]
        user, client_id = (name, "") if entity == "user" else ("", name)
        parts.append((limit_of(limits, user, client_id, role)[1] or math.inf) / wanted)
    return float(min(parts))


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
            f"| {max(each.worst_window for each in seeds):.0%} | {min(each.least_quota for each in seeds):.3f} "
            f"| {_told([each.small for each in seeds])} | {_told([each.asked for each in seeds])} |"
        )
    return "\n".join(lines)


def _told(seeds: list[Throttling]) -> str:
    script = [each.script / each.seconds for each in seeds]
    off = [f"{each.off:+.1%} ({each.lowest / each.seconds:.1%} to {each.highest / each.seconds:.1%})" for each in seeds]
    return f"{min(script):.1%} to {max(script):.1%} | {', '.join(off)}"


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
