"""Client metrics of KIP-714: GetTelemetrySubscriptions, PushTelemetry."""

# ruff: noqa: D101
# The classes are tables and carry Apache Kafka's own names; `kclient_quota.wire.schema` explains the columns.

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient_quota.wire.schema import Request, Response, field

if TYPE_CHECKING:
    from kclient_quota.wire.schema import Bool, Bytes, Int8, Int16, Int32, String, Uuid


class GetTelemetrySubscriptionsRequest(Request, key=71, versions="0", flexible="0+"):
    client_instance_id: Uuid = field("0+")


class GetTelemetrySubscriptionsResponse(Response, key=71, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    client_instance_id: Uuid = field("0+")
    subscription_id: Int32 = field("0+")
    accepted_compression_types: list[Int8] = field("0+")
    push_interval_ms: Int32 = field("0+")
    telemetry_max_bytes: Int32 = field("0+")
    delta_temporality: Bool = field("0+")
    requested_metrics: list[String] = field("0+")


class PushTelemetryRequest(Request, key=72, versions="0", flexible="0+"):
    client_instance_id: Uuid = field("0+")
    subscription_id: Int32 = field("0+")
    terminating: Bool = field("0+")
    compression_type: Int8 = field("0+")
    metrics: Bytes = field("0+")


class PushTelemetryResponse(Response, key=72, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
