"""Kafka's own unit tests of rates and throttle times, retold with their numbers."""

import math

import pytest

from kclient_quota.quota.callback import ClientQuotaType
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from kclient_quota.quota.manager import ClientQuotaManager
from kclient_quota.quota.rate import CumulativeSum, SampledAvg, SampledMax, SampledRate
from kclient_quota.quota.throttle import (
    UNLIMITED_WINDOW_BYTES,
    bounded_throttle_time_ms,
    max_value_in_quota_window,
    raw_throttle_time_ms,
    throttle_time_ms,
)


@pytest.mark.parametrize(
    ("observed", "quota", "samples", "longest", "expected"),
    [(100, 50, 3, None, 2000), (55, 50, 2, 500, 100), (100, 50, 10, 500, 500), (50, 50, 2, None, 0)],
)
def test_case_32_throttle_time(observed, quota, samples, longest, expected):
    window_ms = (samples - 1) * 1000
    if longest is None:
        assert raw_throttle_time_ms(observed, quota, window_ms) == expected
    else:
        assert bounded_throttle_time_ms(observed, quota, window_ms, longest) == expected


def test_case_32_under_quota_is_negative_until_asked_whether_to_throttle():
    assert raw_throttle_time_ms(16.5, 20.4, 1000) < 0
    assert throttle_time_ms(16.5, 20.4, 1000) == 0


@pytest.mark.parametrize(("samples", "window_s"), [(1, 1), (1, 11), (11, 1), (11, 11)])
def test_case_33_rate_before_a_window_is_full(samples, window_s):
    rate = SampledRate(samples, window_s * 1000)
    rate.record(50, 0)
    elapsed_s = (window_s * 1000 - 1) / 1000
    assert rate.measure(window_s * 1000 - 1) == pytest.approx(50 / (elapsed_s + (samples - 1) * window_s), rel=1e-12)


@pytest.mark.parametrize(("at_ms", "kept"), [(3500, 0), (2500, 1)])
def test_case_34_sample_is_kept_while_it_overlaps(at_ms, kept):
    counter = SampledRate(2, 1000)
    counter.record(0.5, 0)
    counter.record(0.5, 999)
    assert counter.total(at_ms) == kept


def test_case_34_three_samples_may_overlap_a_window_of_two():
    counter = SampledRate(2, 1000)
    for at_ms in (999, 1999, 2998):
        counter.record(1, at_ms)
    assert counter.total(2998) == 3


def test_case_35_rate_windowing():
    rate = SampledRate(3, 30_000)
    rate.record(100, 0)
    rate.record(100, 30_000)
    assert rate.measure(75_000) == pytest.approx(200 / 75, rel=1e-12)
    assert rate.window_size_ms(75_000) == 75_000
    assert rate.measure(75_000 + 90_000) == 0


def test_case_36_time_windowing():
    counter = SampledRate(2, 1)
    counter.record(1, 0)
    counter.record(1, 1)
    assert counter.total(1) == 2
    counter.record(1, 2)
    assert counter.total(2) == 2


@pytest.mark.parametrize("stat", [SampledMax, SampledAvg])
def test_case_37_old_data_has_no_effect(stat):
    stat = stat(2, 100)
    stat.record(50, 0)
    assert stat.measure(0) == 50
    assert math.isnan(stat.measure(200))


def test_case_38_rate_stays_for_the_window():
    rate = SampledRate()
    rate.record(30, 0)
    assert rate.measure(0) == 3
    assert throttle_time_ms(rate.measure(5_000), 2, rate.window_size_ms(5_000)) == 5_000


def test_case_39_max_value_in_quota_window():
    assert max_value_in_quota_window(10, 4, 1000) == 30
    assert max_value_in_quota_window(None, 4, 1000) == UNLIMITED_WINDOW_BYTES
    manager = ClientQuotaManager(ClientQuotaType.FETCH, samples=4)
    assert manager.max_value_in_quota_window("u", "c") == UNLIMITED_WINDOW_BYTES
    manager.update_quota(ClientQuotaEntity.of(user=DEFAULT), 10)
    assert manager.max_value_in_quota_window("u", "c") == 30
    manager.update_quota(ClientQuotaEntity.of(user="u"), 20)
    manager.update_quota(ClientQuotaEntity.of(user=DEFAULT), None)
    assert manager.max_value_in_quota_window("u", "c") == 60
    assert manager.max_value_in_quota_window("v", "c") == UNLIMITED_WINDOW_BYTES


def test_case_80_avg_and_max_of_throttle_times():
    avg, longest = SampledAvg(), SampledMax()
    for value in (400, 100, 200, 300):
        avg.record(value, 0)
        longest.record(value, 0)
    assert (avg.measure(0), longest.measure(0)) == (250, 400)


def test_cumulative_sum_forgets_nothing():
    stat = CumulativeSum()
    for now_ms in (0, 10_000_000):
        stat.record(2, now_ms)
    assert stat.measure(10**12) == 4
