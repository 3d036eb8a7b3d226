"""GetTelemetrySubscriptions (API 71) and PushTelemetry (API 72), version 0, as plain values.

Source: KIP-714 and Kafka's GetTelemetrySubscriptions*.json and PushTelemetry*.json.
"""

import base64
import binascii
from dataclasses import dataclass
from uuid import UUID

from kclient_telemetry.errors import ErrorCode

ZERO_UUID = UUID(int=0)
RESERVED_UUIDS = frozenset({ZERO_UUID, UUID(int=1)})


@dataclass(frozen=True, slots=True)
class GetTelemetrySubscriptionsRequest:
    """What the broker is asked first; `ZERO_UUID` asks it for an id."""

    client_instance_id: UUID = ZERO_UUID


@dataclass(frozen=True, slots=True)
class GetTelemetrySubscriptionsResponse:
    """What a client shall push, how often and how.

    Attributes:
        accepted_compression_types: Kafka's compression ids, the broker's favourite first.
        push_interval_ms: between two pushes.
        telemetry_max_bytes: bound of a push; 0 when the broker did not say.
        delta_temporality: True: sums as deltas to the last push; False: since their start.
        requested_metrics: name prefixes; empty: nothing is asked for; exactly `*`: everything.
    """

    throttle_time_ms: int = 0
    error_code: int = ErrorCode.NONE
    client_instance_id: UUID = ZERO_UUID
    subscription_id: int = 0
    accepted_compression_types: tuple[int, ...] = ()
    push_interval_ms: int = 0
    telemetry_max_bytes: int = 0
    delta_temporality: bool = False
    requested_metrics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PushTelemetryRequest:
    """One push; `metrics` is an OTLP MetricsData, compressed by Kafka's `compression_type` id."""

    client_instance_id: UUID
    subscription_id: int
    terminating: bool = False
    compression_type: int = 0
    metrics: bytes | None = b""


@dataclass(frozen=True, slots=True)
class PushTelemetryResponse:
    """The broker's answer to a push."""

    throttle_time_ms: int = 0
    error_code: int = ErrorCode.NONE


TelemetryRequest = GetTelemetrySubscriptionsRequest | PushTelemetryRequest
TelemetryResponse = GetTelemetrySubscriptionsResponse | PushTelemetryResponse


def uuid_text(value: UUID) -> str:
    """`value` as Kafka writes it: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


class KafkaUuid(UUID):
    """A UUID that prints as Kafka's does, so that it can be looked up in what brokers and collectors show."""

    def __str__(self) -> str:
        return uuid_text(self)


def uuid_from_text(text: str) -> UUID:
    """The inverse of `uuid_text`.

    Raises:
        ValueError: `text` is not 16 bytes of URL-safe base64.
    """
    try:
        return UUID(bytes=base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a Kafka UUID: expected 22 characters of URL-safe base64") from error
