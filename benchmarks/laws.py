"""`python -m benchmarks.laws constants [--write]`, `python -m benchmarks.laws rivals`: the laws put to the test.

`constants` halves and doubles each constant of the laws in virtual time, plays the scenes of its side, and prints the
scene that suffers most; `--write` puts the table into `docs/explanation/pacing-constants.md`, `--module claim` only
that module's lines. Of parts near 1 the distance to 1 is halved and doubled. `rivals` plays two laws of others in place
of the learnt one (`benchmarks.rivals`).
"""

import argparse
import importlib
import pkgutil
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import kclient_quota.pacing
from benchmarks.rivals import RIVALS
from kclient_quota.pacing import pacer
from kclient_quota.simulation import Change, Scenario, figures, parts, simulate

PAGE: Final = Path("docs/explanation/pacing-constants.md")
SEEDS: Final = (1,)
NEAR_ONE: Final = 0.7
TELLS: Final = 0.01
"""A scene that gets worse by so much tells something; see `Figure.badness`."""

KNOWN: Final = {
    "1 alone, 51,200 B/s": Scenario(quota=51_200, seconds=90),
    "2 at 51,200 B/s": Scenario(clients=2, quota=51_200),
    "8 at 51,200 B/s": Scenario(clients=8, quota=51_200),
    "1, then 7 come": Scenario(clients=1, quota=1_048_576, changes=(Change(40_000, 7),), seconds=90),
    "8, then 7 go": Scenario(clients=8, quota=1_048_576, changes=(Change(40_000, -7),), seconds=90),
}
LEARNT: Final = {
    "1 alone, 1 MiB/s": Scenario(told=False),
    "2 at 51,200 B/s": Scenario(clients=2, quota=51_200, told=False),
    "8 at 51,200 B/s": Scenario(clients=8, quota=51_200, told=False),
    "8 at 50 MiB/s": Scenario(clients=8, quota=52_428_800, told=False, seconds=90),
    "32 at 51,200 B/s": Scenario(clients=32, quota=51_200, told=False, seconds=90),
    "8 at 1 MiB/s, then 7 go": Scenario(clients=8, told=False, changes=(Change(50_000, -7),), seconds=90),
}
FETCHED: Final = {
    "1 alone": Scenario(consume=True, quota=100_000, seconds=90),
    "1 alone, 100 kB batches": Scenario(consume=True, quota=100_000, batch_messages=100, seconds=90),
    "4 at 100,000 B/s": Scenario(clients=4, consume=True, quota=100_000, seconds=90),
    "1 learns": Scenario(consume=True, quota=100_000, told=False),
    "4 learn": Scenario(clients=4, consume=True, quota=100_000, told=False, seconds=90),
}
BESIDE: Final = {
    "1 beside 1 plain, 51,200 B/s": Scenario(plain=1, quota=51_200, seconds=280, warm_up_ms=180_000),
    "1 beside 1 plain, 1 MiB/s": Scenario(plain=1, quota=1_048_576, seconds=280, warm_up_ms=180_000),
    "1 beside 3 plain": Scenario(plain=3, quota=1_048_576, seconds=280, warm_up_ms=180_000),
    "3 beside 1 plain": Scenario(clients=3, plain=1, quota=1_048_576, seconds=280, warm_up_ms=180_000),
    "8 alone, 1 MiB/s": Scenario(clients=8, quota=1_048_576, seconds=90),
}
SCENES: Final = {"known": KNOWN, "learnt": LEARNT, "fetch": FETCHED, "beside": BESIDE}

