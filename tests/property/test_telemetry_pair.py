"""Reporter and manager joined in memory under a manual clock.

Whatever goes wrong between them, telemetry never stalls, never has two pushes under way, never pushes twice what it
counted unless an answer was lost, and keeps to the interval: a broker throttles it only after an answer was lost.
"""

import itertools
from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kclient_telemetry.client.actions import Action, Done, SendGet, SendPush, WaitUntil
from kclient_telemetry.client.collector import Collector
from kclient_telemetry.client.reporter import REQUEST_TIMEOUT_MS, TelemetryReporter
from kclient_telemetry.client.retry import LONGEST_RETRY_MS
from kclient_telemetry.client.states import TERMINATING, State
from kclient_telemetry.errors import ErrorCode
from kclient_telemetry.messages import GetTelemetrySubscriptionsResponse, PushTelemetryResponse
from kclient_telemetry.metric import MetricKind, MetricName
from kclient_telemetry.otlp import parse
from kclient_telemetry.receiver.manager import ClientMetricsManager
from kclient_telemetry.receiver.plugin import AuthorizableRequestContext

from tests.property.examples import examples

UNIX = 1_700_000_000_000
INTERVALS = st.sampled_from([100, 1_000, 30_000, 300_000])
METRICS = st.sampled_from(["*", "org.apache.kafka.app.", "nothing.", "", "a,b"])
CODES = st.sampled_from([*(code for code in ErrorCode if code is not ErrorCode.NONE), 9999])


@dataclass
class Received:
    """What a broker's exporter got, summed up as a collector behind it would."""

    total: int = 0
    pushes: list[bytes] = field(default_factory=list)

    def export_metrics(self, context, payload):
        self.pushes.append(payload.data)
        for resource in parse(payload.data).resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    self.total += sum(int(point.as_int) for point in metric.sum.data_points)


