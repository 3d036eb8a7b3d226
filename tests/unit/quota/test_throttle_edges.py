"""Throttles and token buckets at their bounds: equal, one below, one above, and too long to be told."""

import math

import pytest

from kclient_quota.quota.throttle import (
    MAX_THROTTLE_MS,
    UNLIMITED,
    UNLIMITED_WINDOW_BYTES,
    ThrottleRule,
    bounded_throttle_time_ms,
    combined_throttle_time_ms,
    java_round,
    kip13_delay_ms,
    max_value_in_quota_window,
    raw_throttle_time_ms,
    throttle_time_ms,
)
from kclient_quota.quota.token_bucket import ControllerMutationQuota, TokenBucket, token_throttle_time_ms


def test_the_bounds_are_javas() -> None:
    assert MAX_THROTTLE_MS == 2**31 - 1
    assert UNLIMITED == 2.0**63
    assert UNLIMITED_WINDOW_BYTES == (2 - 2.0**-52) * 2.0**1023


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(0.0, 0), (0.25, 0), (0.75, 1), (1.0, 1), (2.5, 3), (-0.25, 0), (-0.75, -1), (-1.0, -1), (-2.5, -2), (1e9, 10**9)],
)
def test_the_nearest_integer(value: float, rounded: int) -> None:
    assert java_round(value) == rounded


@pytest.mark.parametrize(
    ("value", "bound", "window_ms", "raw_ms"),
    [
        (20.0, 10.0, 1_000, 1_000),
        (10.0, 10.0, 1_000, 0),
        (5.0, 10.0, 1_000, -500),
        (0.0, 10.0, 1_000, -1_000),
        (10.01, 10.0, 1_000, 1),
        (10.004, 10.0, 1_000, 0),
        (3.0, 1.0, 1, 2),
        (1.5, 0.5, 10, 20),
        (2_147_483_647.0, 1.0, 1, 2_147_483_646),
        (2_147_483_648.0, 1.0, 1, 2_147_483_647),
        (2_147_483_649.0, 1.0, 1, 2_147_483_647),
        (1e300, 1.0, 1, 2_147_483_647),
        (-math.inf, 1.0, 1, 2_147_483_647),  # no number can be told
        (math.nan, 1.0, 1, 2_147_483_647),
    ],
)
def test_how_long_a_rate_takes_to_sink_to_its_bound(value: float, bound: float, window_ms: int, raw_ms: int) -> None:
    assert raw_throttle_time_ms(value, bound, window_ms) == raw_ms
    assert throttle_time_ms(value, bound, window_ms) == (0 if value <= bound else raw_ms)
    for most_ms in (raw_ms - 1, raw_ms, raw_ms + 1):
        assert bounded_throttle_time_ms(value, bound, window_ms, most_ms) == min(raw_ms, most_ms)


@pytest.mark.parametrize(
    ("produced", "window_ms", "delay_ms"), [(1_000, 1_000, 0), (1_001, 1_000, 1), (3_000, 2_000, 1_000), (501, 500, 1)]
)
def test_kip_13_just_above_its_bound(produced: int, window_ms: int, delay_ms: int) -> None:
    assert kip13_delay_ms(produced, 1_000, window_ms) == delay_ms


def test_what_may_be_taken_at_once() -> None:
    assert max_value_in_quota_window(100.0, 11, 1_000) == 1_000.0
    assert max_value_in_quota_window(100.0, 2, 1_000) == 100.0
    assert max_value_in_quota_window(100.0, 1, 1_000) == 0.0
    assert max_value_in_quota_window(100.0, 3, 250) == 50.0
    assert max_value_in_quota_window(0.0, 11, 1_000) == 0.0
    below = math.nextafter(UNLIMITED, 0.0)
    assert max_value_in_quota_window(below, 2, 1_000) == below
    for limit in (UNLIMITED, 2 * UNLIMITED, math.inf, None):
        assert max_value_in_quota_window(limit, 2, 1_000) == UNLIMITED_WINDOW_BYTES


@pytest.mark.parametrize(
    ("byte_ms", "request_ms", "kafkas_ms", "drafts_ms"),
    [
        (0, 0, 0, 0),
        (0, 5, 5, 5),
        (5, 0, 5, 5),
        (5, 1, 5, 6),
        (5, -7, 5, 5),
        (-7, 5, 5, 5),
        (-7, -7, -7, 0),
        (2**31 - 2, 1, 2**31 - 2, 2**31 - 1),
        (2**31 - 2, 2, 2**31 - 2, 2**31 - 1),
    ],
)
def test_two_delays_of_one_request(byte_ms: int, request_ms: int, kafkas_ms: int, drafts_ms: int) -> None:
    asked = []

    def request_ms_after(delay_ms: int) -> int:
        asked.append(delay_ms)
        return request_ms

    assert combined_throttle_time_ms(ThrottleRule.KAFKA, byte_ms, request_ms_after) == kafkas_ms
    assert combined_throttle_time_ms(ThrottleRule.KIP_124_DRAFT, byte_ms, request_ms_after) == drafts_ms
    assert asked == [0, max(byte_ms, 0)]


