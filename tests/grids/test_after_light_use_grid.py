"""Whoever used little, and did not pause, gets nearly what it would have got, had it wanted everything all the time."""

import pytest

from benchmarks.after_light_use import CELLS, Light


@pytest.mark.parametrize("cell", [each for each in CELLS if each.part == 0.3 and not each.pause_ms], ids=str)
def test_fifteen_seconds_after_light_use_have_nearly_what_they_have_anyway(cell: Light) -> None:
    least, throttle_ms = cell.played()
    steady, _ = cell.played(lightly=False)
    assert throttle_ms <= 200
    assert least >= steady - 0.04
