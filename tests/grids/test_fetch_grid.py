"""What `test_fetch.py`, `test_fetch_here.py` and `test_neighbours.py` of `tests/unit/pacing` have, in other cells."""

import pytest

from tests.unit.pacing.test_fetch import (
    followed_with_sizes_by_hand,
    large_batches_are_spaced_by_the_window,
    small_batches_use_it_all_and_come_evenly,
)
from tests.unit.pacing.test_fetch_here import polls_let_no_fetch_out_too_early
from tests.unit.pacing.test_neighbours import several_use_the_quota_evenly


@pytest.mark.parametrize(
    ("byte_rate", "batch", "message"),
    [
        (1_000_000, 200_000, 1_000),
        (1_000_000, 40_000, 1_000),
        (1_000_000, 2_000, 100),
        (100_000, 16_000, 1_000),
        (100_000, 2_000, 100),
        (100_000, 1_000, 1_000),
        (20_000, 1_000, 1_000),
    ],
)
def test_batches_that_are_small_beside_the_window_use_it_all_and_come_evenly(byte_rate, batch, message):
    small_batches_use_it_all_and_come_evenly(byte_rate, batch, message)


def test_batches_that_fill_much_of_the_window_are_spaced_by_it():
    large_batches_are_spaced_by_the_window(1_000_000, 900_000, 1_000, 0.80, 2_500)


def test_a_quota_is_followed_with_librdkafkas_fetch_sizes_and_a_queue_set_by_hand():
    followed_with_sizes_by_hand(400_000, 0.8, 3_000)


@pytest.mark.parametrize(("byte_rate", "batch"), [(100_000, 400_000), (50_000, 100_000)])
def test_what_polls_take_lets_no_fetch_out_before_its_batch_fits(byte_rate, batch):
    polls_let_no_fetch_out_too_early(byte_rate, batch, 1_000, by_hand=True)


@pytest.mark.parametrize(("batch", "count"), [(4_000, 16), (16_000, 4)])
def test_several_use_the_quota_evenly_without_throttles(batch, count):
    several_use_the_quota_evenly(batch, count, 0.97)
