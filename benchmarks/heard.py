"""What a client that knows its quota hears of strangers: `python -m benchmarks.heard`, in virtual time.

The same few figures reach it whether the strangers know the quota, too, or have to learn it: which part of its answers
carries a throttle time, how long those are on average (zeros counted), and what it gets of the quota. The table says
how alike they are, what everybody has of an equal share, and how long throttles are.
"""

import random
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final
from unittest import mock

from kclient_quota.pacing.known_share import KnownShare
from kclient_quota.simulation import Scenario, figures, parts, simulate

CROWDS: Final = ((2, 0, 0), (8, 0, 0), (16, 0, 0), (2, 1, 0), (8, 1, 0), (8, 7, 0), (8, 0, 8))
"""Clients, how many of them learn though the others know, and how many of a crowd in which all learn."""
QUOTAS: Final = (51_200, 1_048_576)
SECONDS: Final = 120
WARM_UP_S: Final = 60


@dataclass
class Ears:
    """What all clients that know the quota are told, after the warm-up.

    Attributes:
        throttles_ms: of each answer, zero if it carried none.
    """

    throttles_ms: list[int] = field(default_factory=list)

    @property
    def part(self) -> float:
        """Of the answers, that carried a throttle."""
        return sum(each > 0 for each in self.throttles_ms) / max(len(self.throttles_ms), 1)

    @property
    def mean_ms(self) -> float:
        """Of all answers."""
        return sum(self.throttles_ms) / max(len(self.throttles_ms), 1)


def listening(ears: Ears, begun_ms: dict[int, int]) -> Any:
    """Have `ears` told what every known share is told."""
    throttled, free = KnownShare.on_throttle, KnownShare.on_free

    def heard(share: KnownShare, throttle_ms: int, now_ms: int) -> None:
        if now_ms - begun_ms.setdefault(id(share), now_ms) >= WARM_UP_S * 1000:
            ears.throttles_ms.append(throttle_ms)

    def on_throttle(share: KnownShare, own_bytes: float, window_ms: int, throttle_ms: int, now_ms: int) -> None:
        heard(share, throttle_ms, now_ms)
        throttled(share, own_bytes, window_ms, throttle_ms, now_ms)

    def on_free(share: KnownShare, now_ms: int) -> None:
        heard(share, 0, now_ms)
        free(share, now_ms)

    return mock.patch.multiple(KnownShare, on_throttle=on_throttle, on_free=on_free)


def row(crowd: tuple[int, int, int, int]) -> str:
    """One line: a quota, who shares it, what those who know it hear, and what everybody has."""
    quota, clients, learning, unknowing = crowd
    scenario = Scenario(
        clients=clients,
        learning=learning,
        told=not unknowing,
        quota=quota,
        seconds=SECONDS + WARM_UP_S,
        warm_up_ms=WARM_UP_S * 1000,
    )
    ears, begun_ms = Ears(), defaultdict[int, int]()
    with listening(ears, begun_ms):
        played = [simulate(scenario, part, random.Random(f"1/{part.brokers}")) for part in parts(scenario)]
    found = figures(scenario, played)
    knowing = 0 if unknowing else clients - learning
    has = {
        "knows": found.known.used if found.known else float(knowing > 0),
        "learns": found.learning.used if found.learning else float(unknowing > 0),
    }
    counts = {"knows": knowing, "learns": clients - knowing}
    share = {kind: f"{has[kind] * clients / count:.2f}" if count else "-" for kind, count in counts.items()}
    hears = (
        f"{ears.part:.2f} {ears.mean_ms:7.0f} {has['knows'] / knowing:8.3f}"
        if knowing
        else f"{'-':>4} {'-':>7} {'-':>8}"
    )
    return (
        f"{quota:>9} {knowing:>6} {clients - knowing:>7}   {hears}   {share['knows']:>6} {share['learns']:>7}"
        f"   {found.utilisation:5.3f} {found.throttle_p99_ms:>6}"
    )


def main() -> None:
    """Prints the table."""
    print("    quota  knows  learns   throttled mean-ms has     equal share of    used  p99-ms")
    cells = [(quota, *crowd) for quota in QUOTAS for crowd in CROWDS]
    with ProcessPoolExecutor() as pool:
        for line in pool.map(row, cells):
            print(line, flush=True)


if __name__ == "__main__":
    main()
