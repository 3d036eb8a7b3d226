"""The pipeline against a fleet whose demand is known: `python -m benchmarks.spark_truth FOLDER`.

Clients work to a script, second by second. What they push is made from it as Java's clients would: counters since the
last push, the rate of the last 30 to 60 seconds. Some have wrong clocks, some share a quota, some restart; some pushes
are lost, some come late. Then the pipeline is asked, and its answers are laid beside the script: usage, the recommended
quotas, and what these would have done, which the broker's own quota manager says of every second of the script.
"""

import math
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
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
WINDOW_S: Final = 300
BROKERS: Final = ("1", "2")
LOST, LATE = 0.02, 0.05
LATEST_S: Final = 90
RESTART_S: Final = 40
_DIRECTION: Final = {"producer": "outgoing", "consumer": "incoming"}
_Bytes = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass
class Client:
    """One instance, from its start to its end.

    Attributes:
        user, client_id, group_id, role: who.
        sends: bytes of every second of the whole time, on every broker.
        skew_ms: how far its clock is ahead.
        since_s, until_s: when it runs.
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

    def at(self, since_s: int, until_s: int) -> "Client":
        """The same client as another instance."""
        sends = np.zeros(SECONDS)
        sends[since_s:until_s] = self.sends[since_s:until_s]
        return replace(self, sends=sends, since_s=since_s, until_s=until_s)


def fleet(seed: int = 1) -> list[Client]:
    """Steady, swinging and bursty clients; several to a client-id, a user, a consumer group; three wrong clocks."""
    chance = random.Random(seed)  # not for secrets
    seconds = np.arange(SECONDS)
    found: list[Client] = []
    for number in range(4):
        for each in range(3):
            phase = chance.uniform(0, 6.3)
            rate = 40_000 * (number + 1) * (1 + 0.2 * np.sin(seconds * 2 * math.pi / 2_400 + phase))
            client = Client("sensors", f"sensor-{number}", rate, skew_ms=10_800_000 if (number, each) == (0, 0) else 0)
            found += _restarted(client, chance) if (number, each) in {(2, 0), (2, 1)} else [client]
    for each in range(4):
        rate = 150_000.0 + np.zeros(SECONDS)
        found.append(Client("batch", "etl", rate, skew_ms=-600_000 if each == 1 else 0))
    for group in ("g1", "g2", "g3"):
        for each in range(2):
            rate = 50_000.0 + np.zeros(SECONDS)
            skew_ms = 40_000 if (group, each) == ("g2", 0) else 0
            found.append(Client("apps", "reader", rate, "consumer", group, skew_ms))
    for each in range(6):
        is_on = (seconds + chance.randrange(600)) % 600 < 120  # two minutes in ten
        found.append(Client("bursty", f"spiky-{each % 2}", np.where(is_on, 200_000.0, 10_000.0)))
    return [replace(client, instance=f"instance-{number}") for number, client in enumerate(found)]


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
        last_s, next_s = client.since_s, client.since_s + round(interval_s * chance.uniform(0.5, 1.5))
        while last_s < client.until_s:
            at_s = min(next_s, client.until_s)  # the last push is the terminating one
            if chance.random() > LOST:
                late_s = chance.uniform(1, LATEST_S) if chance.random() < LATE else 0.1
                rows.append(_push(client, last_s, at_s, interval_s, late_s))
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
class Found:
    """What the pipeline said beside the script.

    Attributes:
        worst_total: the largest error of any client-id's bytes over the whole time, as a part of them.
        worst_window: the same of a window of a client-id that has no bursts.
        least_quota: the smallest recommended quota, as a part of the script's own quantile.
        throttled_s: client seconds that the quota manager throttles the script.
        told_s: the back-test's estimate of that, its lowest and its highest.
    """

    worst_total: float
    worst_window: float
    least_quota: float
    throttled_s: float
    told_s: tuple[float, float, float]


def check(spark: "SparkSession", folder: Path, interval_s: int) -> Found:
    """Ask the pipeline about the fleet that pushes every so often."""
    clients = fleet()
    source = folder / "pushes"
    source.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(pushes(clients, interval_s)), source / "0.parquet")
    base = Plan("usage", str(source), str(folder / "usage"), source_format="pushes", window=f"{WINDOW_S} seconds")
    run(spark, base)
    usage = spark.read.parquet(str(folder / "usage")).cache()
    total, window = _usage_errors(clients, usage.collect())
    least = min(_least_quota(usage, folder, clients, entity) for entity in ("client-id", "user"))
    limits = _recommended(usage, folder, Policy("user", quantile=0.5, headroom=1.0, default_quantile=0.3))
    rows = backtest(usage, limits).collect()
    names = ("throttled_ms", "lowest_ms", "highest_ms")
    told = [sum(row[name] * row["clients"] for row in rows) / 1000 for name in names]
    return Found(total, window, least, _simulated_s(clients, limits), (told[0], told[1], told[2]))


def _usage_errors(clients: list[Client], rows: list) -> tuple[float, float]:  # type: ignore[type-arg] # Spark's rows
    truth = by_quota_owner(clients, ("user", "client_id"))
    windows: dict[tuple[str, ...], _Bytes] = defaultdict(lambda: np.zeros(SECONDS // WINDOW_S))
    for row in rows:
        at = round(row["window_start"].timestamp() - BEGIN_MS / 1000) // WINDOW_S
        if row["broker"] == BROKERS[0] and 0 <= at < SECONDS // WINDOW_S:
            windows[row["role"], row["user"], row["client_id"]][at] += row["byte_rate"]
    totals, each = [], []
    for key, sends in truth.items():
        rates = sends.reshape(-1, WINDOW_S).mean(axis=1)
        totals.append(abs(windows[key].sum() / rates.sum() - 1))
        if key[1] != "bursty":
            each.append(float(np.abs(windows[key] / rates - 1)[1:-1].max()))
    return max(totals), max(each)


def _recommended(usage: "DataFrame", folder: Path, policy: Policy) -> Limits:
    file = folder / "quotas.yaml"
    file.write_text(quota_file(recommend(usage, policy).collect(), policy), encoding="utf-8")
    return read_limits(file)


def _least_quota(usage: "DataFrame", folder: Path, clients: list[Client], entity: str) -> float:
    limits = _recommended(usage, folder, Policy(entity, quantile=0.95, headroom=1.05, default_quantile=0.5))
    parts = []
    for (role, name), sends in by_quota_owner(clients, (entity.replace("-", "_"),)).items():
        rates = np.sort(sends.reshape(-1, WINDOW_S).mean(axis=1))
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


def table(found: dict[int, Found]) -> str:
    """As Markdown."""
    lines = [
        "| pushes every | usage, whole time | worst window | least quota | throttled, script | back-test | range |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for interval_s, each in found.items():
        told, low, high = each.told_s
        lines.append(
            f"| {interval_s} s | {each.worst_total:.2%} | {each.worst_window:.2%} | {each.least_quota:.3f} | "
            f"{each.throttled_s:,.0f} s | {told:,.0f} s ({told / each.throttled_s - 1:+.1%}) | "
            f"{low:,.0f} to {high:,.0f} s |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    from kclient_quota.spark.session import session  # noqa: PLC0415 - starts Spark

    spark = session("truth", "local[2]", {"spark.log.level": "ERROR"})
    print(table({seconds: check(spark, Path(sys.argv[1]) / str(seconds), seconds) for seconds in (20, 300)}))
    spark.stop()


if __name__ == "__main__":
    main()
