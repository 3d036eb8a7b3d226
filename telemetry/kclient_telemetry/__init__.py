"""Client telemetry of Kafka (KIP-714), both ends: a client's reporter, a broker's receiver.

Names are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kclient_telemetry.client.collector import Collector
    from kclient_telemetry.client.otel import KafkaMetricReader
    from kclient_telemetry.client.reporter import TelemetryReporter
    from kclient_telemetry.client.runner import TelemetryRunner
    from kclient_telemetry.errors import MissingExtraError, TelemetryError
    from kclient_telemetry.messages import KafkaUuid
    from kclient_telemetry.metric import MetricKind, MetricName
    from kclient_telemetry.receiver.endpoint import PrometheusEndpoint
    from kclient_telemetry.receiver.fanout import FanOut, ReceivedPush, TelemetrySink
    from kclient_telemetry.receiver.files import JsonLinesWriter, ParquetWriter
    from kclient_telemetry.receiver.manager import ClientMetricsManager
    from kclient_telemetry.receiver.otlp_export import OtlpExporter
    from kclient_telemetry.receiver.otlp_http import HttpSender
    from kclient_telemetry.receiver.otlp_settings import OtlpSettings, settings_of
    from kclient_telemetry.receiver.plugin import ClientTelemetryExporter, ClientTelemetryExporterProvider
    from kclient_telemetry.receiver.prometheus import PrometheusStore
    from kclient_telemetry.receiver.queued import QueuedSink

_HOMES = {
    "ClientMetricsManager": "receiver.manager",
    "ClientTelemetryExporter": "receiver.plugin",
    "ClientTelemetryExporterProvider": "receiver.plugin",
    "Collector": "client.collector",
    "FanOut": "receiver.fanout",
    "HttpSender": "receiver.otlp_http",
    "JsonLinesWriter": "receiver.files",
    "KafkaMetricReader": "client.otel",
    "KafkaUuid": "messages",
    "MetricKind": "metric",
    "MetricName": "metric",
    "MissingExtraError": "errors",
    "OtlpExporter": "receiver.otlp_export",
    "OtlpSettings": "receiver.otlp_settings",
    "ParquetWriter": "receiver.files",
    "PrometheusEndpoint": "receiver.endpoint",
    "PrometheusStore": "receiver.prometheus",
    "QueuedSink": "receiver.queued",
    "ReceivedPush": "receiver.fanout",
    "TelemetryError": "errors",
    "TelemetryReporter": "client.reporter",
    "TelemetryRunner": "client.runner",
    "TelemetrySink": "receiver.fanout",
    "settings_of": "receiver.otlp_settings",
}

__all__ = [
    "ClientMetricsManager",
    "ClientTelemetryExporter",
    "ClientTelemetryExporterProvider",
    "Collector",
    "FanOut",
    "HttpSender",
    "JsonLinesWriter",
    "KafkaMetricReader",
    "KafkaUuid",
    "MetricKind",
    "MetricName",
    "MissingExtraError",
    "OtlpExporter",
    "OtlpSettings",
    "ParquetWriter",
    "PrometheusEndpoint",
    "PrometheusStore",
    "QueuedSink",
    "ReceivedPush",
    "TelemetryError",
    "TelemetryReporter",
    "TelemetryRunner",
    "TelemetrySink",
    "settings_of",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