class Pair(RuleBasedStateMachine):
    @initialize(uniform=st.floats(0, 1, exclude_max=True), interval=INTERVALS)
    def begin(self, uniform, interval):
        self.now = 0
        self.uniform = uniform
        self.numbers = itertools.count(1)
        self.received = Received()
        self.manager = ClientMetricsManager(self.received, new_id=lambda: UUID(int=next(self.numbers) << 64))
        self.manager.update_subscription("s", {"metrics": "*", "interval.ms": interval})
        self.events = 0
        self.collector = Collector()
        self.collector.register_metric_for_subscription(
            MetricName("events", "app-metrics"), lambda: self.events, MetricKind.SUM, unix_ms=UNIX
        )
        self.reporter = TelemetryReporter(self.collector, uniform=lambda: self.uniform)
        self.connection = 1
        self.under_way: SendGet | SendPush | None = None
        self.answer: GetTelemetrySubscriptionsResponse | PushTelemetryResponse | None = None
        # Set when the two ends may disagree about what has arrived, until a push is accepted.
        self.disturbed = False
        self.answers_lost = 0
        self.closed_at: int | None = None
        self.terminating_pushes = self.terminating_lost = 0

    def tick(self) -> Action:
        action = self.reporter.tick(self.now, UNIX + self.now)
        if isinstance(action, SendGet | SendPush):
            assert self.under_way is None, "two requests under way"
            self.under_way, self.answer = action, None
            if isinstance(action, SendPush) and action.request.terminating:
                self.terminating_pushes += 1
        return action

    def serve(self):
        """The request under way reaches the broker."""
        context = AuthorizableRequestContext(connection_id=str(self.connection))
        if isinstance(self.under_way, SendGet):
            self.answer = self.manager.get_telemetry_subscriptions(self.under_way.request, context, self.now)
        else:
            self.answer = self.manager.push_telemetry(self.under_way.request, context, self.now)
        if self.answer.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            assert self.disturbed, "throttled although every answer had arrived"

    def deliver(self, answer):
        action, self.under_way, self.answer = self.under_way, None, None
        if isinstance(action, SendGet):
            self.reporter.subscription_received(action.request_id, answer, self.now)
            self.disturbed &= not self.next_push_is_due()
            return
        accepted = answer.error_code == ErrorCode.NONE
        self.reporter.push_answered(action.request_id, answer, self.now)
        if accepted:
            self.disturbed = False

    def next_push_is_due(self):
        """Whether the broker has counted the last fetch, so that it will take a push at any time."""
        instance = self.manager._instances.get(self.reporter.client_instance_id)
        return instance is not None and instance._last_get_ms > instance._last_push_ms

    def lose(self):
        """The request under way never gets its answer."""
        if isinstance(self.under_way, SendPush):
            self.answers_lost += self.answer is not None and self.answer.error_code == ErrorCode.NONE
            self.terminating_lost += self.under_way.request.terminating
        self.disturbed = True
        self.under_way = self.answer = None

    @rule(count=st.integers(0, 5))
    def something_happens(self, count):
        self.events += count

    @rule()
    @precondition(lambda self: self.under_way is None)
    def wait_for_the_reporter(self):
        action = self.tick()
        if isinstance(action, WaitUntil):
            self.now = max(self.now, action.at_ms)
            self.tick()

    @rule(passed=st.sampled_from([0, 1, 99, 1_000, 30_000, 300_000]))
    def time_passes(self, passed):
        self.now += passed
        state, under_way = self.reporter.state, self.under_way
        self.reporter.tick(self.now, UNIX + self.now) if under_way else self.tick()
        if under_way and self.now >= under_way.deadline_ms:
            assert self.reporter.state is not state or state is State.TERMINATED
            self.lose()
            self.tick()

    @rule()
    @precondition(lambda self: self.under_way is not None and self.answer is None)
    def the_broker_answers(self):
        self.serve()

    @rule()
    @precondition(lambda self: self.answer is not None)
    def the_answer_arrives(self):
        self.deliver(self.answer)

    @rule()
    @precondition(lambda self: self.under_way is not None and self.answer is None)
    def all_goes_well(self):
        self.serve()
        self.deliver(self.answer)

    @rule(requests=st.integers(1, 6))
    @precondition(lambda self: self.under_way is None)
    def all_goes_well_for_a_while(self, requests):
        for _ in range(requests):
            self.wait_for_the_reporter()
            if self.under_way is not None:
                self.all_goes_well()

    @rule(code=CODES)
    @precondition(lambda self: self.under_way is not None and self.answer is None)
    def something_else_answers(self, code):
        """A gateway, an old broker or a bad one: any code, without the manager having seen the request."""
        self.disturbed = True
        is_get = isinstance(self.under_way, SendGet)
        answer = GetTelemetrySubscriptionsResponse if is_get else PushTelemetryResponse
        self.deliver(answer(error_code=code))

    @rule(code=CODES, times=st.integers(2, 8))
    @precondition(lambda self: self.under_way is None)
    def something_else_answers_for_a_while(self, code, times):
        for _ in range(times):
            self.wait_for_the_reporter()
            if self.under_way is not None:
                self.something_else_answers(code)
            self.it_never_waits_without_end()

    @rule(retriable=st.booleans(), served=st.booleans())
    @precondition(lambda self: self.under_way is not None)
    def the_connection_breaks(self, retriable, served):
        if served and self.answer is None:
            self.serve()
        action = self.under_way
        self.manager.connection_closed(str(self.connection))
        self.connection += 1
        self.lose()
        self.reporter.request_failed(action.request_id, self.now, retriable=retriable)

    @rule()
    @precondition(lambda self: self.under_way is None)
    def an_idle_connection_breaks(self):
        self.manager.connection_closed(str(self.connection))
        self.connection += 1

    @rule(interval=INTERVALS, metrics=METRICS)
    def the_subscription_changes(self, interval, metrics):
        self.manager.update_subscription("s", {"metrics": metrics, "interval.ms": interval})

    @rule(timeout=st.sampled_from([0, 50, 5_000]))
    @precondition(lambda self: self.closed_at is None)
    def the_client_closes(self, timeout):
        self.closed_at = self.now + timeout
        self.reporter.close(self.now, self.closed_at)

    @invariant()
    def it_never_waits_without_end(self):
        if not hasattr(self, "reporter") or self.under_way is not None:
            return
        action = self.tick()
        if isinstance(action, WaitUntil):
            longest = max(LONGEST_RETRY_MS, REQUEST_TIMEOUT_MS)
            assert self.now < action.at_ms <= self.now + longest
        if isinstance(action, Done):
            assert self.closed_at is not None

    @invariant()
    def closing_is_bounded(self):
        if getattr(self, "closed_at", None) is not None:
            assert self.reporter.state in TERMINATING
            assert self.terminating_pushes <= 1 + min(1, self.terminating_lost), "sent once more, and once only"
            if self.now >= self.closed_at:
                assert self.reporter.tick(self.now, UNIX + self.now) == Done()

    @invariant()
    def nothing_is_counted_that_did_not_happen(self):
        if hasattr(self, "reporter") and not self.answers_lost:
            assert self.received.total <= self.events

    def teardown(self):
        """Left alone with a good broker, an open client pushes again, and everything that happened has arrived."""
        if not hasattr(self, "reporter") or self.closed_at is not None:
            return
        self.manager.update_subscription("s", {"metrics": "*", "interval.ms": 1_000})
        before = self.reporter.counters.pushes
        for _ in range(60):
            if self.under_way is not None:
                if self.answer is None:
                    self.disturbed = True
                    self.serve()
                self.deliver(self.answer)
            action = self.tick()
            if isinstance(action, WaitUntil):
                self.now = action.at_ms
        assert self.reporter.counters.pushes > before
        assert self.received.total >= self.events
        assert self.answers_lost or self.received.total == self.events


TestPair = Pair.TestCase
TestPair.settings = settings(max_examples=examples(60, 150), stateful_step_count=40, deadline=None)
