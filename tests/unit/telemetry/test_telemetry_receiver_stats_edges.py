"""What a broker counts of clients over half minutes, and what it asks of them, at the bounds of both."""

import math
from uuid import UUID

import pytest
from kclient_telemetry.errors import TelemetryError
from kclient_telemetry.java import java_hash, spread
from kclient_telemetry.metric import MetricName
from kclient_telemetry.receiver.stats import InstanceStats, Windowed
from kclient_telemetry.receiver.subscription import (
    INTERVAL_MS_DEFAULT,
    INTERVAL_MS_MAX,
    INTERVAL_MS_MIN,
    demand_on,
    java_hash_set_order,
    metrics_subscription,
    subscription_id,
    uuid_hash_code,
)

WINDOW = 30_000


# Statistics


def windowed(*events: tuple[int, float]) -> Windowed:
    found = Windowed()
    for now_ms, value in events:
        found.record(now_ms, value)
    return found


def test_nothing_has_no_mean_and_no_largest_value() -> None:
    nothing = Windowed()
    assert (nothing.ever, nothing.rate(0)) == (0, 0.0)
    assert math.isnan(nothing.average(0))
    assert math.isnan(nothing.maximum(0))


def test_a_sample_ends_after_half_a_minute_and_the_next_begins_with_the_next_event() -> None:
    events = windowed((0, 1.0), (WINDOW + 1, 2.0), (2 * WINDOW, 4.0))  # the last is in the second's sample
    assert events.rate(2 * WINDOW - 1) == 3 * 1_000 / (2 * WINDOW - 1)
    assert events.rate(2 * WINDOW) == 2 * 1_000 / (WINDOW - 1 + WINDOW)
    assert (events.average(2 * WINDOW), events.maximum(2 * WINDOW)) == (3.0, 4.0)
    assert events.rate(4 * WINDOW - 1) == 2 * 1_000 / (3 * WINDOW - 2)
    assert events.rate(4 * WINDOW) == 0.0


@pytest.mark.parametrize(
    ("now_ms", "rate"),
    [
        (0, 3 / 30),
        (1, 3_000 / 30_001),
        (29_999, 3_000 / 59_999),
        (30_000, 3 / 30),
        (30_001, 3_000 / 30_001),
        (59_999, 3_000 / 59_999),
        (60_000, 0.0),
    ],
)
def test_events_a_second_over_the_begun_windows(now_ms: int, rate: float) -> None:
    assert windowed((0, 1.0), (0, 1.0), (0, 1.0)).rate(now_ms) == rate


def test_means_are_no_whole_numbers_and_largest_values_may_be_negative() -> None:
    events = windowed((0, -2.0), (1, -3.0), (WINDOW, -4.5))
    assert (events.average(WINDOW), events.maximum(WINDOW)) == (-9.5 / 3, -2.0)
    assert (events.average(2 * WINDOW), events.maximum(2 * WINDOW)) == (-9.5 / 3, -2.0)
    assert (events.average(2 * WINDOW + 1), events.maximum(2 * WINDOW + 1)) == (-4.5, -4.5)
    assert (windowed((0, 1.0), (0, 2.0)).average(0), windowed((0, 0.0)).average(0)) == (1.5, 0.0)


def test_no_more_than_three_samples_are_kept() -> None:
    events = Windowed()
    for number in range(9):
        events.record(number * WINDOW)
        assert len(events._samples) == min(number + 1, 3)
        assert events.rate(number * WINDOW) == min(number + 1, 2) / 30 / max(min(number, 1), 1)
    assert events.ever == 9


def test_the_eight_metrics_of_an_instance() -> None:
    stats = InstanceStats()
    for value in (3.0, 4.0):
        stats.plugin_export.record(0, value)
    stats.plugin_error.record(0)
    for _ in range(3):
        stats.throttle.record(0)
    tags = (("client_instance_id", "x"),)
    assert stats.metrics("x", 0) == {
        MetricName(name, "client-metrics", tags): value
        for name, value in {
            "throttle-count": 3.0,
            "throttle-rate": 0.1,
            "plugin-export-count": 2.0,
            "plugin-export-rate": 2 / 30,
            "plugin-export-time-avg": 3.5,
            "plugin-export-time-max": 4.0,
            "plugin-error-count": 1.0,
            "plugin-error-rate": 1 / 30,
        }.items()
    }


