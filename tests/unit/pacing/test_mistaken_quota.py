"""A quota of 1 B/s, set by mistake, has the broker throttle for hours; once it is higher nobody waits for so long."""

import pytest

from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.send_pace import SendPace

T0, HOURS_MS = 1_000_000, 58_658_286


def throttled(limit: float | None, throttle_ms: int = HOURS_MS, samples: int = 11) -> SendPace:
    pace = SendPace(Pacer(limit, samples=samples), limit=limit)
    pace.on_granted(1_000, T0)
    pace.on_delivered(1_000, T0 + 5)
    pace.on_throttle(throttle_ms, T0 + 5)
    return pace


@pytest.mark.parametrize("limit", [1.0, 30_000.0])
@pytest.mark.parametrize("raised", [60_000.0, None])
def test_a_window_is_waited_for_once_the_limit_is_higher_or_gone(limit, raised):
    pace = throttled(limit)
    assert pace.throttled_for_ms(T0 + 5) == HOURS_MS
    pace.set_limit(raised, T0 + 60_000)
    assert pace.throttled_for_ms(T0 + 60_000) == 10_000
    assert pace.throttled_for_ms(T0 + 70_000) == 0
    assert pace.wait_ms(100, T0 + 70_000) < 1_000, "as usual"


@pytest.mark.parametrize(("limit", "told"), [(30_000.0, 20_000.0), (30_000.0, 30_000.0), (None, 60_000.0)])
def test_one_that_is_lower_or_the_same_or_was_not_known_says_nothing_of_the_throttle(limit, told):
    pace = throttled(limit)
    pace.set_limit(told, T0 + 60_000)
    assert pace.throttled_for_ms(T0 + 60_005) == HOURS_MS - 60_000


def test_a_throttle_of_seconds_is_waited_out():
    pace = throttled(30_000.0, throttle_ms=8_000)
    pace.set_limit(60_000.0, T0 + 1_005)
    assert pace.throttled_for_ms(T0 + 1_005) == 7_000


@pytest.mark.parametrize("limit", [1.0, 30_000.0])
def test_the_window_is_the_brokers(limit):
    pace = throttled(limit, samples=3)
    pace.set_limit(60_000.0, T0 + 60_000)
    assert pace.throttled_for_ms(T0 + 60_000) == 2_000
