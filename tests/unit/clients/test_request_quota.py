"""Which throttles are a request quota's, and when a consumer says that one keeps it from its group."""

import logging

import pytest

from kclient_quota.clients.consumer.joining import PATIENCE_MS, JoinWatch, is_request_throttle
from kclient_quota.clients.limits import UNKNOWN, Limit
from kclient_quota.clients.throttle_log import request_words, words
from kclient_quota.config import LimitSource
from kclient_quota.testing.clock import ManualClock
from tests.unit.clients.producer_world import core_of
from tests.unit.clients.test_consumer_core import gate_of, statistics
from tests.unit.pacing.told_pacer import lump_ms_of

BY_REQUESTS = Limit(None, 0.01, LimitSource.CLUSTER, "{client-id=app}")
BY_BYTES = Limit(50_000.0, None, LimitSource.CLUSTER, "{client-id=app}")
BY_BOTH = Limit(50_000.0, 0.01, LimitSource.CLUSTER, "{client-id=app}")


@pytest.mark.parametrize(
    ("throttle_ms", "limit", "fetches", "expected"),
    [
        (3, UNKNOWN, False, True),
        (1_000, UNKNOWN, False, True),
        (1_001, UNKNOWN, False, False),  # of a fetch that was still under way
        (3, UNKNOWN, True, False),
        (1_000, UNKNOWN, True, True),
        (3, BY_REQUESTS, True, True),
        (1_001, BY_REQUESTS, True, False),
        (3, BY_BYTES, True, False),
        (999, BY_BOTH, True, False),
        (1_000, BY_BOTH, True, True),
        (2_000, Limit(None, 0.01, LimitSource.CLUSTER, window_ms=2_000), True, True),
    ],
)
def test_throttles_that_can_only_be_a_request_quotas(throttle_ms, limit, fetches, expected):
    assert is_request_throttle(throttle_ms, limit, fetches=fetches) is expected


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("limit", "name"),
    [
        (BY_REQUESTS, "request_percentage=0.01 per broker, from cluster, {client-id=app}"),
        (UNKNOWN, "request_percentage, its value is not known"),
    ],
)
def test_a_consumer_that_is_held_up_says_so_once(limit, name):
    watch = JoinWatch("app")
    lines = []
    for second in range(20):
        watch.on_throttle(1_000, 1_000 * second)
        lines.append(watch.check(limit, 1_000 * second, fetches=False))
        assert len([line for line in lines if line]) == (1 if 1_000 * second >= PATIENCE_MS else 0)
    (line,) = [line for line in lines if line]
    assert line == (
        f"Client 'app' fetches nothing yet: a request quota ({name}) holds up joining its group, brokers have "
        "throttled 6 answers for 6000 ms in all; have request_percentage raised"
    )


def test_who_fetches_in_time_says_nothing_then_or_later():
    watch = JoinWatch("app")
    watch.on_throttle(1_000, 0)
    assert watch.check(BY_REQUESTS, PATIENCE_MS - 1, fetches=True) is None
    watch.on_throttle(1_000, 20_000)
    assert watch.check(BY_REQUESTS, 60_000, fetches=False) is None


def test_who_is_not_throttled_may_wait_for_ever():
    assert JoinWatch("app").check(UNKNOWN, 600_000, fetches=False) is None


def test_a_request_quota_in_words():
    assert request_words(Limit(None, 12.5, LimitSource.CONFIG)) == "request_percentage=12.5 per broker, from config"
    assert words(BY_REQUESTS) == request_words(BY_REQUESTS)
    both = "50,000 B/s and request_percentage=0.01 per broker, from cluster, {client-id=app}"
    assert words(BY_BOTH) == both
    assert words(BY_BYTES) == "50,000 B/s per broker, from cluster, {client-id=app}"


@pytest.mark.parametrize(
    ("limit", "throttle_ms", "requests_per_s", "expected"),
    [
        (BY_REQUESTS, 1_000, 0.0, True),
        (BY_REQUESTS, 1_001, 9e9, False),
        (BY_BYTES, 3, 9e9, False),
        (UNKNOWN, 3, 9e9, False),
        (Limit(None, 0.01, LimitSource.LEARNED), 3, 9e9, False),
        # of both: twenty milliseconds for each request are as much as may be used
        (Limit(50_000.0, 1.0, LimitSource.CLUSTER), 999, 0.5, True),
        (Limit(50_000.0, 1.0, LimitSource.CLUSTER), 999, 0.49, False),
        # a broker that has just begun, or is busy, takes longer: cut to a window, as those of bytes are not
        (Limit(50_000.0, 1.0, LimitSource.CLUSTER), 1_000, 0.0, True),
        (Limit(50_000.0, 1.0, LimitSource.CLUSTER), 1_001, 0.5, False),
        (Limit(50_000.0, 200.0, LimitSource.CLUSTER), 3, 99.0, False),
    ],
)
def test_throttles_of_a_producer_that_are_a_request_quotas(limit, throttle_ms, requests_per_s, expected):
    assert limit.is_of_requests(throttle_ms, requests_per_s) is expected


def test_a_request_throttle_teaches_no_byte_rate_and_is_no_stall(caplog):
    clock = ManualClock()
    gate = gate_of(clock, None, sized_for=None)
    gate.core.limit = UNKNOWN
    for _ in range(40):
        clock.sleep_ms(500)
        gate.on_throttle("b1:9092/1", 1, 1_000)
    gate.on_statistics(statistics(clock.now_ms(), received=500))
    for _ in range(40):
        clock.sleep_ms(500)
        gate.on_throttle("b1:9092/1", 1, 1_000)
        gate.on_statistics(statistics(clock.now_ms(), received=500))
    (state,) = gate.state().values()
    assert (state.rate, state.stall, state.throttled_until_ms) == (float("inf"), None, 1_000)
    assert not gate.core.paced
    assert [line for line in said(caplog) if "next batch" in line or "sizes" in line] == []
    clock.sleep_ms(500)
    gate.on_statistics(statistics(clock.now_ms(), received=1_000_000))
    gate.on_throttle("b1:9092/1", 1, 1_700)
    assert gate.state()[1].rate < float("inf"), "a byte quota's does"


def test_a_throttle_that_is_cut_to_a_window_takes_nothing_from_the_bytes():
    """Where requests took longer than is reckoned with they were strangers', and one message a second was left."""
    core = core_of(Limit(50_000, 1.0, LimitSource.CLUSTER))
    pace = core.brokers.get(1).queue.pace
    pace.on_granted(5_000, 0)
    before = pace.rate()
    core.on_throttle(1, 1_000, 100)
    assert pace.rate() == before
    assert pace.throttled_for_ms(100) == 1_000


@pytest.mark.parametrize("percentage", [None, 100.0])
def test_requests_are_saved_no_longer_when_another_quota_of_them_applies(percentage):
    """Messages waited for a second's worth of the bytes ever after."""
    core = core_of(Limit(50_000, 1.0, LimitSource.CLUSTER))
    pace = core.brokers.get(1).queue.pace
    for number in range(10):
        pace.on_granted(5_000, 100 * number)
    before = lump_ms_of(pace, 4)
    core.on_throttle(1, 900, 1_000)
    assert lump_ms_of(pace, 4) == pytest.approx(250.0)
    core.set_limit(Limit(50_000, percentage, LimitSource.CLUSTER), 5_000)
    assert lump_ms_of(pace, 4) == pytest.approx(before)
