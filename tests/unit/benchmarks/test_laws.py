"""What puts the laws to the test sets what it says, everywhere, and for so long only."""

import ast
import random
from pathlib import Path

import pytest

from benchmarks import laws
from benchmarks.law_constants import CONSTANTS, GIVEN, WHY
from benchmarks.law_scenes import BROKEN, SCENES, Figure, Scene
from benchmarks.rivals import RIVALS
from kclient_quota.pacing import known_share, learnt_share, pacer
from kclient_quota.pacing.fetching import fetch_share
from kclient_quota.simulation import Scenario, figures, parts, simulate


def test_a_constant_is_changed_wherever_it_was_imported_to() -> None:
    before = known_share.TARGET
    with laws._set("known_share", "TARGET", 0.5):
        found = known_share.TARGET, pacer.SHARED_TARGET, learnt_share.TARGET, fetch_share.SHARE_TARGET
        assert found == (0.5, 0.5, 0.5, 0.5)
        assert pacer.TARGET != 0.5
    assert known_share.TARGET == pacer.SHARED_TARGET == before


def test_every_constant_in_the_table_exists_and_can_be_varied() -> None:
    for module, (side, names) in CONSTANTS.items():
        assert side in SCENES
        for name in names.split():
            value = getattr(laws.home(module), name)
            low, high = laws._varied(value)
            assert low < value < high
            assert type(low) is type(value)


def test_every_constant_of_the_laws_is_put_to_the_test_or_given() -> None:
    found = set()
    for path in Path(pacer.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
            named = [each for target in targets for each in getattr(target, "elts", [target])]
            found |= {f"{path.stem}.{each.id}" for each in named if each.id[0] != "_" and each.id.isupper()}
    tuned = {f"{module}.{name}" for module, (_, names) in CONSTANTS.items() for name in names.split()}
    given = {f"{module}.{name}" for module, names in GIVEN.items() for name in names.split()}
    assert found == tuned | given
    assert not tuned & given
    assert tuned >= WHY.keys()
    assert len(WHY) <= 5
    assert len(tuned) <= 40
    page = (Path(__file__).parents[3] / laws.PAGE).read_text()
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert rows.keys() == tuned
    assert {name for name, row in rows.items() if "nothing here" in row} == WHY.keys()


def test_a_broken_bound_makes_a_scene_worse() -> None:
    scene = Scene(SCENES["known"]["1 alone, 51,200 B/s"].what, used=0.95, settles_s=35)
    assert scene.badness(Figure(0.95)) == pytest.approx(0.05)
    assert scene.badness(Figure(0.94)) == pytest.approx(0.06 + BROKEN)
    assert scene.badness(Figure(1.0, settles_s=36)) == pytest.approx(0.12 + BROKEN)


@pytest.mark.parametrize("law", RIVALS)
def test_a_rival_learns_something(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacer, "LearntShare", RIVALS[law])
    scenario = Scenario(quota=51_200, told=False, seconds=60)
    found = figures(scenario, [simulate(scenario, part, random.Random(1)) for part in parts(scenario)])
    assert 0.3 < found.utilisation < 3
