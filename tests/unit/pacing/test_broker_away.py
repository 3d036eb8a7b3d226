"""A broker from which nothing arrives, unthrottled, is away: librdkafka gets what the quota allows, as with plain."""

from collections import deque

import pytest

from kclient_quota.pacing.pacer import Pacer
from kclient_quota.quota.rate import SampledRate
from tests.unit.pacing.told_pacer import come_and_gone, pace_of

T0 = 1_000_000
NO_ROOM = -1e9
"""Bytes, below what any way adds."""
LIMIT, EACH = 30_000.0, 15_000


@pytest.mark.parametrize(("way_ms", "away_ms"), [(5, 2_000), (900, 2_000), (2_500, 5_000), (20_000, 10_000)])
def test_it_is_waited_for_for_two_seconds_or_ways(way_ms, away_ms):
    """A slow link, on which a batch takes seconds, is not away; what was for minutes is soon found to be once more."""
    pace, pacer = pace_of(byte_rate=50_000.0)
    come_and_gone(pace, way_ms, T0)
    granted_ms = T0 + way_ms
    pacer.outstanding_bytes = NO_ROOM
    pace.on_granted(1_000, granted_ms)
    assert pace.wait_ms(1_000, granted_ms + away_ms - 1) > 0
    assert pace.waits_for_deliveries
    assert pace.wait_ms(1_000, granted_ms + away_ms) == 0


def test_what_the_quota_does_not_allow_still_waits():
    pace, pacer = pace_of(byte_rate=50_000.0, at_ms=T0 + 60_000)
    come_and_gone(pace, 5, T0)
    pacer.outstanding_bytes = NO_ROOM
    pace.on_granted(1_000, T0 + 5)
    assert pace.wait_ms(1_000, T0 + 30_000) == 30_000


def test_one_that_throttles_is_not_away():
    pace, pacer = pace_of(byte_rate=50_000.0)
    come_and_gone(pace, 5, T0)
    pacer.outstanding_bytes = NO_ROOM
    pace.on_granted(1_000, T0 + 5)
    pace.on_throttle(10_000, T0 + 10)
    assert pace.wait_ms(1_000, T0 + 12_009) > 0
    assert pace.wait_ms(1_000, T0 + 12_010) == 0


def test_what_arrives_after_all_is_waited_for_again():
    pace, pacer = pace_of(byte_rate=50_000.0)
    come_and_gone(pace, 5, T0)
    pacer.outstanding_bytes = NO_ROOM
    for _ in range(3):
        pace.on_granted(1_000, T0 + 5)
    assert pace.wait_ms(1_000, T0 + 2_005) == 0
    pace.on_delivered(1_000, T0 + 2_010)
    assert pace.wait_ms(1_000, T0 + 2_011) > 0


def all_at_once(away_s: int, throttle_ms: int, told: bool = True) -> tuple[Pacer, int]:
    """What went at half of the quota while the broker was away has arrived, and has met a throttle."""
    pacer = Pacer(LIMIT)
    sent = [T0 + 1_000 * second for second in range(away_s)]
    for at_ms in sent:
        pacer.admit_at_ms(EACH, at_ms)
        pacer.on_sent(EACH, at_ms)
    now_ms = T0 + 1_000 * away_s
    pacer.on_throttle(throttle_ms, now_ms)
    for at_ms in sent if told else []:
        pacer.on_late_arrival(EACH, at_ms, now_ms)
    pacer.admit_at_ms(1, now_ms + 200)
    return pacer, now_ms


@pytest.mark.parametrize(("away_s", "late"), [(11, 0), (12, 1), (40, 29)])
def test_what_the_window_has_forgotten_is_counted_when_it_arrives(away_s, late):
    pacer, now_ms = all_at_once(away_s, 500)
    before, _ = all_at_once(away_s, 500, told=False)
    assert pacer._mirror.project(now_ms)[0] - before._mirror.project(now_ms)[0] == late * EACH


@pytest.mark.parametrize("throttle_ms", [500, 5_000, 9_000])
def test_a_throttle_for_that_is_no_strangers_doing(throttle_ms):
    """What is given up for strangers takes half a minute to come back."""
    assert all_at_once(40, throttle_ms)[0].usual_rate() >= 0.94 * LIMIT
    assert all_at_once(40, throttle_ms, told=False)[0].usual_rate() <= 0.88 * LIMIT


@pytest.mark.parametrize("arrived", [True, False])
def test_what_is_given_up_never_arrives(arrived):
    pace, pacer = pace_of(byte_rate=50_000.0)
    pace.on_granted(1_000, T0)
    pace.on_granted(500, T0 + 10)
    pace.on_delivered(1_500, T0 + 300_000, arrived=arrived)
    late = [call for call in pacer.heard if call[0] == "on_late_arrival"]
    told = [(pace.wire_of(1_000), T0), (pace.wire_of(500), T0 + 10)]
    assert late == [("on_late_arrival", wire, at_ms, T0 + 300_000) for wire, at_ms in told if arrived]


@pytest.mark.parametrize("away_ms", [4_000, 8_000, 11_500])
def test_what_arrives_late_stays_in_the_window_for_as_long_as_it_does_there(away_ms):
    """A silent connection is given up after seconds, and all that went meanwhile arrives at once over another one."""
    pacer, broker, waits, sent = Pacer(LIMIT), SampledRate(), [], 0
    back_ms, step_ms, each = T0 + 10_000 + away_ms, 50, 1_000
    most = 0.0
    for now_ms in range(T0, back_ms + 30_000, step_ms):
        if now_ms == back_ms:
            for at_ms in waits:
                broker.record(each, now_ms)
                pacer.on_late_arrival(each, at_ms, now_ms)
        offered = 0.7 * LIMIT * (now_ms - T0) / 1000
        while sent + each <= offered and pacer.admit_at_ms(each, now_ms) <= now_ms:
            pacer.on_sent(each, now_ms)
            sent += each
            if T0 + 10_000 <= now_ms < back_ms:
                waits.append(now_ms)
            else:
                broker.record(each, now_ms)
                pacer.on_late_arrival(each, now_ms, now_ms)
                most = max(most, broker.measure(now_ms))
    assert most <= 1.05 * LIMIT  # what that is throttled for looks like no strangers
    assert sent >= 0.98 * offered


@pytest.mark.parametrize("way_ms", [1_500, 2_500, 6_000])
def test_what_always_takes_long_costs_nothing_of_the_quota(way_ms):
    pacer, flying, used, each = Pacer(LIMIT), deque(), 0, 1_500
    for now_ms in range(T0, T0 + 60_000, 20):
        while flying and flying[0] + way_ms <= now_ms:
            pacer.on_late_arrival(each, flying.popleft(), now_ms)
            used += each if now_ms >= T0 + 20_000 else 0
        while pacer.admit_at_ms(each, now_ms) <= now_ms:
            pacer.on_sent(each, now_ms)
            flying.append(now_ms)
    assert used >= 0.97 * LIMIT * 40
