"""Broker-side metrics by Kafka's names, and the same as a Prometheus page."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from kclient_quota.broker.request.node import Node
from kclient_quota.broker.telemetry_service import ClientTelemetryService

BrokerMetrics = dict[tuple[int, str, str, str], float]
"""By (broker id, group, name, "tag=value,...")."""

_ILLEGAL = re.compile(r"[^a-zA-Z0-9_]")


def broker_metrics(nodes: Iterable[Node]) -> BrokerMetrics:
    """What Kafka's brokers say of quotas (Produce, Fetch, Request, ControllerMutation), sockets and client metrics."""
    found: BrokerMetrics = {}
    for node in nodes:
        broker_id = node.info.id
        now_ms = node.scheduler.now_ms()
        node.enforcement.unthrottle(now_ms)
        for metric in node.enforcement.managers.metrics(now_ms):
            tags = ",".join(f"{key}={value}" for key, value in metric.tags.items())
            found[broker_id, metric.group, metric.name, tags] = metric.value
        for name, value in _socket_metrics(node):
            found[broker_id, "socket-server-metrics", name, ""] = value
        for metric_name, value in node.services.get(ClientTelemetryService).metrics(broker_id, now_ms).items():
            tags = ",".join(f"{key}={tag}" for key, tag in metric_name.tags.items())
            found[broker_id, metric_name.group, metric_name.name, tags] = value
    return found


def _socket_metrics(node: Node) -> Iterator[tuple[str, float]]:
    traffic = node.traffic
    yield "request-total", traffic.requests
    yield "incoming-byte-total", traffic.request_bytes
    yield "outgoing-byte-total", traffic.response_bytes
    yield "connection-count", traffic.connections
    yield "connection-creation-total", traffic.connections_made


def prometheus_page(metrics: Mapping[tuple[int, str, str, str], float]) -> str:
    """The metrics in Prometheus' text format, version 0.0.4, named as its JMX exporter does."""
    lines: dict[str, list[str]] = {}
    for (broker_id, group, name, tags), value in sorted(metrics.items()):
        family = _ILLEGAL.sub("_", f"kafka_server_{group}_{name}").lower()
        labels = [("broker", str(broker_id)), *(tag.split("=", 1) for tag in tags.split(",") if tag)]
        shown = ",".join(f'{_ILLEGAL.sub("_", key)}="{_escape(text)}"' for key, text in labels)
        lines.setdefault(family, []).append(f"{family}{{{shown}}} {_number(value)}")
    page = []
    for family, rows in lines.items():
        kind = "counter" if family.endswith("_total") else "gauge"
        page += [f"# TYPE {family} {kind}", *rows]
    return "\n".join(page) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(float(value))
