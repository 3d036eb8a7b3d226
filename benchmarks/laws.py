"""`python -m benchmarks.laws constants [--write]`, `python -m benchmarks.laws rivals`: the laws put to the test.

`constants` halves and doubles each constant of the laws in virtual time, plays the scenes of its side, and prints the
first that suffers; `--write` puts the table into `docs/explanation/pacing-constants.md`, `--only claim` only
that module's lines, `--only claim.STEP` that constant's. Of parts near 1 the distance to 1 is halved and doubled.
`rivals` plays two laws of others in place of the learnt one (`benchmarks.rivals`).
"""

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import kclient_quota.pacing
from benchmarks.law_constants import CONSTANTS, WHY
from benchmarks.law_scenes import LEARNT, OTHER_SEEDS, SCENES, Figure, Scene
from benchmarks.rivals import RIVALS
from kclient_quota.pacing import pacer

PAGE: Final = Path("docs/explanation/pacing-constants.md")
NEAR_ONE: Final = 0.7
TELLS: Final = 0.01
"""A scene that gets worse by so much more than by chance tells something; see `Scene.badness`."""


def main() -> int:
    """Prints what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.laws", description=__doc__)
    parser.add_argument("what", choices=("constants", "rivals"))
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    parser.add_argument("--only", default="", help="only constants whose names begin so: claim, or claim.STEP")
    parser.add_argument("--jobs", type=int, default=None)
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        if options.what == "rivals":
            for name, scene, figure in pool.map(
                _rival, [(law, scene) for scene in LEARNT for law in ("ours", *RIVALS)]
            ):
                print(f"{scene:<26} {name:<10} {figure}", flush=True)
            return 0
        every = [(module, name) for module, (_, names) in CONSTANTS.items() for name in names.split()]
        chosen = [each for each in every if ".".join(each).startswith(options.only)]
        rows = []
        for row in pool.map(_row, chosen):
            print(row, flush=True)
            rows.append(row)
    if options.write:
        _write({_named(each): row for each, row in zip(chosen, rows, strict=True)}, [_named(each) for each in every])
    return 0


HEAD: Final = """# The constants of the laws

`python -m benchmarks.laws constants --write` makes this page. Each constant is halved and doubled in virtual time (of a
part near 1: its distance to 1), and the first scene of its side that suffers is shown: part of the quota used, Jain's
index (beside plain clients: what ours have of an equal share), p99 throttle time, time until clients have settled.
*Nothing here* means that no scene that is played gets worse by a hundredth more than it differs with other seeds, nor
breaks a bound of `tests/grids`: the constant guards against what is not played here, or may go. Of the send queue the
first figure is the part of the best that is possible, and the time is how late messages are and the longest throttle;
of share consumers the part of what is possible; of fetch sizes the part of the quota that is payload; of `spare` the
part of all bytes that passes without the queue. `python -m benchmarks.laws rivals` plays the laws of others in place of
the learnt one.

| constant | value | halved | doubled | scene | as it is | halved | doubled |
|---|---|---|---|---|---|---|---|
"""


def _write(rows: Mapping[str, str], every: Sequence[str]) -> None:
    """The page, with these lines new, the others as they were, and none of constants that are gone."""
    before = {line.split(" | ")[0][2:]: line for line in PAGE.read_text().splitlines() if line.startswith("| `")}
    found = {**before, **rows}
    PAGE.write_text(HEAD + "".join(f"{found[name]}\n" for name in every if name in found))


def _named(constant: tuple[str, str]) -> str:
    return f"`{'.'.join(constant)}`"


def _row(constant: tuple[str, str]) -> str:
    """A constant's line of the table."""
    module, name = constant
    scenes = SCENES[CONSTANTS[module][0]]
    value = getattr(home(module), name)
    low, high = _varied(value)
    cells = [_named(constant), f"{value:g}", f"{low:g}", f"{high:g}"]
    for scene, played in scenes.items():
        as_it_is, chance = _as_it_is(CONSTANTS[module][0], scene)
        halved, doubled = (_with(module, name, other, played) for other in (low, high))
        if max(map(played.badness, (halved, doubled))) - played.badness(as_it_is) >= TELLS + chance:
            cells += [scene, *map(str, (as_it_is, halved, doubled))]
            break
    else:
        why = WHY.get(f"{module}.{name}")
        cells += ["nothing here" if why is None else f"nothing here: {why}", "", "", ""]
    return f"| {' | '.join(cells)} |"


@cache
def _as_it_is(side: str, scene: str) -> tuple[Figure, float]:
    """A scene's figure, and by how much its badness differs with other seeds."""
    played = SCENES[side][scene]
    figure = played.figure()
    return figure, abs(played.figure(OTHER_SEEDS).badness - figure.badness)


def _with(module: str, name: str, value: Any, scene: Scene) -> Figure:
    with _set(module, name, value):
        return scene.figure()


def _varied(value: float) -> tuple[float, float]:
    if NEAR_ONE <= value < 1:
        return 1 - (1 - value) * 2, 1 - (1 - value) / 2
    kind = type(value)
    return kind(value / 2) or kind(1), kind(value * 2)


@contextmanager
def _set(module: str, name: str, value: Any) -> Iterator[None]:
    """With another value of a constant, wherever it has been imported to."""
    before = getattr(home(module), name)
    names = {name, "SHARED_TARGET", "SHARE_TARGET"} if module == "known_share" and name == "TARGET" else {name}
    places = [(each, held) for each in _modules() for held in names if getattr(each, held, None) is before]
    for each, held in places:
        setattr(each, held, value)
    try:
        yield
    finally:
        for each, held in places:
            setattr(each, held, before)


def home(module: str) -> ModuleType:
    """The module of `kclient_quota.pacing`, or of a folder in it, that is named so."""
    return next(each for each in _modules() if each.__name__.endswith(f".{module}"))


def _modules() -> Iterator[ModuleType]:
    room = kclient_quota.pacing
    return (importlib.import_module(each.name) for each in pkgutil.walk_packages(room.__path__, f"{room.__name__}."))


def _rival(named: tuple[str, str]) -> tuple[str, str, Figure]:
    law, scene = named
    ours = pacer.LearntShare
    pacer.LearntShare = RIVALS.get(law, ours)  # type: ignore[misc]
    try:
        return law, scene, LEARNT[scene].figure()
    finally:
        pacer.LearntShare = ours  # type: ignore[misc]


if __name__ == "__main__":
    sys.exit(main())
