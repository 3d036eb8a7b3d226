"""A broker from which nothing arrives, unthrottled, is away: librdkafka gets what the quota allows, as with plain."""

import pytest

from tests.unit.pacing.told_pacer import come_and_gone, pace_of

T0 = 1_000_000
NO_ROOM = -1e9
"""Bytes, below what any way adds."""


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
