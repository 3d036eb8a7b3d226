"""Fleets that work to a script, second by second, and what they push: `benchmarks.spark_truth` asks the pipeline."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from kclient_telemetry.metric import MetricKind, Point, PointKey, PushPoint
from kclient_telemetry.otlp import encode

BEGIN_MS: Final = 1_800_000_000_000
SECONDS: Final = 7_200
BROKERS: Final = ("1", "2")
LOST, LATE = 0.02, 0.05
LATEST_S: Final = 90
RESTART_S: Final = 40
_DIRECTION: Final = {"producer": "outgoing", "consumer": "incoming"}
Bytes = np.ndarray[tuple[int], np.dtype[np.float64]]
"""Of every second."""


@dataclass
class Client:
    """One instance, from its start to its end.

    Attributes:
        user, client_id, group_id, role: who.
        sends: bytes of every second of the whole time, on every broker.
        skew_ms: how far its clock is ahead.
        since_s, until_s: when it runs.
        known_s: begin and end of every push of it that came.
        pushed_s: of every push, those that were lost included.
    """

    user: str
    client_id: str
    sends: Bytes
    role: str = "producer"
    group_id: str | None = None
    skew_ms: int = 0
    since_s: int = 0
    until_s: int = SECONDS
    instance: str = field(default="")
    known_s: list[int] = field(default_factory=list)
    pushed_s: list[tuple[int, int]] = field(default_factory=list)

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


def _coinciding(chance: random.Random) -> list[Client]:
    """As cron starts them: all that one client-id stands for burst at the same time, of two client-ids not."""
    rates = [_bursts(chance, lasts) for lasts in (60, 180)]
    return [Client(f"user-{each % 2}", f"cron-{each % 4}", rates[each // 2 % 2]) for each in range(16)]


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
    "coinciding": _coinciding,
}
"""Name -> what makes its clients."""


def _steady(rate: float) -> Bytes:
    return rate + np.zeros(SECONDS)


def _swinging(rate: float, chance: random.Random) -> Bytes:
    return rate * (1 + 0.2 * np.sin(np.arange(SECONDS) * 2 * math.pi / 2_400 + chance.uniform(0, 6.3)))


def _bursts(chance: random.Random, lasts_s: int = 120) -> Bytes:
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
        client.known_s, client.pushed_s = [], []
        last_s, next_s = client.since_s, client.since_s + round(interval_s * chance.uniform(0.5, 1.5))
        while last_s < client.until_s:
            at_s = min(next_s, client.until_s)  # the last push is the terminating one
            client.pushed_s.append((last_s, at_s))
            if chance.random() > LOST:
                late_s = chance.uniform(1, LATEST_S) if chance.random() < LATE else 0.1
                rows.append(_push(client, last_s, at_s, interval_s, late_s))
                client.known_s += [last_s, at_s]
            last_s, next_s = at_s, at_s + interval_s
    return sorted(rows, key=lambda row: row["received_unix_ms"])  # type: ignore[arg-type, return-value]


def told_since_s(at_s: int) -> int:
    """Since when a push tells a rate: Kafka's two samples of 30 s, of which the second is not full yet."""
    return at_s - 30 - at_s % 30


def _push(client: Client, last_s: int, at_s: int, interval_s: int, late_s: float) -> dict[str, object]:
    at_ms = BEGIN_MS + at_s * 1000 + client.skew_ms
    prefix = f"org.apache.kafka.{client.role}.node.{_DIRECTION[client.role]}.byte"
    counted = math.fsum(client.sends[last_s:at_s])  # in whatever order they came
    sampled = float(client.sends[max(told_since_s(at_s), 0) : at_s].mean())
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
