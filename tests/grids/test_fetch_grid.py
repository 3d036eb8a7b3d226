"""What `tests/unit/pacing/test_fetch.py` and `test_fetch_here.py` have some cells of, in the others as well."""

import pytest

from tests.unit.pacing.test_fetch import (
    followed_with_sizes_by_hand,
    large_batches_are_spaced_by_the_window,
    small_batches_use_it_all_and_come_evenly,
)
from tests.unit.pacing.test_fetch_here import polls_let_no_fetch_out_too_early


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


def test_what_polls_take_lets_no_fetch_out_before_its_batch_fits():
    polls_let_no_fetch_out_too_early(100_000, 400_000, 1_000, by_hand=True)
