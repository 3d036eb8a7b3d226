"""A reporter on a bench: its clock, its broker and its metrics are the test's."""

from dataclasses import replace
from uuid import UUID

from kclient_telemetry.client.actions import SendGet, SendPush, WaitUntil
from kclient_telemetry.client.collector import Collector
from kclient_telemetry.client.reporter import TelemetryReporter
from kclient_telemetry.compression import decompress
from kclient_telemetry.errors import ErrorCode
from kclient_telemetry.messages import GetTelemetrySubscriptionsResponse, PushTelemetryResponse
from kclient_telemetry.metric import MetricKind, MetricName
from kclient_telemetry.otlp import parse

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
