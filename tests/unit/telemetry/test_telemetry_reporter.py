"""The reporter, event by event; numbered cases are Kafka's own tests."""

import logging
from dataclasses import replace

import pytest
from kclient_telemetry.client.actions import Done, SendGet, WaitUntil
from kclient_telemetry.client.states import VALID_NEXT_STATES, State, diagram
from kclient_telemetry.client.subscription import subscription_of
from kclient_telemetry.errors import ErrorCode
from kclient_telemetry.messages import ZERO_UUID, PushTelemetryResponse

from tests.unit.telemetry.reporter_bench import ANSWER, ID, INTERVAL, Bench


def test_states_are_kafkas():
    assert set(VALID_NEXT_STATES) == set(State)
    assert all(state not in following for state, following in VALID_NEXT_STATES.items())
    assert VALID_NEXT_STATES[State.TERMINATED] == frozenset()
    assert all(State.TERMINATED in VALID_NEXT_STATES[state] for state in State if state is not State.TERMINATED)
    assert VALID_NEXT_STATES[State.SUBSCRIPTION_NEEDED] == {State.SUBSCRIPTION_IN_PROGRESS, State.TERMINATED}


def test_the_diagram_has_every_transition_and_no_other():
    first, begin, *arrows, end = diagram().splitlines()
    assert (first, begin, end) == (
        "stateDiagram-v2",
        "    [*] --> SUBSCRIPTION_NEEDED",
        "    TERMINATED --> [*]",
    )
    drawn = {tuple(State[name] for name in arrow.split(" --> ")) for arrow in map(str.strip, arrows)}
    assert len(drawn) == len(arrows)
    assert drawn == {(state, following) for state, allowed in VALID_NEXT_STATES.items() for following in allowed}


def test_the_first_request_goes_out_at_once_and_asks_for_an_id():
    bench = Bench()
    action = bench.subscribe()
    assert action.request.client_instance_id == ZERO_UUID
    assert bench.reporter.client_instance_id == ID
    assert bench.reporter.subscription.push_interval_ms == INTERVAL
    assert bench.reporter.state is State.PUSH_NEEDED


@pytest.mark.parametrize("uniform", [0.0, 0.25, 0.5, 0.999])
def test_case_85_jitter_follows_every_subscription(uniform):
    bench = Bench(uniform=uniform)
    bench.subscribe()
    assert bench.wait() == round((0.5 + uniform) * INTERVAL)
    bench.push(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    assert bench.wait() == INTERVAL
    bench.subscribe()
    assert bench.wait() == round((0.5 + uniform) * INTERVAL)


def test_case_86_time_to_the_next_request():
    bench = Bench(request_timeout_ms=100)
    first = bench.tick()
    assert isinstance(first, SendGet)
    assert bench.tick() == WaitUntil(bench.now + 100)
    bench.reporter.subscription_received(first.request_id, ANSWER, bench.now)
    assert bench.wait() == INTERVAL
    push = bench.push(code=None)
    assert bench.tick() == WaitUntil(bench.now + 100)
    bench.reporter.close(bench.now, bench.now + 50)
    assert bench.tick() == WaitUntil(bench.now + 50)
    bench.reporter.push_answered(push.request_id, PushTelemetryResponse(), bench.now)
    assert bench.push(code=None).request.terminating
    bench.now += 50
    assert bench.tick() == Done()


def test_after_a_push_comes_the_whole_interval_without_jitter():
    bench = Bench(uniform=0.9).ready()
    bench.push()
    assert bench.wait() == INTERVAL
    bench.push()
    assert bench.wait() == INTERVAL
    assert bench.reporter.counters.pushes == 2


@pytest.mark.parametrize(
    ("interval", "expected"),
    [(300_000, 300_000), (2**31 - 1, 2**31 - 1), (2**31 - 2, 2**31 - 2), (0, 300_000), (-1, 300_000)],
)
def test_case_82_intervals_are_validated(interval, expected):
    assert subscription_of(replace(ANSWER, push_interval_ms=interval), None).push_interval_ms == expected


# (code, wait on a push, wait on a subscription request without a subscription); beyond the first four, Kafka's client
# gives up for ever where ours waits.
CONSEQUENCES = [
    (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, 0, 300_000),
    (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 0, 300_000),
    (ErrorCode.TELEMETRY_TOO_LARGE, INTERVAL, 300_000),
    (ErrorCode.THROTTLING_QUOTA_EXCEEDED, INTERVAL, 300_000),
    (ErrorCode.INVALID_REQUEST, 300_000, 300_000),
    (ErrorCode.UNSUPPORTED_VERSION, 300_000, 300_000),
    (ErrorCode.INVALID_RECORD, 300_000, 300_000),
    (ErrorCode.UNKNOWN_SERVER_ERROR, 300_000, 300_000),
    (9999, 300_000, 300_000),
]


@pytest.mark.parametrize(("code", "after_push", "after_get"), CONSEQUENCES)
def test_case_81_and_87_every_error_asks_for_the_subscription_again(code, after_push, after_get):
    bench = Bench().ready()
    bench.push(code)
    assert bench.reporter.state is State.SUBSCRIPTION_NEEDED
    if after_push:
        assert bench.wait() == after_push
    assert bench.subscribe().request.client_instance_id == ID
    fresh = Bench()
    fresh.subscribe(error_code=code)
    assert fresh.reporter.state is State.SUBSCRIPTION_NEEDED
    assert fresh.wait() == after_get
    fresh.subscribe()
    assert fresh.reporter.state is State.PUSH_NEEDED


def test_refusals_that_go_on_are_met_ever_later_but_never_given_up():
    bench = Bench()
    waits = []
    for _ in range(6):
        bench.subscribe(error_code=ErrorCode.INVALID_REQUEST)
        waits.append(bench.wait())
    assert waits == [300_000, 600_000, 1_200_000, 2_400_000, 3_600_000, 3_600_000]
    bench.ready()
    bench.push(ErrorCode.INVALID_RECORD)
    assert bench.wait() == 3_600_000
    bench.ready()
    bench.push()
    bench.wait()
    bench.push(ErrorCode.INVALID_RECORD)
    assert bench.wait() == 300_000


def test_case_88_failed_requests_are_tried_again():
    bench = Bench()
    waits = []
    for _ in range(10):
        bench.reporter.request_failed(bench.tick().request_id, bench.now)
        waits.append(bench.wait())
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 300_000]
    bench.ready()
    for expected in (1_000, 2_000):
        bench.reporter.request_failed(bench.tick().request_id, bench.now)
        assert bench.wait() == expected
    assert bench.reporter.counters.failed == 12


