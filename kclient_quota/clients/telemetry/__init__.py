"""KIP-714 of our own clients: the reporter, its connection, its required metrics, and a topic as a destination."""

from kclient_quota.clients.telemetry.reporter import (
    ENABLE_KEY,
    AIOTelemetryMethods,
    ClientTelemetry,
    TelemetryMethods,
    new_telemetry,
)

__all__ = ["ENABLE_KEY", "AIOTelemetryMethods", "ClientTelemetry", "TelemetryMethods", "new_telemetry"]
