"""Broker-side metrics by Kafka's names, and the same for a page of Prometheus."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from kclient_telemetry.receiver.exposition import Family, label_name, prometheus_name

from kclient_quota.broker.request.node import Node
from kclient_quota.broker.telemetry_service import ClientTelemetryService

BrokerMetrics = dict[tuple[int, str, str, str], float]
"""By (broker id, group, name, "tag=value,...")."""


def broker_metrics(nodes: Iterable[Node]) -> BrokerMetrics:
    """What Kafka's brokers say of quotas (Produce, Fetch, Request, ControllerMutation), sockets and client metrics."""
    found: BrokerMetrics = {}
    for node in nodes:
        broker_id = node.info.id
        now_ms = node.scheduler.now_ms()
        node.enforcement.unthrottle(now_ms)
        enforcement = node.enforcement
        for metric in chain(enforcement.managers.metrics(now_ms), enforcement.connections.metrics(now_ms)):
            tags = ",".join(f"{key}={value}" for key, value in metric.tags.items())
            found[broker_id, metric.group, metric.name, tags] = metric.value
        for name, value in _socket_metrics(node):
            found[broker_id, "socket-server-metrics", name, ""] = value
        for metric_name, value in node.services.get(ClientTelemetryService).metrics(broker_id, now_ms).items():
            tags = ",".join(f"{key}={tag}" for key, tag in metric_name.tags)
            found[broker_id, metric_name.group, metric_name.name, tags] = value
    return found


def _socket_metrics(node: Node) -> Iterator[tuple[str, float]]:
    traffic = node.traffic
    yield "request-total", traffic.requests
    yield "incoming-byte-total", traffic.request_bytes
    yield "outgoing-byte-total", traffic.response_bytes
    yield "connection-count", traffic.connections
    yield "connection-creation-total", traffic.connections_made


def families_of(metrics: Mapping[tuple[int, str, str, str], float]) -> list[Family]:
    """The metrics for a page of Prometheus, named as its JMX exporter does."""
    found: dict[str, Family] = {}
    for (broker_id, group, name, tags), value in sorted(metrics.items()):
        series = prometheus_name(f"kafka_server_{group}_{name}").lower()
        kind = "counter" if series.endswith("_total") else "gauge"
        labels = {"broker": str(broker_id)}
        labels |= {label_name(key): text for key, _, text in (tag.partition("=") for tag in tags.split(",") if tag)}
        words = f"Kafka's {name} of {group}"
        family = found.setdefault(series, Family(series.removesuffix("_total"), kind, help=words))
        family.samples.append(("_total" if kind == "counter" else "", labels, value))
    return list(found.values())