def test_case_88_failures_not_worth_repeating_wait_longer_and_recover():
    bench = Bench()
    bench.reporter.request_failed(bench.tick().request_id, bench.now, retriable=False)
    assert bench.wait() == 300_000
    bench.ready()
    bench.push()
    assert bench.reporter.counters.pushes == 1


def test_retries_never_wait_longer_than_the_push_interval():
    bench = Bench().ready(push_interval_ms=100)
    bench.reporter.request_failed(bench.tick().request_id, bench.now)
    assert bench.wait() == 100


def test_a_request_without_an_answer_is_given_up_at_its_deadline():
    bench = Bench(request_timeout_ms=500)
    lost = bench.tick()
    assert bench.wait() == 500
    assert bench.wait() == 1_000
    bench.reporter.subscription_received(lost.request_id, ANSWER, bench.now)
    assert bench.reporter.state is State.SUBSCRIPTION_NEEDED
    assert isinstance(bench.tick(), SendGet)


def test_answers_nobody_waits_for_change_nothing():
    bench = Bench().ready()
    for request_id in (0, 1, 99):
        bench.reporter.push_answered(request_id, PushTelemetryResponse(), bench.now)
        bench.reporter.request_failed(request_id, bench.now)
        bench.reporter.subscription_received(request_id, ANSWER, bench.now)
    assert bench.reporter.state is State.PUSH_NEEDED
    assert bench.reporter.counters.pushes == 0


def test_a_subscription_to_nothing_is_asked_for_again_after_the_interval():
    bench = Bench(uniform=0.0)
    bench.subscribe(requested_metrics=())
    assert bench.reporter.state is State.SUBSCRIPTION_NEEDED
    assert bench.wait() == INTERVAL
    bench.subscribe()
    assert bench.wait() == INTERVAL // 2


def test_a_subscription_that_matches_nothing_is_pushed_empty_so_that_its_change_is_noticed():
    bench = Bench().ready(requested_metrics=("nothing.",))
    action = bench.push()
    assert action.request.metrics == b""
    assert action.request.compression_type == 0


def test_after_a_refused_subscription_the_push_waits_at_least_an_interval():
    bench = Bench(uniform=0.1).ready()
    bench.push(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    bench.subscribe(subscription_id=6)
    assert bench.wait() == round(1.4 * INTERVAL)
    assert bench.push().request.subscription_id == 6


def test_a_subscription_without_any_id_is_no_subscription(caplog):
    bench = Bench()
    with caplog.at_level(logging.WARNING):
        bench.subscribe(client_instance_id=ZERO_UUID)
    assert bench.wait() == 300_000
    assert bench.reporter.client_instance_id is None
    bench.subscribe()
    bench.wait()
    bench.push(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    bench.wait()
    bench.subscribe(client_instance_id=ZERO_UUID)
    assert bench.reporter.client_instance_id == ID