@pytest.mark.parametrize(
    ("tokens", "quota", "wait_ms"),
    [
        (1.0, 1.0, 0),
        (0.5, 1.0, 0),
        (0.0, 1.0, 0),
        (-0.0004, 1.0, 0),
        (-0.0005, 1.0, 1),
        (-0.5, 1.0, 500),
        (-1.0, 1.0, 1_000),
        (-1.0, 2.0, 500),
        (-3.0, 0.5, 6_000),
        (-2_147_483.646, 1.0, 2_147_483_646),
        (-2_147_483.647, 1.0, 2_147_483_647),
        (-2_147_483.648, 1.0, 2_147_483_647),
        (-1e300, 1.0, 2_147_483_647),
        (-math.inf, 1.0, 2_147_483_647),
    ],
)
def test_how_long_a_bucket_takes_to_fill_to_zero(tokens: float, quota: float, wait_ms: int) -> None:
    assert token_throttle_time_ms(tokens, quota) == wait_ms


def test_a_bucket_is_empty_at_time_zero_and_full_a_window_later() -> None:
    bucket = TokenBucket()
    found = [bucket.measure(2.0, now_ms) for now_ms in (0, 1, 1_000, 10_999, 11_000, 11_001)]
    assert found == pytest.approx([0.0, 0.002, 2.0, 21.998, 22.0, 22.0], abs=1e-12)
    small = TokenBucket(2, 500)
    assert [small.measure(8.0, now_ms) for now_ms in (250, 1_000, 1_500)] == [2.0, 8.0, 8.0]


def test_tokens_are_taken_after_those_that_have_come_and_given_back_up_to_a_full_bucket() -> None:
    bucket = TokenBucket(2, 500)
    bucket.record(3.0, 8.0, 250)
    assert bucket.measure(8.0, 250) == -1.0
    bucket.record(10.0, 8.0, 1_250)  # 8 have come in a second
    assert bucket.measure(8.0, 1_250) == -3.0
    bucket.record(-10.0, 8.0, 1_250)
    assert bucket.measure(8.0, 1_250) == 7.0
    bucket.record(-10.0, 8.0, 1_250)
    assert bucket.measure(8.0, 1_250) == 8.0
    assert bucket.measure(2.0, 1_250) == 2.0  # a smaller quota is a smaller bucket
    assert bucket.measure(8.0, 1_375) == 3.0


class Ledger:
    """A sensor whose bucket is filled by hand; one permit a second."""

    bound = 1.0

    def __init__(self, tokens: float) -> None:
        self.left = tokens

    def tokens(self, now_ms: int) -> float:
        return self.left

    def take(self, permits: float, now_ms: int) -> None:
        self.left -= permits


@pytest.mark.parametrize(
    ("tokens", "strict", "taken", "left", "throttle_ms"),
    [
        (0.0, True, True, -2.0, 0),
        (5.0, True, True, 3.0, 0),
        (-0.0004, True, True, -2.0004, 0),  # less than half a millisecond is none
        (-0.001, True, False, -0.001, 1),
        (-1.0, True, False, -1.0, 1_000),
        (2.0, False, True, 0.0, 0),
        (1.999, False, True, -0.001, 1),
        (-1.0, False, True, -3.0, 3_000),
    ],
)
def test_permits(tokens: float, strict: bool, taken: bool, left: float, throttle_ms: int) -> None:
    ledger = Ledger(tokens)
    quota = ControllerMutationQuota(ledger, strict=strict)
    assert (quota.strict, quota.is_exceeded, quota.throttle_time_ms(0)) == (strict, False, 0)
    assert quota.record(2.0, 5_000) is taken
    assert ledger.left == pytest.approx(left)
    assert quota.is_exceeded is (not taken)
    waits = [quota.throttle_time_ms(5_000 + after_ms) for after_ms in (0, 1, 999, 1_000, 2_999, 3_000, 3_001)]
    assert waits == [max(throttle_ms - after_ms, 0) for after_ms in (0, 1, 999, 1_000, 2_999, 3_000, 3_001)]


def test_the_last_throttle_counts_and_what_is_taken_later_does_not_shorten_it() -> None:
    ledger = Ledger(-2.0)
    quota = ControllerMutationQuota(ledger, strict=True)
    assert not quota.record(1.0, 100)
    ledger.left = -1.0
    assert not quota.record(1.0, 700)
    assert quota.throttle_time_ms(700) == 1_000
    ledger.left = 5.0
    assert quota.record(1.0, 900)
    assert (quota.is_exceeded, quota.throttle_time_ms(900)) == (True, 800)


def test_without_a_quota_everything_is_taken() -> None:
    for strict in (True, False):
        quota = ControllerMutationQuota(None, strict=strict)
        assert quota.record(1e9, 0)
        assert (quota.is_exceeded, quota.throttle_time_ms(0)) == (False, 0)
