"""What the client's end of KIP-714 waits, counts and gives up just below, at and above its bounds."""

from dataclasses import replace
from uuid import UUID

import pytest
from kclient_telemetry.client.actions import Done, SendGet, SendPush, WaitUntil
from kclient_telemetry.client.payload import PayloadCounters
from kclient_telemetry.client.reporter import REQUEST_TIMEOUT_MS, ReporterCounters
from kclient_telemetry.client.retry import FIRST_RETRY_MS, LONGEST_RETRY_MS, REFUSED_RETRY_MS, Retry
from kclient_telemetry.client.states import State
from kclient_telemetry.client.subscription import (
    DEFAULT_PUSH_INTERVAL_MS,
    ClientSubscription,
    Selection,
    selection_of,
    subscription_of,
)
from kclient_telemetry.client.temporality import Ledger
from kclient_telemetry.messages import GetTelemetrySubscriptionsResponse, PushTelemetryResponse
from kclient_telemetry.metric import HistogramValue, MetricKind, Point, PointKey, PushPoint

from tests.unit.telemetry.reporter_bench import ANSWER, ID, INTERVAL, UNIX, Bench

NONE, INVALID_REQUEST, UNSUPPORTED, INVALID_RECORD, THROTTLED, UNKNOWN, TOO_LARGE = 0, 42, 76, 87, 89, 117, 118
"""As from the wire: plain numbers."""


# Waiting after something went wrong


def test_the_constants_of_waiting() -> None:
    assert (FIRST_RETRY_MS, REFUSED_RETRY_MS, LONGEST_RETRY_MS) == (1_000, 300_000, 3_600_000)
    assert (REQUEST_TIMEOUT_MS, DEFAULT_PUSH_INTERVAL_MS) == (30_000, 300_000)


@pytest.mark.parametrize(
    ("interval_ms", "factor", "waits"),
    [
        (300_000, 1.0, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 300_000, 300_000]),
        (3_600_000, 1.0, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 300_000, 300_000]),
        (5_000, 0.5, [500, 1_000, 2_000, 2_500, 2_500]),
        (4_000, 1.5, [1_500, 3_000, 6_000, 6_000]),
        (999, 1.0, [999, 999]),
        (1_001, 1.0, [1_000, 1_001]),
        (1, 0.7, [1, 1]),
        (1, 0.3, [0, 0]),
    ],
)
def test_waits_after_failures(interval_ms: int, factor: float, waits: list[int]) -> None:
    retry = Retry()
    assert (retry.failures, retry.refusals) == (0, 0)
    assert [retry.after_failure_ms(interval_ms, factor) for _ in waits] == waits
    assert (retry.failures, retry.refusals) == (len(waits), 0)


def test_waits_after_refusals_and_what_clears_them() -> None:
    retry = Retry()
    waits = [300_000, 600_000, 1_200_000, 2_400_000, 3_600_000]
    assert [retry.after_refusal_ms() for _ in range(7)] == [*waits, 3_600_000, 3_600_000]
    assert (retry.failures, retry.refusals) == (0, 7)
    retry.after_failure_ms(300_000, 1.0)
    retry.clear()
    assert (retry.failures, retry.refusals) == (0, 0)
    assert (retry.after_refusal_ms(), retry.after_failure_ms(300_000, 1.0)) == (300_000, 1_000)


def test_after_very_many_failures_the_waits_are_as_long_as_before() -> None:
    retry = Retry(failures=10_000, refusals=10_000)
    assert (retry.after_failure_ms(300_000, 1.0), retry.after_refusal_ms()) == (300_000, 3_600_000)


# What a broker asked for


@pytest.mark.parametrize(
    ("requested", "prefixes"),
    [
        (None, ()),
        ((), ()),
        (("*",), ("",)),
        (["*"], ("",)),
        (("*", "a"), ("*", "a")),
        (("a",), ("a",)),
        (("!",), ("!",)),
        (("",), ("",)),
        (("*", "*"), ("*", "*")),
    ],
)
def test_which_metrics_are_selected(requested: list[str] | None, prefixes: tuple[str, ...]) -> None:
    selection = selection_of(requested)
    assert selection == Selection(prefixes)
    assert bool(selection) is bool(prefixes)
    assert selection.matches("a.b") is (prefixes in {("",), ("a",), ("*", "a")})


