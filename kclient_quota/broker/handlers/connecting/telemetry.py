"""Client telemetry.

GetTelemetrySubscriptions (71) v0 · PushTelemetry (72) v0. KIP-714, KIP-1217.

Behaviour: `kclient_telemetry.receiver.manager`, with Apache Kafka 4.3.1's validation order and error codes; one manager
per broker. Subscriptions are the client-metrics resources of DescribeConfigs and IncrementalAlterConfigs. Unlike Kafka
without a plug-in, both APIs are always advertised: this broker has a receiver of its own.
Gaps: none known.
"""

from kclient_telemetry import messages

from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.registry import handler
from kclient_quota.broker.telemetry_service import ClientTelemetryService
from kclient_quota.wire.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)


@handler(GetTelemetrySubscriptionsRequest, min_version=0, max_version=0)
async def get_telemetry_subscriptions(
    context: Context, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Tell a client what to push."""
    asked = messages.GetTelemetrySubscriptionsRequest(request.client_instance_id)
    answer = context.services.get(ClientTelemetryService).get_subscriptions(context, asked)
    return GetTelemetrySubscriptionsResponse(
        error_code=answer.error_code,
        client_instance_id=answer.client_instance_id,
        subscription_id=answer.subscription_id,
        accepted_compression_types=list(answer.accepted_compression_types),
        push_interval_ms=answer.push_interval_ms,
        telemetry_max_bytes=answer.telemetry_max_bytes,
        delta_temporality=answer.delta_temporality,
        requested_metrics=list(answer.requested_metrics),
    )


@handler(PushTelemetryRequest, min_version=0, max_version=0)
async def push_telemetry(context: Context, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Take what a client pushes."""
    pushed = messages.PushTelemetryRequest(
        request.client_instance_id,
        request.subscription_id,
        request.terminating,
        request.compression_type,
        bytes(request.metrics or b""),
    )
    answer = context.services.get(ClientTelemetryService).push(context, pushed)
    return PushTelemetryResponse(error_code=answer.error_code)