_KNOWN_SHARE: Final = """
    TARGET INCREASE_PER_S MOST_INCREASE_PER_S CALM_MS CALM_DOUBLING_MS HARSH_THROTTLE_MS LEAST_DECREASE MOST_DECREASE
    DECREASE_EVERY_MS CROWD_MS NEW_MS WORSE ALONE EXACT EXACT_DECREASE TRUST_PER_S MOST_TRUST_PER_S
"""
_LEARNT_SHARE: Final = """
    PRICE FADES_MS STALE_MS REQUEST_PART MOST_FALL FREE_RISE PROBE_RISE PAID_RISE LEAST_PART YOUNG_MS YOUNG_DRIFT
    YOUNG_RISE CROWDED_MS HARSH_MS HARSH_DECREASE MOST_PRICE MOST_RISE FORETOLD_MS CONTRADICTED_MS FORETOLD PATIENCE_MS
    MOST_PATIENCE_MS
"""
CONSTANTS: Final = {
    "known_share": ("known", _KNOWN_SHARE),
    "pacer": ("known", "TARGET LUMP LATE_LUMP LATENESS BURST SLACK LUMP_FADES IDLE_MS REVIEW_MS OUTSTANDING_MS"),
    "learnt_share": ("learnt", _LEARNT_SHARE),
    "price": ("learnt", "ROOT DRIFT_PER_S PRICE_MS"),
    "fetch_share": ("fetch", "TARGET OWN_PART PRICE MOST_FALL MOST_RISE MOST_LEAP"),
    "fetch_broker": ("fetch", "SAVED_MS BIG_BATCH_MS JITTER BATCH_FADE"),
    "fetch": ("fetch", "GRANT_MS SLACK"),
    "claim": ("beside", "LET_OFF_MS PATIENCE_MS LASTS_MS MUTED MOST_PART STEP FALLS WORSE TREND"),
}
"""What can be tuned, by module of `kclient_quota.pacing`, with the side whose scenes are played."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What came of a scene.

    Attributes:
        utilisation: part of the quota used.
        jain: fairness; 1 is equal shares. Beside plain clients: what ours have of an equal share, 1 at most.
        p99_s: throttle time of all responses.
        settles_s: after the last change, or the start.
    """

    utilisation: float
    jain: float
    p99_s: float
    settles_s: float

    @property
    def badness(self) -> float:
        """What is unused, unfair, throttled and unsettled, in parts; over-use is as bad as what is unused."""
        return abs(1 - self.utilisation) + (1 - self.jain) + self.p99_s / 10 + self.settles_s / 300

    def __str__(self) -> str:
        return f"{self.utilisation:.3f}, {self.jain:.3f}, {self.p99_s:.2f} s, {self.settles_s:.0f} s"


def main() -> int:
    """Prints what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.laws", description=__doc__)
    parser.add_argument("what", choices=("constants", "rivals"))
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    parser.add_argument("--module", choices=tuple(CONSTANTS), help="only the constants of this one")
    parser.add_argument("--jobs", type=int, default=None)
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        if options.what == "rivals":
            for name, scene, figure in pool.map(
                _rival, [(law, scene) for scene in LEARNT for law in ("ours", *RIVALS)]
            ):
                print(f"{scene:<26} {name:<10} {figure}", flush=True)
            return 0
        modules = [options.module] if options.module else list(CONSTANTS)
        names = [(module, name) for module in modules for name in CONSTANTS[module][1].split()]
        rows = []
        for row in pool.map(_row, names):
            print(row, flush=True)
            rows.append(row)
    if options.write:
        before = PAGE.read_text().splitlines() if options.module and PAGE.exists() else []
        kept = [line for line in before if line.startswith("| `") and not line.startswith(f"| `{options.module}.")]
        PAGE.write_text(HEAD + "\n".join(kept + rows) + "\n")
    return 0


HEAD: Final = """# The constants of the laws

`python -m benchmarks.laws constants --write` makes this page. Each constant is halved and doubled in virtual time (of a
part near 1: its distance to 1), and the scene of its side that suffers most is shown: part of the quota used, Jain's
index (beside plain clients: what ours have of an equal share), p99 throttle time, time until clients have settled.
*Nothing here* means that no scene that is played gets worse by a hundredth: the constant guards against what is not
played here (clocks that jump, distances, hiccups), or may go. `python -m benchmarks.laws rivals` plays the
laws of others in place of the learnt one.

