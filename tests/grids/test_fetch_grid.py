"""What tests of fetching and of neighbours in `tests/unit/pacing` have, in other cells."""

import pytest

from tests.unit.pacing.test_fetch import (
    followed_with_sizes_by_hand,
    large_batches_are_spaced_by_the_window,
    small_batches_use_it_all_and_come_evenly,
    small_from_now_on_use_it_all,
)
from tests.unit.pacing.test_fetch_here import (
    all_but_the_last_few_wait_for_the_news,
    polls_let_no_fetch_out_too_early,
    short_poll_interval_lets_no_fetch_out_too_early,
)
from tests.unit.pacing.test_neighbours import several_use_the_quota_evenly
from tests.unit.pacing.test_share_fetch import other_windows_are_filled_as_well


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


@pytest.mark.parametrize(("brokers", "batch"), [(1, 5_000), (3, 600)])
def test_batches_that_are_small_from_now_on_use_it_all_within_two_windows(brokers, batch):
    small_from_now_on_use_it_all(brokers, batch)


def test_all_but_the_last_few_messages_of_a_long_batch_wait_for_nothing_but_the_news_of_them():
    all_but_the_last_few_wait_for_the_news(100_000, 150_000, 0.80)


@pytest.mark.parametrize(
    ("byte_rate", "batch", "message", "by_hand"),
    [
        (100_000, 400_000, 1_000, False),
        (100_000, 400_000, 1_000, True),
        (100_000, 400_000, 5_000, True),
        (50_000, 100_000, 1_000, True),
    ],
)
def test_what_polls_take_lets_no_fetch_out_before_its_batch_fits(byte_rate, batch, message, by_hand):
    polls_let_no_fetch_out_too_early(byte_rate, batch, message, by_hand=by_hand)


def test_nor_what_polls_take_that_a_short_poll_interval_wants_more_often():
    short_poll_interval_lets_no_fetch_out_too_early(500_000, 10_000, by_hand=True)


@pytest.mark.parametrize(
    ("batch", "count", "least"),
    # batches that are each worth more than two seconds of one's part leave more of the quota
    [(4_000, 2, 0.97), (4_000, 16, 0.97), (16_000, 4, 0.97), (16_000, 16, 0.95)],
)
def test_several_use_the_quota_evenly_without_throttles(batch, count, least):
    several_use_the_quota_evenly(batch, count, least)


def test_windows_that_are_set_otherwise_are_filled_as_well():
    other_windows_are_filled_as_well(10_000)