@pytest.mark.parametrize(
    ("interval_ms", "followed_ms"), [(-1, 300_000), (0, 300_000), (1, 1), (2, 2), (2**31 - 1, 2**31 - 1)]
)
@pytest.mark.parametrize(("max_bytes", "bound"), [(-2, 0), (-1, 0), (0, 0), (1, 1), (2, 2)])
def test_a_subscription_as_it_is_followed(interval_ms: int, followed_ms: int, max_bytes: int, bound: int) -> None:
    response = replace(ANSWER, push_interval_ms=interval_ms, telemetry_max_bytes=max_bytes)
    expected = ClientSubscription(ID, 5, followed_ms, (4, 3, 1, 2), bound, True, Selection(("",)))
    assert subscription_of(response, None) == subscription_of(response, UUID(int=3)) == expected


def test_an_id_of_zero_is_none_whoever_wrote_it() -> None:
    nobody = replace(ANSWER, client_instance_id=UUID(int=0))
    assert subscription_of(nobody, None) is None
    known = subscription_of(nobody, UUID(int=3))
    assert known is not None
    assert known.client_instance_id == UUID(int=3)
    first = subscription_of(replace(ANSWER, client_instance_id=UUID(int=1)), UUID(int=3))
    assert first is not None
    assert first.client_instance_id == UUID(int=1)


# What was taken


KEY = PointKey("events")


def pushed(kind: MetricKind, value: float, at_ms: int) -> PushPoint:
    return PushPoint(Point(KEY, kind, value), value, None, at_ms, delta=False)


def told(ledger: Ledger, point: Point, at_ms: int, *, delta: bool = True) -> tuple[object, int | None, bool]:
    (prepared,) = ledger.prepare([point], delta=delta, unix_ms=at_ms)
    assert (prepared.point, prepared.time_unix_ms) == (point, at_ms)
    return prepared.value, prepared.start_unix_ms, prepared.delta


def test_what_nobody_tracks_is_taken_without_a_trace() -> None:
    ledger = Ledger()
    ledger.acknowledge([pushed(MetricKind.SUM, 3, 10), pushed(MetricKind.GAUGE, 4, 10)])
    assert told(ledger, Point(KEY, MetricKind.SUM, 5), 20) == (5, 20, True)


def test_a_gauge_has_neither_a_start_nor_a_change() -> None:
    ledger = Ledger()
    ledger.track(KEY, 1)
    assert told(ledger, Point(KEY, MetricKind.GAUGE, 4), 10) == (4, None, False)
    ledger.acknowledge([pushed(MetricKind.GAUGE, 4, 10)])
    assert told(ledger, Point(KEY, MetricKind.GAUGE, 9), 20) == (9, None, False)
    assert told(ledger, Point(KEY, MetricKind.SUM, 9), 30) == (9, 1, True)  # nothing of it counts as taken


def test_a_counter_that_stands_still_is_a_change_of_nothing() -> None:
    ledger = Ledger()
    ledger.acknowledge(ledger.prepare([Point(KEY, MetricKind.SUM, 5)], delta=True, unix_ms=10))
    assert told(ledger, Point(KEY, MetricKind.SUM, 5), 20) == (0, 10, True)
    assert told(ledger, Point(KEY, MetricKind.SUM, 5), 30, delta=False) == (5, 10, False)
    assert told(ledger, Point(KEY, MetricKind.SUM, 4), 40) == (4, 30, True)  # it began anew after 30
    assert told(ledger, Point(KEY, MetricKind.SUM, 4), 50) == (4, 30, True)
    assert told(ledger, Point(KEY, MetricKind.SUM, 3), 60, delta=False) == (3, 50, False)


@pytest.mark.parametrize(("start_ms", "told_start_ms"), [(None, 10), (0, 0), (1, 1), (7, 7)])
def test_a_source_may_know_since_when_it_counts(start_ms: int | None, told_start_ms: int) -> None:
    ledger = Ledger()
    point = Point(KEY, MetricKind.SUM, 5, start_ms)
    assert told(ledger, point, 10) == (5, told_start_ms, True)
    ledger.acknowledge(ledger.prepare([point], delta=True, unix_ms=20))
    assert told(ledger, point, 30) == (0, 20, True)
    assert told(ledger, point, 40, delta=False) == (5, told_start_ms, False)


