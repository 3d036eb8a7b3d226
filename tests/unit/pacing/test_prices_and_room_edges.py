"""Prices of throttles, and what a window has room for, in exact numbers."""

from math import exp, log

import pytest

from kclient_quota.pacing.price import Price
from kclient_quota.pacing.room import sustainable_rate
from kclient_quota.quota.rate import SampledRate

T0 = 1_000_000


# Prices -----------------------------------------------------------------------------------------------------------


def test_a_price_that_nobody_has_asked():
    price = Price()
    assert (price.throttle_ms, price.paid_at_ms) == (0.0, 0)
    assert price.drift(1.0) == pytest.approx(0.3 * log(1e9), rel=1e-12)


@pytest.mark.parametrize(
    ("throttle_ms", "after_ms", "on_average"),
    [
        (300.0, 0, 100.0),
        (300.0, -50, 100.0),
        (300.0, 1, 300.0 - 200.0 * exp(-0.0005)),
        (300.0, 2_000, 300.0 - 200.0 * exp(-1)),
        (0.0, 2_000, 100.0 * exp(-1)),
        (100.0, 500, 100.0),
        (300.0, 6_000, 300.0 - 200.0 * exp(-3)),
    ],
)
def test_throttles_are_averaged_over_two_seconds(throttle_ms, after_ms, on_average):
    price = Price()
    price.begin(100.0, T0)
    price.pay(throttle_ms, T0 + after_ms)
    assert price.throttle_ms == pytest.approx(on_average, rel=1e-12)
    assert price.paid_at_ms == T0 + after_ms


@pytest.mark.parametrize(("expected_ms", "change"), [(100.0, 0.0), (50.0, -0.3 * log(2)), (800.0, 0.3 * log(8))])
def test_a_rate_drifts_by_three_tenths_of_what_its_price_is_off(expected_ms, change):
    price = Price()
    price.begin(100.0, T0)
    assert price.drift(expected_ms) == pytest.approx(change, rel=1e-12)


def test_a_price_jumps_with_the_clock():
    price = Price()
    price.begin(100.0, T0)
    price.rebase(-300)
    assert (price.throttle_ms, price.paid_at_ms) == (100.0, T0 - 300)


# Room -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "window_ms", "at_once", "rate"),
    [
        (11, 1_000, 0.0, 10_000.0),
        (11, 1_000, 5_000.0, 9_500.0),
        (11, 1_000, -5_000.0, 10_500.0),
        (6, 500, 5_000.0, 8_000.0),
        (2, 1_000, 5_000.0, 5_000.0),
        (1, 1_000, 5_000.0, 5_000.0),
        (3, 1_000, 5_000.0, 7_500.0),
        (11, 1_000, 200_000.0, -10_000.0),
    ],
)
def test_what_is_sent_at_once_into_an_empty_window_is_paid_back_over_its_shortest_life(
    samples, window_ms, at_once, rate
):
    assert sustainable_rate(SampledRate(samples, window_ms), 10_000.0, at_once, T0) == rate


class Forgetting:
    """A window that is short at the moments told."""

    samples, window_ms = 11, 1_000

    def __init__(self, *moments):
        self.moments = moments

    def forgetting(self, now_ms):
        return [(now_ms + in_ms, remembered, size_ms) for in_ms, remembered, size_ms in self.moments]


@pytest.mark.parametrize(
    ("moments", "at_once", "rate"),
    [
        ([(2_000, 85_000.0, 10_500)], 0.0, 10_000.0),
        ([(2_000, 86_000.0, 10_500)], 0.0, 9_500.0),
        ([(2_000, 86_000.0, 10_500)], 1_000.0, 9_000.0),
        ([(2_000, 86_000.0, 10_500), (4_000, 75_000.0, 11_000), (8_000, 24_000.0, 10_000)], 0.0, 8_750.0),
        ([(8_000, 24_000.0, 10_000), (2_000, 95_000.0, 10_500)], 0.0, 5_000.0),
        ([(1, 99_995.0, 10_000)], 0.0, 5_000.0),
        ([(0, 99_995.0, 10_000)], 0.0, 5_000.0),
        ([(2, 99_990.0, 10_000)], 0.0, 5_000.0),
        ([(0, 100_000.0, 10_000)], 0.0, 0.0),
        ([(0, 100_001.0, 10_000)], 0.0, -1_000.0),
    ],
)
def test_a_rate_leaves_room_at_each_moment_when_the_window_is_short(moments, at_once, rate):
    assert sustainable_rate(Forgetting(*moments), 10_000.0, at_once, T0) == rate


def test_what_was_sent_before_leaves_as_it_came():
    mirror = SampledRate()
    mirror.record(50_000, T0 - 2_500)
    assert sustainable_rate(mirror, 10_000.0, 0.0, T0) == pytest.approx(50_000 / 7.5, rel=1e-12)
    assert sustainable_rate(mirror, 10_000.0, 3_000.0, T0) == pytest.approx(47_000 / 7.5, rel=1e-12)
