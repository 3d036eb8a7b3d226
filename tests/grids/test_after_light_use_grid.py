"""Whoever used little gets 0.95 of the quota in any 15 s that follow, whatever chance has it."""

import pytest

from benchmarks.after_light_use import CELLS, Light


@pytest.mark.parametrize("seed", range(1, 7))
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_any_fifteen_seconds_after_light_use_have_nearly_all_of_the_quota(cell: Light, seed: int) -> None:
    least, throttle_ms = cell.played(seed=seed)
    assert throttle_ms <= 200
    assert least >= 0.95
