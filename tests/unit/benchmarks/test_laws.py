"""What puts the laws to the test sets what it says, everywhere, and for so long only."""

import random

import pytest

from benchmarks import laws
from benchmarks.rivals import RIVALS
from kclient_quota.pacing import fetch_share, known_share, learnt_share, pacer
from kclient_quota.simulation import Scenario, figures, parts, simulate


def test_a_constant_is_changed_wherever_it_was_imported_to() -> None:
    before = known_share.TARGET
    with laws._set("known_share", "TARGET", 0.5):
        found = known_share.TARGET, pacer.SHARED_TARGET, learnt_share.TARGET, fetch_share.SHARE_TARGET
        assert found == (0.5, 0.5, 0.5, 0.5)
        assert pacer.TARGET != 0.5
    assert known_share.TARGET == pacer.SHARED_TARGET == before


def test_every_constant_in_the_table_exists_and_can_be_varied() -> None:
    for module, (side, names) in laws.CONSTANTS.items():
        assert side in laws.SCENES
        for name in names.split():
            value = getattr(__import__(f"kclient_quota.pacing.{module}", fromlist=[name]), name)
            low, high = laws._varied(value)
            assert low < value < high
            assert type(low) is type(value)


@pytest.mark.parametrize("law", RIVALS)
def test_a_rival_learns_something(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacer, "LearntShare", RIVALS[law])
    scenario = Scenario(quota=51_200, told=False, seconds=60)
    found = figures(scenario, [simulate(scenario, part, random.Random(1)) for part in parts(scenario)])
    assert 0.3 < found.utilisation < 3
