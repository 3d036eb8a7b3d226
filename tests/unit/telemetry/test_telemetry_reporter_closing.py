"""How a reporter ends: the last push, whatever is under way."""

from dataclasses import replace

import pytest
from kclient_telemetry.client.actions import Done, WaitUntil
from kclient_telemetry.client.states import TERMINATING, State
from kclient_telemetry.errors import ErrorCode
from kclient_telemetry.messages import PushTelemetryResponse

from tests.unit.telemetry.reporter_bench import ANSWER, Bench, value_of


def test_the_brokers_throttle_time_is_honoured():
    bench = Bench().ready(throttle_time_ms=90_000)
    assert bench.now == 1_000 + 90_000
    action = bench.push(code=None)
    bench.reporter.push_answered(action.request_id, PushTelemetryResponse(70_000), bench.now)
    assert bench.wait() == 70_000


@pytest.mark.parametrize("outcome", ["answered", "refused", "failed", "refused for good", "lost"])
def test_closing_makes_one_last_push(outcome):
    bench = Bench().ready()
    bench.reporter.close(bench.now, bench.now + 100)
    bench.reporter.close(bench.now, bench.now + 999_999)
    assert bench.reporter.state is State.TERMINATING_PUSH_NEEDED
    action = bench.push(code=None)
    assert action.request.terminating
    assert action.deadline_ms == bench.now + 100
    if outcome == "lost":
        assert bench.wait() == 100
    elif outcome == "failed":
        bench.reporter.request_failed(action.request_id, bench.now)
        again = bench.push(code=None)  # to another broker: this one may have gone long ago
        assert (again.request, again.deadline_ms) == (action.request, action.deadline_ms)
        bench.reporter.request_failed(again.request_id, bench.now)
    elif outcome == "refused for good":
        bench.reporter.request_failed(action.request_id, bench.now, retriable=False)
    else:
        code = ErrorCode.NONE if outcome == "answered" else ErrorCode.INVALID_REQUEST
        bench.reporter.push_answered(action.request_id, PushTelemetryResponse(error_code=code), bench.now)
    assert bench.tick() == Done()
    assert bench.tick() == Done()


@pytest.mark.parametrize("situation", ["fresh", "first get under way", "nothing asked for", "refused", "no time"])
def test_closing_without_a_last_push(situation):
    bench = Bench()
    deadline = 100
    if situation == "first get under way":
        bench.tick()
    elif situation == "nothing asked for":
        bench.subscribe(requested_metrics=())
    elif situation == "refused":
        bench.ready().push(ErrorCode.TELEMETRY_TOO_LARGE)
    elif situation == "no time":
        bench.ready()
        deadline = 0
    bench.reporter.close(bench.now, bench.now + deadline)
    assert bench.tick() == Done()


@pytest.mark.parametrize(
    ("code", "last_value"), [(ErrorCode.NONE, 3), (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 8), (None, 8)]
)
def test_closing_during_a_push_waits_for_its_outcome_and_counts_nothing_twice(code, last_value):
    bench = Bench().ready()
    bench.total = 5
    under_way = bench.push(code=None)
    bench.total = 8
    bench.reporter.close(bench.now, bench.now + 100)
    assert bench.tick() == WaitUntil(bench.now + 100)
    if code is None:
        bench.reporter.request_failed(under_way.request_id, bench.now)
    else:
        bench.reporter.push_answered(under_way.request_id, PushTelemetryResponse(error_code=code), bench.now)
    last = bench.push()
    assert last.request.terminating
    assert value_of(last) == last_value
    assert bench.tick() == Done()


def test_closing_during_a_push_whose_subscription_turns_out_refused():
    bench = Bench().ready()
    under_way = bench.push(code=None)
    bench.reporter.close(bench.now, bench.now + 100)
    refusal = PushTelemetryResponse(error_code=ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    bench.reporter.push_answered(under_way.request_id, refusal, bench.now)
    assert bench.tick() == Done()


@pytest.mark.parametrize(
    ("refusal", "answer", "last_id"),
    [
        (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, {"subscription_id": 6}, 6),
        (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, {"error_code": 89}, None),
        (ErrorCode.TELEMETRY_TOO_LARGE, {"error_code": 89}, 5),
        (ErrorCode.TELEMETRY_TOO_LARGE, {"requested_metrics": ()}, None),
    ],
)
def test_closing_while_a_new_subscription_is_under_way(refusal, answer, last_id):
    bench = Bench().ready()
    bench.push(refusal)
    if refusal == ErrorCode.TELEMETRY_TOO_LARGE:
        bench.wait()
    get = bench.tick()
    bench.reporter.close(bench.now, bench.now + 100)
    bench.reporter.subscription_received(get.request_id, replace(ANSWER, **answer), bench.now)
    if last_id is None:
        assert bench.tick() == Done()
    else:
        action = bench.push()
        assert (action.request.terminating, action.request.subscription_id) == (True, last_id)


def test_nothing_is_left_to_do_in_a_terminating_state():
    assert {State.TERMINATING_PUSH_NEEDED, State.TERMINATING_PUSH_IN_PROGRESS, State.TERMINATED} == TERMINATING
