"""Formulas of KIP-13 and KIP-124, and how two delays of one request go together."""

import math

import pytest

from kclient_quota.quota.throttle import (
    MAX_THROTTLE_MS,
    ThrottleRule,
    combined_throttle_time_ms,
    java_round,
    kip13_delay_ms,
    raw_throttle_time_ms,
    throttle_time_ms,
)

MB = 1_000_000


def test_worked_example_of_kip_13():
    """5 MB/s over 10 s; 45 MB and a batch of 15 MB: two seconds."""
    assert kip13_delay_ms(5 * 9 * MB + 15 * MB, 5 * MB, 10_000) == 2_000


def test_kip_13_at_the_bound():
    assert kip13_delay_ms(50 * MB, 5 * MB, 10_000) == 0
    assert kip13_delay_ms(0, 5 * MB, 10_000) == 0


@pytest.mark.parametrize(
    ("value", "rounded"), [(0.5, 1), (-0.5, 0), (1.5, 2), (-1.5, -1), (2.4999, 2), (0.49999999999999994, 0), (7.0, 7)]
)
def test_rounds_as_java_does(value, rounded):
    assert java_round(value) == rounded


@pytest.mark.parametrize("rate", [1e300, 3e6, math.inf])
def test_saturates(rate):
    assert throttle_time_ms(rate, 1.0, 10_000) == MAX_THROTTLE_MS
    assert raw_throttle_time_ms(rate, 1.0, 10_000) == MAX_THROTTLE_MS


def test_equality_is_within_the_quota():
    assert throttle_time_ms(500.0, 500.0, 10_000) == 0
    assert throttle_time_ms(500.05, 500.0, 10_000) == 1


def test_kafka_takes_the_longer_delay():
    asked = []

    def request_ms_after(delay_ms):
        asked.append(delay_ms)
        return 300

    assert combined_throttle_time_ms(ThrottleRule.KAFKA, 200, request_ms_after) == 300
    assert combined_throttle_time_ms(ThrottleRule.KAFKA, 400, request_ms_after) == 400
    assert asked == [0, 0]


@pytest.mark.parametrize(("byte_ms", "request_ms", "together"), [(0, 700, 700), (400, 700, 700), (900, 700, 900)])
def test_draft_of_kip_124_applies_the_byte_delay_first(byte_ms, request_ms, together):
    """A request delay that shrinks with time: what remains of it once the byte delay is over."""
    result = combined_throttle_time_ms(ThrottleRule.KIP_124_DRAFT, byte_ms, lambda after: request_ms - after)
    assert result == together


def test_draft_of_kip_124_saturates():
    assert combined_throttle_time_ms(ThrottleRule.KIP_124_DRAFT, MAX_THROTTLE_MS, lambda _: 5) == MAX_THROTTLE_MS
