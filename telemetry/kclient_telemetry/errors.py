"""Kafka's error codes of the two telemetry APIs, and the exceptions of this package."""

from enum import IntEnum


class ErrorCode(IntEnum):
    """Kafka's `Errors` as far as client telemetry answers with them or is configured through them."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNSUPPORTED_VERSION = 35
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_COMPRESSION_TYPE = 76
    INVALID_RECORD = 87
    THROTTLING_QUOTA_EXCEEDED = 89
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118


_NAMES = {int(code): code.name for code in ErrorCode}


def error_name(code: int) -> str:
    """`code` as Kafka names it, or its number when this package does not know it."""
    return _NAMES.get(code, f"error {code}")


class TelemetryError(Exception):
    """Root of the errors raised by this package.

    Attributes:
        error_code: the code a broker answers with when this error ends a request.
    """

    error_code = ErrorCode.UNKNOWN_SERVER_ERROR


class MissingExtraError(ImportError):
    """A library that is an extra is not installed; the message names the `pip install` that brings it."""


class InvalidRequestError(TelemetryError, ValueError):
    """A request or configuration that Kafka refuses with INVALID_REQUEST."""

    error_code = ErrorCode.INVALID_REQUEST


class InvalidConfigurationError(TelemetryError, ValueError):
    """A client-metrics configuration that Kafka refuses with INVALID_CONFIG."""

    error_code = ErrorCode.INVALID_CONFIG


class InvalidPayloadError(TelemetryError, ValueError):
    """Pushed metrics that cannot be decompressed or are no OTLP metrics."""

    error_code = ErrorCode.INVALID_RECORD


class PayloadTooLargeError(InvalidPayloadError):
    """Pushed metrics that inflate to more than is allowed; INVALID_RECORD on the wire, as Kafka 4.3.1 answers."""


class UnsupportedCompressionTypeError(TelemetryError, ValueError):
    """A compression type that is none of Kafka's five."""

    error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class TransportError(TelemetryError):
    """A request that got no usable answer: not connected, disconnected, timed out, refused.

    Attributes:
        retriable: False when trying again soon is pointless (authentication refused, API not supported).
    """

    def __init__(self, message: str, *, retriable: bool = True) -> None:
        super().__init__(message)
        self.retriable = retriable
