"""What a broker asked this client to push."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from kclient_telemetry.messages import ZERO_UUID, GetTelemetrySubscriptionsResponse

DEFAULT_PUSH_INTERVAL_MS = 300_000
ALL_METRICS = ("*",)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which metrics are asked for: everything, or those whose name starts with one of `prefixes`."""

    prefixes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.prefixes)

    def matches(self, name: str) -> bool:
        """Whether the metric called `name` is asked for."""
        return name.startswith(self.prefixes)


EVERYTHING = Selection(("",))


def selection_of(requested_metrics: Sequence[str] | None) -> Selection:
    """Kafka's getSelectorFromRequestedMetrics: exactly `*` is everything; among others `*` is a prefix like any."""
    requested = tuple(requested_metrics or ())
    return EVERYTHING if requested == ALL_METRICS else Selection(requested)


@dataclass(frozen=True, slots=True)
class ClientSubscription:
    """A subscription as the reporter follows it; `telemetry_max_bytes` of 0 means that the broker set no bound."""

    client_instance_id: UUID
    subscription_id: int
    push_interval_ms: int
    accepted_compression_types: tuple[int, ...]
    telemetry_max_bytes: int
    delta_temporality: bool
    selection: Selection


def subscription_of(response: GetTelemetrySubscriptionsResponse, known_id: UUID | None) -> ClientSubscription | None:
    """The subscription in a successful response; None when it names no client instance id and none is known.

    An interval that is not positive counts as Kafka's default of five minutes.
    """
    client_instance_id = response.client_instance_id
    if client_instance_id == ZERO_UUID:
        # KIP-714's text: the broker repeats no id that the client has sent. Kafka's broker always does.
        if known_id is None:
            return None
        client_instance_id = known_id
    interval_ms = response.push_interval_ms
    return ClientSubscription(
        client_instance_id,
        response.subscription_id,
        interval_ms if interval_ms > 0 else DEFAULT_PUSH_INTERVAL_MS,
        response.accepted_compression_types,
        max(response.telemetry_max_bytes, 0),
        response.delta_temporality,
        selection_of(response.requested_metrics),
    )
