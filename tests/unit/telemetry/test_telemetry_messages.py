"""Kafka's UUID text form and the names of error codes."""

from uuid import UUID

import pytest
from kclient_telemetry.errors import ErrorCode, InvalidRequestError, PayloadTooLargeError, TransportError, error_name
from kclient_telemetry.messages import (
    RESERVED_UUIDS,
    ZERO_UUID,
    GetTelemetrySubscriptionsRequest,
    uuid_from_text,
    uuid_text,
)

# Captured from Kafka 4.1.0.
GOLDEN = [
    ((0x0123456789ABCDEF << 64) | 0xFEDCBA9876543210, "ASNFZ4mrze_-3LqYdlQyEA"),
    (int("123e4567e89b42d3a456426614174000", 16), "Ej5FZ-ibQtOkVkJmFBdAAA"),
    ((1 << 64) | 2, "AAAAAAAAAAEAAAAAAAAAAg"),
]


@pytest.mark.parametrize(("number", "text"), GOLDEN)
def test_uuid_text_is_kafkas(number, text):
    assert uuid_text(UUID(int=number)) == text
    assert uuid_from_text(text) == UUID(int=number)


@pytest.mark.parametrize("text", ["", "abc", "ASNFZ4mrze_-3LqYdlQyE!", "ASNFZ4mrze_-3LqYdlQyEAAAAA"])
def test_what_is_no_uuid_is_refused(text):
    with pytest.raises(ValueError, match="is not a Kafka UUID"):
        uuid_from_text(text)


def test_the_first_request_asks_for_an_id():
    assert GetTelemetrySubscriptionsRequest().client_instance_id == ZERO_UUID
    assert UUID(int=1) in RESERVED_UUIDS


def test_errors_know_their_code():
    assert error_name(ErrorCode.TELEMETRY_TOO_LARGE) == "TELEMETRY_TOO_LARGE"
    assert error_name(7777) == "error 7777"
    assert InvalidRequestError("x").error_code == 42
    assert PayloadTooLargeError("x").error_code == 87
    assert TransportError("x").retriable
