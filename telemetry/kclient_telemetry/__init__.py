"""Client telemetry of Kafka (KIP-714), both ends: a client's reporter, a broker's receiver.

Names are loaded when they are first used.
"""

import logging
import traceback
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kclient_telemetry.client.collector import Collector
    from kclient_telemetry.client.otel import KafkaMetricReader as KafkaMetricReader
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

# KafkaMetricReader, which needs OpenTelemetry's SDK, is not among them: what looks at all of them does without.
__all__ = [
    "ClientMetricsManager",
    "ClientTelemetryExporter",
    "ClientTelemetryExporterProvider",
    "Collector",
    "FanOut",
    "HttpSender",
    "JsonLinesWriter",
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


# A module of its own would be one more that each `import Producer` loads.
def logger_of(name: str) -> logging.Logger:
    """The logger of that name, which bears handlers and filters that raise.

    What they raise would come out of a client's `poll()`, or end the thread that follows the quota, pushes telemetry or
    is the embedded broker.
    """
    logger = logging.getLogger(name)

    def handle(record: logging.LogRecord) -> None:
        try:
            type(logger).handle(logger, record)  # looked for each time: others put their own there
        except Exception:  # noqa: BLE001 - whatever it is
            if logging.raiseExceptions:
                with suppress(Exception):  # the standard error is closed, too
                    traceback.print_exc()

    logger.handle = handle  # type: ignore[method-assign]
    return logger


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
