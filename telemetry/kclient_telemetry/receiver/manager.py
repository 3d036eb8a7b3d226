"""The broker's end of KIP-714: both APIs' rules, as Apache Kafka 4.3.1's ClientMetricsManager has them.

Pure: every call is told the time, ids are injected, the caller holds the lock. The exporter is called in line, as in
Kafka.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Mapping
from uuid import UUID

from kclient_telemetry import logger_of
from kclient_telemetry.compression import decompress, is_available, offered
from kclient_telemetry.errors import ErrorCode, TelemetryError
from kclient_telemetry.messages import (
    RESERVED_UUIDS,
    ZERO_UUID,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
    uuid_text,
)
from kclient_telemetry.metric import MetricName
from kclient_telemetry.receiver.instance import ClientMetricsInstance, TerminatingRule
from kclient_telemetry.receiver.plugin import (
    AuthorizableRequestContext,
    ClientTelemetryContext,
    ClientTelemetryExporter,
    ClientTelemetryPayload,
)
from kclient_telemetry.receiver.stats import GROUP, Windowed, meter
from kclient_telemetry.receiver.subscription import (
    ConfigValue,
    MetricsSubscription,
    client_attributes,
    demand_on,
    metrics_subscription,
)

log = logger_of(__name__)

CACHE_SIZE = 16_384
CACHE_EXPIRY_MS = 60_000
TELEMETRY_MAX_BYTES = 1_048_576

_EXPIRY_INTERVALS = 3


class ClientMetricsManager:
    """Subscriptions, client instances and the answers to telemetry requests of one broker.

    Args:
        exporter: takes every accepted push; None: pushes are validated and dropped.
        new_id: a random UUID (version 4) for a client that has none.
        telemetry_max_bytes: bound of a push, on the wire as well as decompressed (`telemetry.max.bytes`).
        cache_size: most client instances remembered; the least recently heard of goes first.
        cache_expiry_ms: an instance not heard of for this long, and for three intervals, is forgotten.
        terminating_rule: what follows a terminating push.
        elapsed_ms: a clock for the time that exports take; None: they are recorded as taking none.
    """

    def __init__(
        self,
        exporter: ClientTelemetryExporter | None = None,
        *,
        new_id: Callable[[], UUID],
        telemetry_max_bytes: int = TELEMETRY_MAX_BYTES,
        cache_size: int = CACHE_SIZE,
        cache_expiry_ms: int = CACHE_EXPIRY_MS,
        terminating_rule: TerminatingRule = TerminatingRule.SHIPPED,
        elapsed_ms: Callable[[], float] | None = None,
    ) -> None:
        self._exporter = exporter
        self._new_id = new_id
        self._telemetry_max_bytes = telemetry_max_bytes
        self._cache_size = cache_size
        self._cache_expiry_ms = cache_expiry_ms
        self._terminating_rule = terminating_rule
        self._elapsed_ms = elapsed_ms or (lambda: 0.0)
        self._subscriptions: dict[str, MetricsSubscription] = {}
        self._subscription_version = 0
        self._instances: OrderedDict[UUID, ClientMetricsInstance] = OrderedDict()
        self._connections: dict[str, UUID] = {}
        self._expiries: list[tuple[int, int]] = []
        self._unknown_subscriptions = Windowed()

    @property
    def subscriptions(self) -> Mapping[str, MetricsSubscription]:
        """The client-metrics resources by name."""
        return self._subscriptions

    def update_subscription(self, name: str, config: Mapping[str, ConfigValue]) -> None:
        """Set a client-metrics resource to `config`; an empty `config` removes it.

        Clients learn of it at their next request: a push of the old subscription is refused with
        UNKNOWN_SUBSCRIPTION_ID.

        Raises:
            InvalidRequestError, InvalidConfigurationError: see `metrics_subscription`; nothing has changed.
        """
        subscription = metrics_subscription(name, config)
        if config:
            self._subscriptions[name] = subscription
        elif self._subscriptions.pop(name, None) is None:
            return
        self._subscription_version += 1

    def get_telemetry_subscriptions(
        self, request: GetTelemetrySubscriptionsRequest, context: AuthorizableRequestContext, now_ms: int
    ) -> GetTelemetrySubscriptionsResponse:
        """Answer API 71; an error response carries nothing but its code."""
        client_instance_id = request.client_instance_id
        if client_instance_id == ZERO_UUID:
            client_instance_id = self._unused_id()
        instance = self._instance(client_instance_id, context, now_ms)
        if not instance.may_get(now_ms):
            instance.stats.throttle.record(now_ms)
            return GetTelemetrySubscriptionsResponse(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_known_error = ErrorCode.NONE
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=client_instance_id,
            subscription_id=instance.demand.subscription_id,
            accepted_compression_types=offered(),
            push_interval_ms=instance.demand.push_interval_ms,
            telemetry_max_bytes=self._telemetry_max_bytes,
            delta_temporality=True,
            requested_metrics=instance.demand.metrics,
        )

    def push_telemetry(
        self, request: PushTelemetryRequest, context: AuthorizableRequestContext, now_ms: int
    ) -> PushTelemetryResponse:
        """Answer API 72."""
        if request.client_instance_id in RESERVED_UUIDS:
            return PushTelemetryResponse(error_code=ErrorCode.INVALID_REQUEST)
        instance = self._instance(request.client_instance_id, context, now_ms)
        error = self._validate(request, instance, now_ms)
        if self._terminating_rule is TerminatingRule.SHIPPED:
            instance.terminating = request.terminating
        if error is ErrorCode.NONE and request.metrics:
            error = self._export(request, request.metrics, instance, context, now_ms)
        instance.last_known_error = error
        return PushTelemetryResponse(error_code=error)

    def connection_closed(self, connection_id: str) -> None:
        """Forget the client instance that came over this connection, its rate limit included."""
        client_instance_id = self._connections.pop(connection_id, None)
        if client_instance_id is not None:
            self._forget(client_instance_id)

    def expire(self, now_ms: int) -> None:
        """Forget instances not heard of for long; every request does so too."""
        while self._expiries and self._expiries[0][0] <= now_ms:
            queued_at_ms, number = heapq.heappop(self._expiries)
            instance = self._instances.get(UUID(int=number))
            if instance is None or instance.queued_at_ms != queued_at_ms:
                continue
            instance.queued_at_ms = None
            if instance.expires_at_ms <= now_ms:
                self._forget(instance.client_instance_id)
            else:
                self._queue_expiry(instance)

    def metrics(self, now_ms: int) -> dict[MetricName, float]:
        """The broker metrics of group `client-metrics`."""
        values = {"instance-count": float(len(self._instances))}
        values.update(meter("unknown-subscription-request", self._unknown_subscriptions, now_ms))
        metrics = {MetricName(name, GROUP): value for name, value in values.items()}
        for instance in self._instances.values():
            metrics.update(instance.stats.metrics(uuid_text(instance.client_instance_id), now_ms))
        return metrics

    def _validate(self, request: PushTelemetryRequest, instance: ClientMetricsInstance, now_ms: int) -> ErrorCode:
        """Kafka's validatePushRequest, in its order."""
        error = instance.refuse_push(now_ms, self._terminating_rule, terminating=request.terminating)
        if error is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            instance.stats.throttle.record(now_ms)
        if error is not ErrorCode.NONE:
            return error
        if request.subscription_id != instance.demand.subscription_id:
            self._unknown_subscriptions.record(now_ms)
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if not is_available(request.compression_type):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if request.metrics is not None and len(request.metrics) > self._telemetry_max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    def _export(
        self,
        request: PushTelemetryRequest,
        metrics: bytes,
        instance: ClientMetricsInstance,
        context: AuthorizableRequestContext,
        now_ms: int,
    ) -> ErrorCode:
        began_ms = self._elapsed_ms()
        try:
            data = decompress(metrics, request.compression_type, self._telemetry_max_bytes)
            if self._exporter is not None:
                self._exporter.export_metrics(
                    ClientTelemetryContext(instance.demand.push_interval_ms, context),
                    ClientTelemetryPayload(instance.client_instance_id, request.terminating, data),
                )
        except Exception as error:  # as Kafka: whatever a plug-in raises is the client's INVALID_RECORD
            instance.stats.plugin_error.record(now_ms)
            unexpected = None if isinstance(error, TelemetryError) else error
            who = uuid_text(instance.client_instance_id)
            log.warning("a push of client instance %s was refused: %s", who, error, exc_info=unexpected)
            return ErrorCode.INVALID_RECORD
        instance.stats.plugin_export.record(now_ms, self._elapsed_ms() - began_ms)
        return ErrorCode.NONE

    def _unused_id(self) -> UUID:
        """A new id; Kafka's never look like a command-line option."""
        while True:
            candidate = self._new_id()
            taken = candidate in RESERVED_UUIDS or candidate in self._instances
            if not taken and not uuid_text(candidate).startswith("-"):
                return candidate

    def _instance(
        self, client_instance_id: UUID, context: AuthorizableRequestContext, now_ms: int
    ) -> ClientMetricsInstance:
        """The cached instance; a new one for a stranger, and after a change of subscriptions."""
        self.expire(now_ms)
        instance = self._instances.get(client_instance_id)
        if instance is None or instance.subscription_version < self._subscription_version:
            instance = self._create(client_instance_id, context, instance)
        self._instances.move_to_end(client_instance_id)
        instance.expires_at_ms = now_ms + max(
            self._cache_expiry_ms, _EXPIRY_INTERVALS * instance.demand.push_interval_ms
        )
        if instance.queued_at_ms is None or instance.queued_at_ms > instance.expires_at_ms:
            self._queue_expiry(instance)
        return instance

    def _create(
        self, client_instance_id: UUID, context: AuthorizableRequestContext, former: ClientMetricsInstance | None
    ) -> ClientMetricsInstance:
        client = former.client if former else client_attributes(client_instance_id, context)
        demand = demand_on(client_instance_id, client, self._subscriptions.values())
        instance = ClientMetricsInstance(client_instance_id, client, demand, self._subscription_version)
        if former is not None:
            instance.stats, instance.connections = former.stats, former.connections
        instance.connections.add(context.connection_id)
        self._connections[context.connection_id] = client_instance_id
        self._instances[client_instance_id] = instance
        if len(self._instances) > self._cache_size:
            self._forget(next(iter(self._instances)))
        return instance

    def _queue_expiry(self, instance: ClientMetricsInstance) -> None:
        instance.queued_at_ms = instance.expires_at_ms
        heapq.heappush(self._expiries, (instance.expires_at_ms, instance.client_instance_id.int))

    def _forget(self, client_instance_id: UUID) -> None:
        instance = self._instances.pop(client_instance_id, None)
        for connection_id in instance.connections if instance else ():
            if self._connections.get(connection_id) == client_instance_id:
                del self._connections[connection_id]
