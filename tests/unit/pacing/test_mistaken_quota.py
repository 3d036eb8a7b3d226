"""A quota that is far too low, set by mistake, has the broker throttle for hours: nobody waits for so long."""

from math import inf

import pytest

from kclient_quota.clients.limits import Limit, longest_throttle_ms
from kclient_quota.config import LimitSource
from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.send_pace import SendPace

T0, HOURS_MS = 1_000_000, 58_658_286
TOLD_MS = T0 + 5


def throttled(limit: float | None, throttle_ms: int = HOURS_MS, longest_ms: float = 60_000) -> SendPace:
    """By the answer to its only batch."""
    pace = SendPace(Pacer(limit), limit=limit, longest_throttle_ms=longest_ms)
    pace.on_granted(1_000, T0)
    pace.on_throttle(throttle_ms, TOLD_MS)
    pace.on_delivered(1_000, TOLD_MS)
    return pace


@pytest.mark.parametrize(
    ("conf", "samples", "most_ms"),
    [({}, 11, 54_000), ({"socket.timeout.ms": "5000"}, 11, 10_000), ({"socket.timeout.ms": 1}, 3, 2_000)],
)
def test_it_counts_until_librdkafka_takes_another_connection_and_the_quota_has_forgotten(conf, samples, most_ms):
    assert longest_throttle_ms(conf, Limit(1.0, None, LimitSource.CLUSTER, samples=samples)) == most_ms


@pytest.mark.parametrize(("message_ms", "most_ms"), [(5_000, 10_000), (20_000, 18_000), (300_000, 54_000)])
def test_what_a_request_has_left_to_be_answered_may_be_less(message_ms, most_ms):
    limit = Limit(1.0, None, LimitSource.CLUSTER)
    assert longest_throttle_ms({}, limit, message_ms) == most_ms
    assert longest_throttle_ms({"transactional.id": "t"}, limit, message_ms) == 54_000


@pytest.mark.parametrize("limit", [1.0, 30_000.0, None])
def test_no_longer_is_waited_for(limit):
    pace = throttled(limit)
    assert pace.throttled_for_ms(TOLD_MS) == 60_000
    assert pace.throttled_for_ms(TOLD_MS + 59_999) == 1
    assert pace.throttled_for_ms(TOLD_MS + 60_000) == 0


def test_who_would_rather_give_up_hears_what_the_broker_said():
    pace = throttled(30_000.0)
    assert pace.told_for_ms(TOLD_MS + 59_999) == HOURS_MS - 59_999
    assert pace.told_for_ms(TOLD_MS + 60_000) == 0
    assert throttled(30_000.0, 8_000).told_for_ms(TOLD_MS + 1_000) == 7_000


@pytest.mark.parametrize("limit", [1.0, 30_000.0, None])
def test_one_batch_goes_at_once_so_that_it_does(limit):
    pace = throttled(limit)
    assert (pace.blocked_for_ms(TOLD_MS), pace.wait_ms(100, TOLD_MS)) == (0, 0)
    pace.on_granted(100, TOLD_MS)
    assert pace.blocked_for_ms(TOLD_MS) == 60_000
    assert pace.wait_ms(100, TOLD_MS) >= 60_000
    pace.on_delivered(100, TOLD_MS + 1_000)  # over a connection that is new for another reason
    assert pace.wait_ms(100, TOLD_MS + 1_000) >= 59_000, "one only"


def test_what_is_on_its_way_is_that_batch():
    pace = SendPace(Pacer(30_000.0), limit=30_000.0, longest_throttle_ms=60_000)
    pace.on_granted(1_000, T0)
    pace.on_granted(1_000, T0)
    pace.on_throttle(HOURS_MS, TOLD_MS)
    pace.on_delivered(1_000, TOLD_MS)
    assert pace.wait_ms(100, TOLD_MS) == 60_000


def test_another_throttle_of_hours_gets_another_batch():
    pace = throttled(30_000.0)
    pace.on_granted(100, TOLD_MS)
    later_ms = TOLD_MS + 61_000
    pace.on_throttle(HOURS_MS, later_ms)
    pace.on_delivered(100, later_ms)
    assert pace.throttled_for_ms(later_ms) == 60_000
    assert pace.wait_ms(100, later_ms) == 0


@pytest.mark.parametrize(("throttle_ms", "longest_ms"), [(8_000, 10_000), (60_000, 60_000), (HOURS_MS, inf)])
def test_a_shorter_one_is_waited_out(throttle_ms, longest_ms):
    pace = throttled(30_000.0, throttle_ms, longest_ms)
    assert pace.wait_ms(100, TOLD_MS) == pace.throttled_for_ms(TOLD_MS) == throttle_ms
