"""What a broker hands to those who want clients' metrics, in the terms of KIP-1217 (Kafka 4.2).

`ClientTelemetryExporter` is the plug-in; a broker asks a `ClientTelemetryExporterProvider` for it. Beyond Kafka's
interface the request context also knows the client's software, port and connection, and the broker it talks to.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable
from uuid import UUID

from kclient_telemetry.messages import uuid_text
from kclient_telemetry.otlp import CONTENT_TYPE


@dataclass(frozen=True, slots=True)
class AuthorizableRequestContext:
    """Who sent a request, and how it came.

    Attributes:
        connection_id: tells connections apart; a broker reports its end by this id.
        client_address: the client's host address as text.
        principal: as Kafka writes it, `User:alice`.
        client_software_name: from the client's ApiVersions request; None when it sent none.
        broker_id: who received the request.
        cluster_id: whose broker that is.
    """

    connection_id: str = ""
    client_id: str | None = None
    client_address: str | None = None
    client_port: int | None = None
    client_software_name: str | None = None
    client_software_version: str | None = None
    principal: str = "User:ANONYMOUS"
    listener_name: str = "PLAINTEXT"
    security_protocol: str = "PLAINTEXT"
    request_type: int = 72
    request_version: int = 0
    correlation_id: int = 0
    broker_id: int | None = None
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClientTelemetryContext:
    """What is known about a push beside its payload: who sent it and how often that client pushes."""

    push_interval_ms: int
    authorizable_request_context: AuthorizableRequestContext


@dataclass(frozen=True, slots=True)
class ClientTelemetryPayload:
    """A push: OTLP metrics, already decompressed."""

    client_instance_id: UUID
    is_terminating: bool
    data: bytes
    content_type: str = CONTENT_TYPE


@runtime_checkable
class ClientTelemetryExporter(Protocol):
    """Takes every push."""

    def export_metrics(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        """Take `payload`; quickly, because the client waits for its answer meanwhile.

        Whatever is raised refuses the push with INVALID_RECORD, after which Kafka's own client stops pushing for ever.
        """
        ...


@runtime_checkable
class ClientTelemetryExporterProvider(Protocol):
    """Something configured at a broker that brings an exporter."""

    def client_telemetry_exporter(self) -> ClientTelemetryExporter:
        """The exporter; asked for once."""
        ...


ENRICHMENT = (
    "client_instance_id",
    "client_id",
    "principal",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "broker_id",
    "cluster_id",
)

PUSH_INTERVAL_HEADER = "push_interval_ms"
"""How often a client pushes, where a push is a record: OTLP has no words for it."""
TERMINATING_HEADER = "terminating"
"""Of a client's last push."""


def enrichment_attributes(
    context: ClientTelemetryContext, payload: ClientTelemetryPayload, wanted: tuple[str, ...] = ENRICHMENT
) -> dict[str, str]:
    """What the receiver knows about the client of a push, as resource attributes; what is not known is left out.

    Args:
        context: of the push.
        payload: the push.
        wanted: names out of `ENRICHMENT`; leave out what is nobody's business (principal, client_source_address).
    """
    request = context.authorizable_request_context
    known: dict[str, object] = {
        "client_instance_id": uuid_text(payload.client_instance_id),
        "client_id": request.client_id,
        "principal": request.principal,
        "client_software_name": request.client_software_name,
        "client_software_version": request.client_software_version,
        "client_source_address": request.client_address,
        "broker_id": request.broker_id,
        "cluster_id": request.cluster_id,
    }
    return {name: str(known[name]) for name in wanted if known[name] is not None}