| constant | value | halved | doubled | scene | as it is | halved | doubled |
|---|---|---|---|---|---|---|---|
"""


def _row(constant: tuple[str, str]) -> str:
    """A constant's line of the table."""
    module, name = constant
    scenes = SCENES[CONSTANTS[module][0]]
    value = getattr(importlib.import_module(f"kclient_quota.pacing.{module}"), name)
    low, high = _varied(value)
    as_it_is = _as_it_is(CONSTANTS[module][0])
    with _set(module, name, low):
        halved = {scene: _played(scenario) for scene, scenario in scenes.items()}
    with _set(module, name, high):
        doubled = {scene: _played(scenario) for scene, scenario in scenes.items()}
    worst = max(scenes, key=lambda scene: max(halved[scene].badness, doubled[scene].badness) - as_it_is[scene].badness)
    told = max(halved[worst].badness, doubled[worst].badness) - as_it_is[worst].badness
    cells = [f"`{module}.{name}`", f"{value:g}", f"{low:g}", f"{high:g}"]
    if told < TELLS:
        cells += ["nothing here", "", "", ""]
    else:
        cells += [worst, *map(str, (as_it_is[worst], halved[worst], doubled[worst]))]
    return f"| {' | '.join(cells)} |"


@cache
def _as_it_is(side: str) -> dict[str, Figure]:
    return {scene: _played(scenario) for scene, scenario in SCENES[side].items()}


def _varied(value: float) -> tuple[float, float]:
    if NEAR_ONE <= value < 1:
        return 1 - (1 - value) * 2, 1 - (1 - value) / 2
    kind = type(value)
    return kind(value / 2) or kind(1), kind(value * 2)


@contextmanager
def _set(module: str, name: str, value: Any) -> Iterator[None]:
    """With another value of a constant, wherever it has been imported to."""
    home = importlib.import_module(f"kclient_quota.pacing.{module}")
    before = getattr(home, name)
    packages = [importlib.import_module(f"kclient_quota.pacing.{each.name}") for each in _modules()]
    names = {name, "SHARED_TARGET", "SHARE_TARGET"} if module == "known_share" and name == "TARGET" else {name}
    places = [(each, held) for each in packages for held in names if getattr(each, held, None) is before]
    for each, held in places:
        setattr(each, held, value)
    try:
        yield
    finally:
        for each, held in places:
            setattr(each, held, before)


def _modules() -> Iterator[pkgutil.ModuleInfo]:
    return pkgutil.iter_modules(kclient_quota.pacing.__path__)


def _rival(named: tuple[str, str]) -> tuple[str, str, Figure]:
    law, scene = named
    ours = pacer.LearntShare
    pacer.LearntShare = RIVALS.get(law, ours)  # type: ignore[misc]
    try:
        return law, scene, _played(LEARNT[scene])
    finally:
        pacer.LearntShare = ours  # type: ignore[misc]


def _played(scenario: Scenario) -> Figure:
    where = parts(scenario)
    found = [
        figures(scenario, [simulate(scenario, part, random.Random(f"{seed}/{part.brokers[0]}")) for part in where])
        for seed in SEEDS
    ]
    longest_s = scenario.seconds
    settled = [each.settling[-1].after_ms if each.settling else 0 for each in found]
    equal = scenario.clients / (scenario.clients + scenario.plain)
    fair = [each.jain if each.plain is None else min(1.0, (1 - each.plain.used) / equal) for each in found]
    return Figure(
        fmean(each.utilisation for each in found),
        fmean(fair),
        max(each.throttle_p99_ms for each in found) / 1000,
        fmean(longest_s if after_ms is None else after_ms / 1000 for after_ms in settled),
    )


if __name__ == "__main__":
    sys.exit(main())
