"""What windowed statistics hold at the very millisecond at which a sample begins, ends, or is forgotten."""

import math

import pytest

from kclient_quota.quota import rate as kafkas
from kclient_quota.quota.delay_queue import DelayQueue
from kclient_quota.quota.rate import CumulativeSum, SampledAvg, SampledMax, SampledRate


def test_the_windows_without_a_configuration_are_kafkas() -> None:
    assert (kafkas.QUOTA_SAMPLES, kafkas.QUOTA_WINDOW_MS) == (11, 1_000)
    assert (kafkas.STAT_SAMPLES, kafkas.STAT_WINDOW_MS) == (2, 30_000)
    assert (SampledRate().samples, SampledRate().window_ms) == (11, 1_000)
    for stat in (SampledAvg(), SampledMax()):
        assert (stat.samples, stat.window_ms) == (2, 30_000)


def test_a_rate_that_has_recorded_nothing_has_no_sample() -> None:
    rate = SampledRate(3, 1_000)
    assert (rate.opened_ms, rate.history(0), rate.forgetting(0)) == (None, [], [])
    assert (rate.project(700), rate.total(700)) == ((0.0, 2_000), 0.0)
    assert rate.opened_ms is None  # looking at the total begins none


def test_a_window_begins_when_it_is_first_looked_at() -> None:
    rate = SampledRate(11, 1_000)
    assert (rate.window_size_ms(0), rate.opened_ms) == (10_000, 0)
    rate.record(7, 1_500)
    assert rate.opened_ms == 1_500
    assert rate.project(1_600) == (7.0, 10_600)  # the sample that the look began is the oldest
    early = SampledRate(11, 1_000)
    early.window_size_ms(0)
    early.record(7, 999)
    assert (early.opened_ms, early.history(999)) == (0, [(0, 7.0)])


@pytest.mark.parametrize(
    ("elapsed_ms", "window_ms"),
    [
        (0, 2_000),
        (1, 2_001),
        (999, 2_999),
        (1_000, 2_000),
        (1_999, 2_999),
        (2_000, 2_000),
        (2_001, 2_001),
        (2_999, 2_999),
    ],
)
def test_a_window_is_all_but_one_of_its_samples_and_the_running_part(elapsed_ms: int, window_ms: int) -> None:
    rate = SampledRate(3, 1_000)
    rate.record(5, 40_000)
    assert rate.project(40_000 + elapsed_ms) == (5.0, window_ms)
    assert rate.window_size_ms(40_000 + elapsed_ms) == window_ms
    assert rate.measure(40_000 + elapsed_ms) == 5.0 / (window_ms / 1_000)


@pytest.mark.parametrize(
    ("back_ms", "window_ms"), [(1, 9_999), (999, 9_001), (1_000, 10_000), (1_001, 9_999), (2_000, 10_000)]
)
def test_a_window_that_begins_in_the_future_is_cut_towards_zero(back_ms: int, window_ms: int) -> None:
    rate = SampledRate(11, 1_000)
    rate.record(1, 5_000)
    assert rate.window_size_ms(5_000 - back_ms) == window_ms


def test_a_window_is_a_millisecond_at_least() -> None:
    rate = SampledRate(1, 1_000)
    rate.record(5, 10)
    assert [rate.window_size_ms(now_ms) for now_ms in (9, 10, 11, 12, 1_009)] == [1, 1, 1, 2, 999]
    assert rate.window_size_ms(1_010) == 1  # forgotten in the millisecond in which its window ends
    assert rate.total(1_010) == 0.0


def test_a_sample_is_forgotten_a_whole_window_after_its_last_event() -> None:
    rate = SampledRate(3, 1_000)
    rate.record(4, 100)
    rate.record(2, 600)
    assert rate.project(3_599) == (6.0, 3_499)
    assert rate.project(3_600) == (0.0, 2_000)
    assert (rate.total(3_599), rate.total(3_600)) == (6.0, 0.0)
    assert rate.opened_ms == 3_600


def test_the_ring_has_one_sample_more_than_the_window() -> None:
    rate = SampledRate(2, 1_000)
    for number in range(5):
        rate.record(10**number, number * 1_000)
    assert len(rate._values) == 3
    assert rate.history(4_000) == [(4_000, 10_000.0), (3_000, 1_000.0)]
    assert rate.history(3_999) == [(4_000, 10_000.0), (3_000, 1_000.0), (2_000, 100.0)]
    assert rate.total(3_999) == 11_100.0


