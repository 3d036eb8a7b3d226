"""The reporter, event by event; numbered cases are Kafka's own tests."""

import itertools
import logging
from dataclasses import replace
from uuid import UUID

import pytest

from telemetry.client.actions import Done, SendGet, SendPush, WaitUntil
from telemetry.client.collector import Collector
from telemetry.client.reporter import TelemetryReporter
from telemetry.client.states import TERMINATING, VALID_NEXT_STATES, State, diagram
from telemetry.client.subscription import subscription_of
from telemetry.compression import CompressionType, decompress
from telemetry.errors import ErrorCode
from telemetry.messages import ZERO_UUID, GetTelemetrySubscriptionsResponse, PushTelemetryResponse
from telemetry.metric import MetricKind, MetricName
from telemetry.otlp import parse

ID = UUID(int=7 << 64 | 9)
INTERVAL = 20_000
ANSWER = GetTelemetrySubscriptionsResponse(
    client_instance_id=ID,
    subscription_id=5,
    accepted_compression_types=(4, 3, 1, 2),
    push_interval_ms=INTERVAL,
    telemetry_max_bytes=1_000_000,
    delta_temporality=True,
    requested_metrics=("*",),
)
UNIX = 1_700_000_000_000


class Bench:
    """A reporter with a counter to push, driven by hand."""

    def __init__(self, *, uniform=0.5, **options):
        self.collector = Collector({"group_id": "g"})
        self.total = 1
        self.collector.register_metric_for_subscription(
            MetricName("events", "app-metrics"), lambda: self.total, MetricKind.SUM, unix_ms=UNIX
        )
        self.uniform = uniform
        self.reporter = TelemetryReporter(self.collector, uniform=lambda: self.uniform, **options)
        self.now = 1_000

    def tick(self):
        return self.reporter.tick(self.now, UNIX + self.now)

    def wait(self):
        action = self.tick()
        assert isinstance(action, WaitUntil)
        waited = action.at_ms - self.now
        self.now = action.at_ms
        return waited

    def subscribe(self, **changes):
        action = self.tick()
        assert isinstance(action, SendGet)
        self.reporter.subscription_received(action.request_id, replace(ANSWER, **changes), self.now)
        return action

    def push(self, code=ErrorCode.NONE):
        action = self.tick()
        assert isinstance(action, SendPush)
        if code is not None:
            self.reporter.push_answered(action.request_id, PushTelemetryResponse(error_code=code), self.now)
        return action

    def ready(self, **changes):
        self.subscribe(**changes)
        self.wait()
        return self


def value_of(action):
    payload = decompress(action.request.metrics, action.request.compression_type, 1 << 20)
    (resource,) = parse(payload).resource_metrics
    return resource.scope_metrics[0].metrics[0].sum.data_points[0].as_int


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


def test_deltas_of_refused_and_failed_pushes_are_not_lost():
    bench = Bench().ready()
    bench.total = 5
    assert value_of(bench.push()) == 5
    bench.total = 8
    bench.wait()
    assert value_of(bench.push(ErrorCode.THROTTLING_QUOTA_EXCEEDED)) == 3
    bench.wait()
    bench.ready()
    bench.total = 9
    action = bench.push(code=None)
    assert value_of(action) == 4
    bench.reporter.request_failed(action.request_id, bench.now)
    bench.wait()
    bench.ready()
    assert value_of(bench.push()) == 4
    bench.wait()
    assert value_of(bench.push()) == 0


def test_cumulative_temporality_and_its_change():
    bench = Bench().ready(delta_temporality=False)
    bench.total = 5
    assert value_of(bench.push()) == 5
    bench.wait()
    assert value_of(bench.push(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)) == 5
    bench.ready(delta_temporality=True)
    assert value_of(bench.push()) == 5
    bench.wait()
    assert value_of(bench.push()) == 0


@pytest.mark.parametrize("accepted", list(itertools.permutations((1, 2, 3, 4), 2)))
def test_the_brokers_favourite_compression_is_used(accepted):
    bench = Bench().ready(accepted_compression_types=accepted)
    action = bench.push()
    assert action.request.compression_type == accepted[0]
    assert value_of(action) == 1


@pytest.mark.parametrize("accepted", [(), (0,), (0, 4), (77,)])
def test_no_compression_where_none_is_accepted(accepted):
    assert Bench().ready(accepted_compression_types=accepted).push().request.compression_type == 0


def test_a_codec_that_fails_is_not_tried_again():
    tried = []

    def compressor(data, kind):
        tried.append(kind)
        if kind is not CompressionType.GZIP:
            raise ImportError(kind.name)
        return b"gz" + data

    bench = Bench(compressor=compressor).ready()
    assert bench.push().request.compression_type == CompressionType.GZIP
    bench.wait()
    bench.push()
    assert tried == [CompressionType.ZSTD, CompressionType.LZ4, CompressionType.GZIP, CompressionType.GZIP]
    assert bench.reporter.payload_counters.compression_failures == 2