# Subscriptions


def test_the_bounds_of_intervals_are_kafkas() -> None:
    assert (INTERVAL_MS_MIN, INTERVAL_MS_DEFAULT, INTERVAL_MS_MAX) == (100, 300_000, 3_600_000)
    for interval_ms in (100, 101, 3_599_999, 3_600_000):
        assert metrics_subscription("s", {"interval.ms": interval_ms}).interval_ms == interval_ms
        demand = demand_on(UUID(int=0), {}, [metrics_subscription("s", {"interval.ms": interval_ms})])
        assert demand.push_interval_ms == min(interval_ms, 300_000)
    for interval_ms in (-100, 0, 99, 3_600_001):
        with pytest.raises(TelemetryError, match=f"Invalid value {interval_ms} for interval.ms"):
            metrics_subscription("s", {"interval.ms": interval_ms})
    plain = metrics_subscription("s", {})
    assert (plain.metrics, plain.interval_ms, dict(plain.match)) == ((), 300_000, {})


def test_a_java_hash_set_doubles_when_it_is_three_quarters_full() -> None:
    letters = [chr(97 + number) for number in range(120)]
    for count in range(1, len(letters)):
        capacity = next(size for size in (16, 32, 64, 128, 256) if 4 * count <= 3 * size)
        chosen = letters[-count:]
        order = sorted(chosen, key=lambda letter, size=capacity: spread(java_hash(letter)) % size)
        assert java_hash_set_order(chosen) == order
    # From `a` (97) on: with twelve there are 16 buckets, of which `p` (112) has the first; with thirteen 32.
    assert java_hash_set_order("abcdefghijkp")[0] == "p"
    assert java_hash_set_order("abcdefghijklp")[0] == "a"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (0, 0),
        (1, 1),
        (1 << 32, 1),
        (1 << 64, 1),
        (1 << 96, 1),
        (1 << 127, 0x80000000),
        (1 << 63, 0x80000000),
        (1 << 95 | 1 << 63, 0),
        ((1 << 128) - 1, 0),
        (0x00000001_00000002_00000004_00000008, 15),
        (0xF0000000_00000000_00000000_0000000F, 0xF000000F),
    ],
)
def test_hash_codes_of_ids_fold_four_words_into_one(number: int, code: int) -> None:
    assert uuid_hash_code(UUID(int=number)) == code
    assert (
        subscription_id((), 300_000, UUID(int=number)) % 2**32
        == subscription_id((), 300_000, UUID(int=0)) % 2**32 ^ code
    )
    assert -(2**31) <= subscription_id((), 300_000, UUID(int=number)) < 2**31


def test_a_pattern_has_one_equals_sign() -> None:
    (pattern,) = metrics_subscription("s", {"match": ["client_id = a|b =="]}).match.items()
    assert (pattern[0], pattern[1].pattern) == ("client_id", "a|b")
    for match in ("client_id=a=b", "client_id=a=b=c", "client_id", "=", "client_id==a"):
        with pytest.raises(TelemetryError, match="Illegal client matching pattern"):
            metrics_subscription("s", {"match": match})


def test_what_a_list_may_be() -> None:
    assert metrics_subscription("s", {"metrics": [" a ", "b"]}).metrics == ("a", "b")
    assert metrics_subscription("s", {"metrics": " a , b "}).metrics == ("a", "b")
    assert metrics_subscription("s", {"metrics": "   "}).metrics == ()
    for metrics in (["a", " "], "a,", ",", 0, True):
        with pytest.raises(TelemetryError):
            metrics_subscription("s", {"metrics": metrics})
