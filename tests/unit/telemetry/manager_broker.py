"""A broker's manager of client metrics whose clock and clients are the test's."""

import itertools
from uuid import UUID

from kclient_telemetry.messages import GetTelemetrySubscriptionsRequest, PushTelemetryRequest, uuid_text
from kclient_telemetry.metric import MetricName
from kclient_telemetry.receiver.manager import ClientMetricsManager
from kclient_telemetry.receiver.plugin import AuthorizableRequestContext

START = 1_000_000


CONTEXT = AuthorizableRequestContext(connection_id="c1", client_id="orders")


class Exporter:
    def __init__(self):
        self.pushes = []
        self.error = None

    def export_metrics(self, context, payload):
        if self.error:
            raise self.error
        self.pushes.append((context, payload))


class Broker:
    """A manager driven by hand, with one client of it."""

    def __init__(self, *, interval=30_000, metrics="*", **options):
        self.exporter = Exporter()
        numbers = itertools.count(100)
        options = {"cache_expiry_ms": 100, "telemetry_max_bytes": 100} | options
        self.manager = ClientMetricsManager(self.exporter, new_id=lambda: UUID(int=next(numbers) << 64), **options)
        if metrics is not None:
            self.manager.update_subscription("s", {"metrics": metrics, "interval.ms": interval})
        self.now = START
        self.client = UUID(int=7 << 64)
        self.subscription_id = None

    def get(self, client=None, context=CONTEXT):
        request = GetTelemetrySubscriptionsRequest(client or self.client)
        response = self.manager.get_telemetry_subscriptions(request, context, self.now)
        if response.error_code == 0:
            self.subscription_id = response.subscription_id
        return response

    def push(self, metrics=b"data", *, subscription_id=None, terminating=False, compression=0, client=None):
        request = PushTelemetryRequest(
            self.client if client is None else client,
            self.subscription_id if subscription_id is None else subscription_id,
            terminating,
            compression,
            metrics,
        )
        return self.manager.push_telemetry(request, CONTEXT, self.now).error_code

    def metric(self, name, client=None):
        own = name not in {
            "instance-count",
            "unknown-subscription-request-count",
            "unknown-subscription-request-rate",
        }
        tags = (("client_instance_id", uuid_text(client or self.client)),) if own else ()
        return self.manager.metrics(self.now)[MetricName(name, "client-metrics", tags=tags)]
