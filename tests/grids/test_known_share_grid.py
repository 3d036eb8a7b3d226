"""What `test_known_share.py` and `test_slow_beginning.py` of `tests/unit/pacing` have some cells of, in every cell."""

import pytest

from tests.unit.pacing.test_known_share import (
    QUOTAS,
    another_window,
    bytes_that_nobody_told_of_cost_little,
    skew_jitter_and_late_callers_cost_no_throttle,
    strangers_come_to_equal_shares,
)
from tests.unit.pacing.test_slow_beginning import (
    LATE_MS,
    PAUSES_S,
    WORKED_S,
    first_that_is_late_is_not_throttled,
    who_comes_back_is_not_throttled,
)


@pytest.mark.parametrize("quota", QUOTAS)
@pytest.mark.parametrize("skew", [0.001, -0.001], ids=["client clock fast", "client clock slow"])
@pytest.mark.parametrize("late_ms", [0, 3, 20])
@pytest.mark.parametrize("seed", [1, 2])
def test_skew_jitter_and_late_callers_cost_no_throttle(quota, skew, late_ms, seed):
    skew_jitter_and_late_callers_cost_no_throttle(quota, skew, late_ms, seed)


@pytest.mark.parametrize("framing", [0.005, 0.01, 0.03, 0.12])
@pytest.mark.parametrize("quota", QUOTAS)
def test_bytes_that_nobody_told_of_cost_little(quota, framing):
    bytes_that_nobody_told_of_cost_little(quota, framing)


@pytest.mark.parametrize("quota", QUOTAS)
@pytest.mark.parametrize("clients", [2, 8, 32])
def test_strangers_come_to_equal_shares(quota, clients):
    strangers_come_to_equal_shares(quota, clients)


@pytest.mark.parametrize(("window", "told"), [((4, 250), False), ((11, 100), True)], ids=str)
def test_other_windows_of_the_broker(window, told):
    another_window(window, told)


@pytest.mark.parametrize(
    ("window", "told"), [((11, 10_000), True), ((11, 10_000), False), ((2, 30_000), False)], ids=str
)
def test_a_long_window_of_the_broker(window, told):
    another_window(window, told)


@pytest.mark.parametrize("first_ms", LATE_MS)
def test_a_client_whose_first_request_comes_late_is_not_throttled(first_ms):
    first_that_is_late_is_not_throttled(1_048_576, first_ms)


@pytest.mark.parametrize("worked_s", WORKED_S)
@pytest.mark.parametrize("pause_s", PAUSES_S)
@pytest.mark.parametrize("first_ms", [0, 150, 600, 1_500])
def test_nor_is_one_that_comes_back_after_a_pause(worked_s, pause_s, first_ms):
    who_comes_back_is_not_throttled(worked_s, pause_s, first_ms)