def test_a_codec_the_broker_refuses_is_not_sent_again():
    bench = Bench().ready()
    assert bench.push(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE).request.compression_type == CompressionType.ZSTD
    bench.ready()
    assert bench.push().request.compression_type == CompressionType.LZ4


def many_metrics(bench, count=50):
    for number in range(count):
        name = MetricName(f"metric-{number}", "app-metrics")
        bench.collector.register_metric_for_subscription(name, lambda n=number: n, MetricKind.SUM, unix_ms=UNIX)
    return count + 1


def names_in(action):
    payload = decompress(action.request.metrics, action.request.compression_type, 1 << 20)
    return [m.name for r in parse(payload).resource_metrics for s in r.scope_metrics for m in s.metrics]


def test_the_size_bound_is_kept_and_every_metric_gets_its_turn(caplog):
    bench = Bench()
    count = many_metrics(bench)
    bench.ready(telemetry_max_bytes=1_000, accepted_compression_types=())
    seen = set()
    with caplog.at_level(logging.WARNING):
        for _ in range(10):
            action = bench.push()
            assert len(action.request.metrics) <= 1_000
            seen.update(names_in(action))
            bench.wait()
    assert len(seen) == count
    assert bench.reporter.payload_counters.deferred_points > 0
    assert bench.reporter.payload_counters.dropped_points == 0
    assert "1000 bytes" in caplog.text


def test_a_metric_too_large_for_any_push_is_counted():
    bench = Bench()
    bench.collector.register_metric_for_subscription(MetricName("x" * 2_000, "g"), lambda: 1, unix_ms=UNIX)
    bench.ready(telemetry_max_bytes=1_000)
    assert names_in(bench.push()) == ["org.apache.kafka.app.events"]
    assert bench.reporter.payload_counters.dropped_points == 1


def test_what_is_too_large_for_the_broker_is_halved_until_it_fits():
    bench = Bench()
    many_metrics(bench, 300)
    bench.ready(accepted_compression_types=())
    sizes = []
    for _ in range(3):
        sizes.append(len(bench.push(ErrorCode.TELEMETRY_TOO_LARGE).request.metrics))
        bench.wait()
        bench.ready(accepted_compression_types=())
    assert sizes[1] <= sizes[0] // 2
    assert sizes[2] <= sizes[1] // 2
    bench.push(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    bench.ready(accepted_compression_types=(), telemetry_max_bytes=2_000_000)
    assert len(bench.push().request.metrics) == sizes[0]


def test_after_a_refusal_the_size_grows_again_until_everything_fits():
    bench = Bench()
    count = many_metrics(bench, 100)
    bench.ready(accepted_compression_types=())
    refused = len(bench.push(ErrorCode.TELEMETRY_TOO_LARGE).request.metrics)
    bench.wait()
    bench.ready(accepted_compression_types=())
    sizes = []
    while not sizes or sizes[-1] < refused:
        action = bench.push()
        sizes.append(len(action.request.metrics))
        bench.wait()
        assert len(sizes) < 10
    assert sizes == sorted(sizes)
    assert len(names_in(action)) == count


def test_a_payload_that_grows_by_compression_is_sent_as_it_is():
    bench = Bench(compressor=lambda data, kind: data * 2)
    bench.ready()
    plain = len(bench.push().request.metrics) // 2
    other = Bench(compressor=lambda data, kind: data * 2).ready(telemetry_max_bytes=plain)
    action = other.push()
    assert (action.request.compression_type, len(action.request.metrics)) == (0, plain)


def test_what_cannot_be_encoded_is_tried_again_an_interval_later(caplog):
    bench = Bench()
    name = MetricName("bad", "g", tags={"topic": "\ud800"})
    bench.collector.register_metric_for_subscription(name, lambda: 1, unix_ms=UNIX)
    bench.ready()
    with caplog.at_level(logging.ERROR):
        assert bench.wait() == INTERVAL
    assert "could not be encoded" in caplog.text
    bench.collector.unregister_metric_from_subscription(name)
    assert value_of(bench.push()) == 1


def test_a_terminating_push_that_cannot_be_encoded_ends_all_the_same():
    bench = Bench().ready()
    name = MetricName("bad", "g", tags={"topic": "\ud800"})
    bench.collector.register_metric_for_subscription(name, lambda: 1, unix_ms=UNIX)
    bench.reporter.close(bench.now, bench.now + 100)
    assert bench.tick() == Done()


def test_the_brokers_throttle_time_is_honoured():
    bench = Bench().ready(throttle_time_ms=90_000)
    assert bench.now == 1_000 + 90_000
    action = bench.push(code=None)
    bench.reporter.push_answered(action.request_id, PushTelemetryResponse(70_000), bench.now)
    assert bench.wait() == 70_000


@pytest.mark.parametrize("outcome", ["answered", "refused", "failed", "lost"])
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
