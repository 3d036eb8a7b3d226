"""Client telemetry of the embedded cluster (KIP-714): one manager per broker, what they took, where it goes."""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from kclient_telemetry.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from kclient_telemetry.metric import MetricName
from kclient_telemetry.receiver.manager import ClientMetricsManager
from kclient_telemetry.receiver.plugin import (
    AuthorizableRequestContext,
    ClientTelemetryContext,
    ClientTelemetryExporter,
    ClientTelemetryPayload,
)

from kclient_quota.broker.cluster_state import CLIENT_METRICS, ClusterState
from kclient_quota.broker.request.context import Context, Scheduler

if TYPE_CHECKING:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

PUSHES_KEPT = 10_000
PUSHES_KEPT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class SeenPush:
    """A push that a broker has taken.

    Attributes:
        at_ms: milliseconds since 1970.
        broker_id: who took it.
        client_instance_id: the id that the client pushes under.
        client_id: as in the request header.
        terminating: whether the client said that it is its last.
        push_interval_ms: how often this client was told to push.
        payload: OTLP metrics, decompressed.
        context: all that is known about the sender.
    """

    at_ms: int
    broker_id: int
    client_instance_id: UUID
    client_id: str | None
    terminating: bool
    push_interval_ms: int
    payload: bytes
    context: AuthorizableRequestContext

    def decode(self) -> "ExportMetricsServiceRequest":
        """The payload as a protobuf message, decoded at every call.

        Raises:
            InvalidPayloadError: it is no OTLP metrics message.
        """
        # protobuf is loaded by those who look into a push only
        from kclient_telemetry.otlp import parse  # noqa: PLC0415

        return parse(self.payload)

    def values(self, metric: str) -> dict[tuple[str, ...], float]:
        """What it says of one metric, by the values of its attributes: numbers; of a histogram how many there were."""
        return {
            tuple(attribute.value.string_value for attribute in point.attributes): point.count
            if found.HasField("histogram")
            else point.as_int or point.as_double
            for resource in self.decode().resource_metrics
            for scope in resource.scope_metrics
            for found in scope.metrics
            if found.name == metric
            for point in getattr(found, found.WhichOneof("data")).data_points
        }

    def metric_names(self) -> set[str]:
        """Names of the metrics in it."""
        return {
            metric.name
            for resource in self.decode().resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


class ClientTelemetryService:
    """The cluster's receiving end.

    Args:
        cluster: its client-metrics resources are the subscriptions.
        scheduler: time.

    Attributes:
        exporter: gets every push before it is recorded; None forwards nothing.
        pushes: the last that were taken, oldest first; of large ones fewer are kept.
    """

    def __init__(self, cluster: ClusterState, scheduler: Scheduler) -> None:
        self.exporter: ClientTelemetryExporter | None = None
        self.pushes: deque[SeenPush] = deque()
        self._pushed_bytes = 0
        self._cluster = cluster
        self._scheduler = scheduler
        self._managers: dict[int, ClientMetricsManager] = {}
        self._open: set[str] = set()
        self._applied: dict[str, dict[str, str]] = {}
        self._is_stale = True
        cluster.on_config.append(self._note)

    def get_subscriptions(
        self, context: Context, request: GetTelemetrySubscriptionsRequest
    ) -> GetTelemetrySubscriptionsResponse:
        """Answer API 71."""
        return self._manager(context).get_telemetry_subscriptions(request, request_context(context), context.now_ms)

    def push(self, context: Context, request: PushTelemetryRequest) -> PushTelemetryResponse:
        """Answer API 72."""
        return self._manager(context).push_telemetry(request, request_context(context), context.now_ms)

    def metrics(self, broker_id: int, now_ms: int) -> dict[MetricName, float]:
        """A broker's metrics of Kafka's group `client-metrics`; none before its first client."""
        manager = self._managers.get(broker_id)
        return {} if manager is None else manager.metrics(now_ms)

    def export_metrics(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        """A manager found a push valid: hand it on, keep it."""
        if self.exporter is not None:
            self.exporter.export_metrics(context, payload)
        sender = context.authorizable_request_context
        self._keep(
            SeenPush(
                at_ms=self._scheduler.now_ms(),
                broker_id=sender.broker_id or 0,
                client_instance_id=payload.client_instance_id,
                client_id=sender.client_id,
                terminating=payload.is_terminating,
                push_interval_ms=context.push_interval_ms,
                payload=payload.data,
                context=sender,
            )
        )

    def _keep(self, push: SeenPush) -> None:
        """Keep a push in the place of the oldest, whose number and bytes are bounded; the last is always kept."""
        self._pushed_bytes += len(push.payload)
        while self.pushes and (len(self.pushes) >= PUSHES_KEPT or self._pushed_bytes > PUSHES_KEPT_BYTES):
            self._pushed_bytes -= len(self.pushes.popleft().payload)
        self.pushes.append(push)

    def _note(self, resource_type: int, name: str) -> None:  # noqa: ARG002 - the observer's signature
        self._is_stale |= resource_type == CLIENT_METRICS

    def _manager(self, context: Context) -> ClientMetricsManager:
        """The asked broker's manager, following what is configured now.

        A resource that was altered key by key is followed once, as a whole.
        """
        if self._is_stale:
            self._follow()
        broker_id = context.broker.id
        manager = self._managers.get(broker_id)
        if manager is None:
            manager = self._managers[broker_id] = ClientMetricsManager(self, new_id=uuid4)
            for name, config in self._applied.items():
                manager.update_subscription(name, config)
        connection_id = _connection_id(context)
        if connection_id not in self._open:
            self._open.add(connection_id)
            context.connection.on_close.append(lambda: self._connection_closed(broker_id, connection_id))
        return manager

    def _connection_closed(self, broker_id: int, connection_id: str) -> None:
        self._open.discard(connection_id)
        self._managers[broker_id].connection_closed(connection_id)

    def _follow(self) -> None:
        self._is_stale = False
        wanted = {
            name: dict(config) for (kind, name), config in self._cluster.configs.items() if kind == CLIENT_METRICS
        }
        changed = {name for name in {*wanted, *self._applied} if wanted.get(name) != self._applied.get(name)}
        for manager in self._managers.values():
            for name in sorted(changed):
                manager.update_subscription(name, wanted.get(name, {}))
        self._applied = wanted


def request_context(context: Context) -> AuthorizableRequestContext:
    """What exporters and match rules are told about a request."""
    connection = context.connection
    name, version = connection.client_software
    return AuthorizableRequestContext(
        connection_id=_connection_id(context),
        client_id=context.client_id,
        client_address=connection.client_address,
        client_port=connection.client_port,
        client_software_name=name,
        client_software_version=version,
        principal=f"User:{connection.principal}",
        listener_name=connection.listener,
        security_protocol=connection.listener,
        request_type=context.api_key,
        request_version=context.api_version,
        broker_id=context.broker.id,
        cluster_id=context.cluster.cluster_id,
    )


def _connection_id(context: Context) -> str:
    """Unique as long as the connection lasts, as in Kafka."""
    connection = context.connection
    broker = context.broker
    return f"{broker.host}:{broker.id}-{connection.client_address}:{connection.client_port}"