def test_a_histogram_whose_bounds_change_begins_anew() -> None:
    ledger = Ledger()
    first = HistogramValue((1.0,), (2, 3), 9.0)
    ledger.acknowledge(ledger.prepare([Point(KEY, MetricKind.HISTOGRAM, first)], delta=True, unix_ms=10))
    more = HistogramValue((1.0,), (2, 4), 11.5)
    change = HistogramValue((1.0,), (0, 1), 2.5)
    assert told(ledger, Point(KEY, MetricKind.HISTOGRAM, more), 20) == (change, 10, True)
    other = HistogramValue((2.0,), (5, 4), 20.0)
    assert told(ledger, Point(KEY, MetricKind.HISTOGRAM, other), 30) == (other, 20, True)


# The reporter


def test_a_new_reporter_has_done_nothing() -> None:
    bench = Bench()
    assert bench.reporter.counters == ReporterCounters(subscriptions=0, pushes=0, refused=0, failed=0)
    assert bench.reporter.payload_counters == PayloadCounters(0, 0, 0)
    assert (ReporterCounters(), PayloadCounters()) == (ReporterCounters(0, 0, 0, 0), PayloadCounters(0, 0, 0))
    assert (bench.reporter.state, bench.reporter.subscription) == (State.SUBSCRIPTION_NEEDED, None)
    assert bench.reporter.client_instance_id is None


def test_what_is_counted() -> None:
    bench = Bench()
    bench.subscribe(error_code=THROTTLED)
    assert bench.reporter.counters == ReporterCounters(refused=1)
    bench.wait()
    bench.ready()
    assert bench.reporter.counters == ReporterCounters(subscriptions=1, refused=1)
    bench.push()
    bench.wait()
    bench.push(UNKNOWN)
    assert bench.reporter.counters == ReporterCounters(subscriptions=1, pushes=1, refused=2)
    bench.reporter.request_failed(bench.tick().request_id, bench.now)
    assert bench.reporter.counters == ReporterCounters(subscriptions=1, pushes=1, refused=2, failed=1)
    bench.wait()
    bench.ready()
    bench.reporter.close(bench.now, bench.now + 5)
    bench.push(INVALID_RECORD)  # the last one: nothing is asked for again
    assert bench.reporter.counters == ReporterCounters(subscriptions=2, pushes=1, refused=2, failed=1)


def test_requests_are_numbered_and_have_half_a_minute() -> None:
    bench = Bench()
    for number in (1, 2, 3):
        action = bench.tick()
        assert isinstance(action, SendGet)
        assert (action.request_id, action.deadline_ms) == (number, bench.now + 30_000)
        assert bench.tick() == WaitUntil(bench.now + 30_000)
        bench.reporter.request_failed(action.request_id, bench.now)
        bench.wait()
    bench.ready()
    push = bench.push(None)
    assert (push.request_id, push.deadline_ms) == (5, bench.now + 30_000)


def test_only_the_answer_to_the_request_under_way_counts() -> None:
    bench = Bench()
    for _ in range(300):  # up to numbers of which Python has no single object
        bench.reporter.request_failed(bench.tick().request_id, bench.now)
        bench.wait()
    under_way = bench.tick()
    assert under_way.request_id == 301
    for other in (300, 302):
        bench.reporter.subscription_received(other, ANSWER, bench.now)
        bench.reporter.request_failed(other, bench.now)
        assert bench.reporter.state is State.SUBSCRIPTION_IN_PROGRESS
    bench.reporter.subscription_received(int("301"), ANSWER, bench.now)
    assert bench.reporter.state is State.PUSH_NEEDED


@pytest.mark.parametrize(("after_ms", "given_up"), [(499, False), (500, True), (501, True)])
def test_a_request_is_given_up_in_the_millisecond_of_its_deadline(after_ms: int, given_up: bool) -> None:
    bench = Bench(request_timeout_ms=500)
    bench.tick()
    bench.now += after_ms
    action = bench.tick()
    assert action == WaitUntil(bench.now + 1_000 if given_up else 1_500)
    assert bench.reporter.counters.failed == given_up


@pytest.mark.parametrize(("after_ms", "pushes"), [(99, True), (100, False), (101, False)])
def test_who_is_closing_pushes_until_the_deadline_and_not_in_it(after_ms: int, pushes: bool) -> None:
    bench = Bench().ready()
    bench.reporter.close(bench.now, bench.now + 100)
    bench.now += after_ms
    action = bench.tick()
    assert isinstance(action, SendPush if pushes else Done)
    if isinstance(action, SendPush):
        assert (action.request.terminating, action.deadline_ms) == (True, bench.now + 1)
        assert bench.tick() == WaitUntil(bench.now + 1)


