"""Whoever used little, and did not pause, gets 0.95 of the quota in any 15 s that follow."""

import pytest

from benchmarks.after_light_use import CELLS, Light


@pytest.mark.parametrize("cell", [each for each in CELLS if each.part > 0.3 or not each.pause_ms], ids=str)
def test_any_fifteen_seconds_after_light_use_have_nearly_all_of_the_quota(cell: Light) -> None:
    least, throttle_ms = cell.played()
    assert throttle_ms <= 200
    assert least >= 0.95
