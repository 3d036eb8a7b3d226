"""A broker from which nothing arrives, unthrottled, is away: librdkafka gets what the quota allows, as with plain."""

import pytest

from kclient_quota.pacing.pacer import Pacer
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