def test_what_will_be_forgotten_in_exact_rows() -> None:
    rate = SampledRate(3, 1_000)
    rate.record(10, 0)
    rate.record(20_000, 1_500)
    assert rate.forgetting(2_000) == [(2_000, 20_010.0, 2_000), (3_000, 20_000.0, 2_500), (3_500, 20_000.0, 2_000)]
    assert rate.forgetting(2_999) == [(2_999, 20_010.0, 2_999), (3_000, 20_000.0, 2_500), (3_500, 20_000.0, 2_000)]
    assert rate.forgetting(3_000) == [(3_000, 20_000.0, 2_500), (3_500, 20_000.0, 2_000)]
    assert rate.forgetting(3_500) == [(3_500, 20_000.0, 2_000)]
    assert rate.forgetting(4_499) == [(4_499, 20_000.0, 2_999)]
    assert rate.forgetting(4_500) == []
    for now_ms in (0, 499, 1_000, 1_600, 2_000, 2_999, 3_000, 4_499):
        assert [rate.project(at_ms) for at_ms, _, _ in rate.forgetting(now_ms)] == [
            row[1:] for row in rate.forgetting(now_ms)
        ]


def test_a_sample_that_began_before_the_window_is_remembered_whole_as_long_as_its_last_event() -> None:
    rate = SampledRate(3, 1_000)
    rate.record(4, 0)
    rate.record(2, 600)
    assert rate.forgetting(3_500) == [(3_500, 6.0, 3_500)]
    assert rate.forgetting(3_599) == [(3_599, 6.0, 3_599)]
    assert rate.forgetting(3_600) == []


def test_what_was_recorded_negative_is_remembered_as_long() -> None:
    rate = SampledRate(2, 1_000)
    rate.record(-5_000, 10_000)
    rate.record(3, 11_000)
    assert rate.forgetting(11_000) == [(11_000, -4_997.0, 1_000), (12_000, 3.0, 1_000)]


def test_a_clock_that_jumps_takes_everything_along() -> None:
    rate = SampledRate(3, 1_000)
    rate.record(1, 0)
    rate.record(2, 1_200)
    rate.rebase(-500)
    assert (rate.opened_ms, rate.history(1_000)) == (700, [(700, 2.0), (-500, 1.0)])
    assert (rate.total(2_499), rate.total(2_500), rate.total(3_700)) == (3.0, 2.0, 0.0)


def test_means_and_largest_values_forget_what_was_in_a_sample_that_is_used_again() -> None:
    mean, largest = SampledAvg(1, 1_000), SampledMax(1, 1_000)
    for stat in (mean, largest):
        stat.record(8.0, 0)
        stat.record(6.0, 999)
    assert (mean.measure(999), largest.measure(999)) == (7.0, 8.0)
    for stat in (mean, largest):
        stat.record(1.0, 1_000)
        stat.record(2.0, 2_000)
        stat.record(-4.0, 2_000)
    assert (mean.measure(2_000), largest.measure(2_000)) == (-1.0, 2.0)
    assert (mean.measure(2_999), largest.measure(2_999)) == (-1.0, 2.0)
    assert math.isnan(mean.measure(3_000))
    assert math.isnan(largest.measure(3_000))


def test_the_largest_of_negative_values_is_one_of_them() -> None:
    largest = SampledMax()
    largest.record(-3.0, 0)
    largest.record(-2.5, 0)
    assert largest.measure(0) == -2.5
    mean = SampledAvg()
    mean.record(0.0, 0)
    assert mean.measure(0) == 0.0  # one event of nothing is an event


def test_a_sum_that_never_forgets() -> None:
    total = CumulativeSum()
    assert total.measure(0) == 0.0
    total.record(2.5, 0)
    total.record(-1.0, 10**12)
    assert (total.measure(10**15), total.measure(0)) == (1.5, 1.5)


def test_channels_whose_throttling_ends_together_leave_in_the_order_in_which_they_came() -> None:
    queue: DelayQueue[object] = DelayQueue()
    channels = [object() for _ in range(5)]  # no two of them can be compared
    for channel in channels:
        queue.add(channel, 10, 0)
    assert queue.poll(9) is None
    assert [queue.poll(10) for _ in channels] == channels
    assert (queue.poll(10), queue.next_end_ms(), len(queue)) == (None, None, 0)


def test_what_is_taken_back_leaves_the_newest_samples_first_and_no_more_than_they_hold():
    rate = SampledRate()
    for at_ms, value in ((0, 50.0), (1_000, 30.0), (2_500, 20.0)):
        rate.record(value, at_ms)
    rate.take_back(35.0)
    assert rate.history(2_500) == [(2_500, 0.0), (1_000, 15.0), (0, 50.0)]
    rate.take_back(-5.0)
    assert rate.total(2_500) == 65.0
    rate.take_back(1_000.0)
    assert rate.total(2_500) == 0.0