@pytest.mark.parametrize(("timeout_ms", "left_ms", "deadline_ms"), [(50, 100, 50), (100, 100, 100), (101, 100, 100)])
def test_a_last_push_has_the_sooner_of_both_deadlines(timeout_ms: int, left_ms: int, deadline_ms: int) -> None:
    bench = Bench(request_timeout_ms=timeout_ms).ready()
    bench.reporter.close(bench.now, bench.now + left_ms)
    assert bench.push(None).deadline_ms == bench.now + deadline_ms


@pytest.mark.parametrize(
    ("code", "pushes"),
    [
        (NONE, True),
        (INVALID_REQUEST, True),
        (116, True),
        (UNKNOWN, False),
        (TOO_LARGE, True),
        (9_999, True),
        (-1, True),
    ],
)
def test_closing_during_a_push_only_an_unknown_subscription_makes_the_last_one_pointless(
    code: int, pushes: bool
) -> None:
    bench = Bench().ready()
    under_way = bench.push(None)
    bench.reporter.close(bench.now, bench.now + 100)
    bench.reporter.push_answered(under_way.request_id, PushTelemetryResponse(error_code=code), bench.now)
    assert isinstance(bench.tick(), SendPush if pushes else Done)
    assert bench.reporter.counters.pushes == (code == NONE)


@pytest.mark.parametrize(
    ("uniform", "factor"), [(0.0, 1.5), (0.25, 1.25), (0.49, 1.01), (0.5, 1.0), (0.51, 1.01), (0.75, 1.25), (1.0, 1.5)]
)
def test_after_a_push_at_fault_the_next_waits_a_whole_interval_at_least(uniform: float, factor: float) -> None:
    bench = Bench(uniform=uniform).ready()
    bench.push(UNKNOWN)
    bench.subscribe()
    assert bench.wait() == round(factor * INTERVAL)
    bench.push(THROTTLED)
    assert bench.wait() == INTERVAL
    bench.subscribe()
    assert bench.wait() == round((0.5 + uniform) * INTERVAL)


@pytest.mark.parametrize("code", [UNSUPPORTED, UNKNOWN])
def test_a_fetch_answered_with_what_asks_for_a_fetch_is_repeated_an_interval_later(code: int) -> None:
    bench = Bench().ready()
    bench.push(code)
    bench.subscribe(error_code=code)
    assert bench.wait() == INTERVAL
    bench.subscribe()
    assert bench.wait() == INTERVAL


@pytest.mark.parametrize("throttle_ms", [0, 1, INTERVAL - 1, INTERVAL, INTERVAL + 1])
def test_the_longer_of_interval_and_throttle_is_waited_for(throttle_ms: int) -> None:
    longer_ms = max(INTERVAL, throttle_ms)
    bench = Bench().ready()
    push = bench.push(None)
    bench.reporter.push_answered(push.request_id, PushTelemetryResponse(throttle_ms, NONE), bench.now)
    assert bench.wait() == longer_ms
    push = bench.push(None)
    bench.reporter.push_answered(push.request_id, PushTelemetryResponse(throttle_ms, THROTTLED), bench.now)
    assert bench.wait() == longer_ms
    bench.subscribe(requested_metrics=(), throttle_time_ms=throttle_ms)
    assert bench.wait() == longer_ms
    get = bench.tick()
    refusal = GetTelemetrySubscriptionsResponse(throttle_ms, TOO_LARGE)
    bench.reporter.subscription_received(get.request_id, refusal, bench.now)
    assert bench.wait() == longer_ms


def test_a_retry_of_no_time_is_made_at_once() -> None:
    bench = Bench(uniform=0.0)
    bench.subscribe(push_interval_ms=1)
    assert isinstance(bench.tick(), SendPush)  # half a millisecond is none
    bench.reporter.request_failed(2, bench.now)
    assert isinstance(bench.tick(), SendGet)


def test_a_change_of_temporality_begins_deltas_anew_and_nothing_else_does() -> None:
    resets: list[None] = []
    bench = Bench()
    bench.collector.reset = lambda: resets.append(None)
    for delta, count in ((False, 0), (False, 0), (True, 1), (True, 1), (False, 2)):
        bench.ready(delta_temporality=delta)
        assert len(resets) == count
        bench.push(UNKNOWN)


def test_the_time_of_points_is_the_walls() -> None:
    bench = Bench().ready()
    points: list[PushPoint] = []
    bench.collector.acknowledge = points.extend
    bench.push()
    assert [(point.value, point.start_unix_ms, point.time_unix_ms) for point in points] == [(1, UNIX, UNIX + bench.now)]
