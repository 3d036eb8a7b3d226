"""What a telemetry reporter tells its adapter to do."""

from dataclasses import dataclass

from kclient_telemetry.messages import GetTelemetrySubscriptionsRequest, PushTelemetryRequest


@dataclass(frozen=True, slots=True)
class SendGet:
    """Send `request`; tell the reporter by `request_id` what came of it before `deadline_ms`."""

    request_id: int
    request: GetTelemetrySubscriptionsRequest
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class SendPush:
    """Send `request`; tell the reporter by `request_id` what came of it before `deadline_ms`."""

    request_id: int
    request: PushTelemetryRequest
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing to do before `at_ms`, unless an answer arrives or the client closes."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Done:
    """The reporter has terminated; nothing will ever be sent again."""


Action = SendGet | SendPush | WaitUntil | Done
