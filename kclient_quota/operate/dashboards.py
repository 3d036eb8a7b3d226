"""A Grafana dashboard and Prometheus rules for the page of `kclient-quota receive`, made out of the definitions.

Names are those that the page gives to what clients push (KIP-714); `kafka_client_telemetry_quota_limit` is what the
cluster's quotas allow each of them.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from kclient_telemetry.naming import telemetry_name
from kclient_telemetry.receiver.exposition import prometheus_name

from kclient_quota.operate.limit_series import NAME as LIMIT
from kclient_quota.otel.definitions import CONSUMER, COUNTER, KAFKA, PRODUCER, Definition
from kclient_quota.quota.entity import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE

_UNITS: Final = {"ms": "ms", "By": "bytes", "By/s": "Bps", "s": "s", "1": "percentunit"}
_NOT_PUSHED: Final = ("batch-size", "records-per-request")
_OF_FETCHING: Final = ("fetch-", "request-", "records-lag")
_WHO: Final = "principal, client_id"
_CHOSEN: Final = 'client_id=~"$client_id"'
_WIDTH, _HEIGHT, _COLUMNS = 12, 8, 24


@dataclass(frozen=True, slots=True)
class Rule:
    """One recording rule, or one alert.

    Attributes:
        name: of the series or the alert.
        expr: PromQL.
        minutes: for how long an alert's condition must hold; None for a recording rule.
        summary: of an alert, one sentence.
    """

    name: str
    expr: str
    minutes: int | None = None
    summary: str = ""


def pushed() -> list[tuple[Definition, str, str]]:
    """What the page has of the definitions: definition, PRODUCER or CONSUMER, name of the series."""
    return [
        (each, client, series_name(each, client))
        for each in KAFKA
        if not each.kafka_name.startswith(_NOT_PUSHED) and each.kafka_name != "records-lag"
        for client in each.clients
    ]


def series_name(definition: Definition, client: str) -> str:
    """The series of a metric of producers or consumers."""
    is_fetching = client == CONSUMER and definition.kafka_name.startswith(_OF_FETCHING)
    group = "consumer-fetch-manager-metrics" if is_fetching else f"{client}-metrics"
    return _name(group, definition.kafka_name, is_counter=definition.kind == COUNTER)


def _name(group: str, kafka_name: str, *, is_counter: bool = False) -> str:
    name = prometheus_name(telemetry_name(group, kafka_name))
    return f"{name.removesuffix('_total')}_total" if is_counter else name


_BYTE_RATES: Final = {
    PRODUCER: (_name("producer-node-metrics", "outgoing-byte-rate"), PRODUCER_BYTE_RATE),
    CONSUMER: (_name("consumer-node-metrics", "incoming-byte-rate"), CONSUMER_BYTE_RATE),
}


def recording_rules() -> list[Rule]:
    """Bytes per second on the busiest broker of everybody who shares a quota, and that by the limit."""
    rules = []
    for client, (rate, key) in _BYTE_RATES.items():
        limit = f'{LIMIT}{{quota="{key}"}}'
        shared = f"{rate} * on ({_WHO}) group_left (shared_by) max by ({_WHO}, shared_by) ({limit} > bool 0)"
        busiest = f"max by (shared_by) (sum by (shared_by, node_id) ({shared}))"
        rules.append(Rule(f"shared_by:kafka_{client}_byte_rate:max", busiest))
        use = f"shared_by:kafka_{client}_byte_rate:max / max by (shared_by) ({limit} > 0)"
        rules.append(Rule(f"shared_by:kafka_{client}_quota_use:ratio", use))
    return rules


def alerts() -> list[Rule]:
    """What somebody should look at; thresholds are a beginning."""
    named = {(each.kafka_name, client): name for each, client, name in pushed()}
    found = []
    for client, kind in ((PRODUCER, "produce"), (CONSUMER, "fetch")):
        title = f"Kafka{client.title()}"
        throttle = named[f"{kind}-throttle-time-avg", client]
        waits = named["quota-wait-time-total", client]
        found += [
            Rule(
                f"{title}Throttled",
                f"max by ({_WHO}) ({throttle}) > 100",
                10,
                f"Brokers delay the answers to {client} {{{{ $labels.client_id }}}} by {{{{ $value }}}} ms on average.",
            ),
            Rule(
                f"{title}QuotaNearlyUsed",
                f"shared_by:kafka_{client}_quota_use:ratio > 0.9",
                15,
                f"The {client} quota of {{{{ $labels.shared_by }}}} is used to {{{{ $value | humanizePercentage }}}}.",
            ),
            Rule(
                f"{title}WaitsForQuota",
                f"sum by ({_WHO}) (rate({waits}[5m])) / 1000 > 0.5",
                10,
                f"Calls of {client} {{{{ $labels.client_id }}}} wait for the quota more than half of the time.",
            ),
        ]
    stalled = named["fetch-stalled-brokers", CONSUMER]
    dropped = "kafka_client_telemetry_dropped_points_total"
    return [
        *found,
        Rule(
            "KafkaConsumerFetchStalled",
            f"max by ({_WHO}) ({stalled}) > 0",
            5,
            "The quota of {{ $labels.client_id }} is smaller than a batch that it must fetch.",
        ),
        Rule(
            "KafkaClientTelemetryDropped",
            f"sum by (reason) (increase({dropped}[10m])) > 0",
            10,
            "Points of client telemetry are not on the page: {{ $labels.reason }}.",
        ),
    ]


def rules_text() -> str:
    """The file for Prometheus' `rule_files`."""
    lines = ["groups:"]
    for group, rules in (("kafka-client-quotas", recording_rules()), ("kafka-client-quota-alerts", alerts())):
        lines += [f"- name: {group}", "  rules:"]
        for rule in rules:
            kind = "record" if rule.minutes is None else "alert"
            lines += [f"  - {kind}: {rule.name}", f"    expr: {json.dumps(rule.expr)}"]
            if rule.minutes is not None:
                lines += [f"    for: {rule.minutes}m", "    labels:", "      severity: warning"]
                lines += ["    annotations:", f"      summary: {json.dumps(rule.summary)}"]
    return "\n".join(lines) + "\n"


def grafana_text() -> str:
    """The dashboard, as Grafana imports it."""
    shown: list[tuple[str, str, list[tuple[str, str]]]] = []
    for client, (rate, key) in _BYTE_RATES.items():
        usage = f"max by ({_WHO}) (sum by ({_WHO}, node_id) ({rate}{{{_CHOSEN}}}))"
        limit = f'max by ({_WHO}) ({LIMIT}{{quota="{key}",{_CHOSEN}}})'
        lines = [(usage, "{{client_id}}"), (limit, "limit of {{client_id}}")]
        shown.append((f"{client}: bytes per second on the busiest broker, and the limit", "By/s", lines))
        use = f"shared_by:kafka_{client}_quota_use:ratio"
        shown.append((f"{client}: part of the quota that is used", "1", [(use, "{{shared_by}}")]))
    for each, client, name in pushed():
        series, unit = f"{name}{{{_CHOSEN}}}", each.unit
        expr = f"sum by ({_WHO}) (rate({series}[$__rate_interval]))"
        line = (expr if each.kind == COUNTER else f"max by ({_WHO}) ({series})", "{{client_id}}")
        per_second = " a second" if each.kind == COUNTER else ""
        shown.append((f"{client}: {each.description}{per_second}", unit, [line]))
    dashboard = {
        "uid": "kclient-quota",
        "title": "Kafka clients and their quotas",
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [_datasource(), _client_id()]},
        "panels": [_panel(number, *what) for number, what in enumerate(shown)],
    }
    return json.dumps(dashboard, indent=2) + "\n"


_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _client_id() -> dict[str, Any]:
    return {
        "name": "client_id",
        "type": "query",
        "datasource": _SOURCE,
        "query": 'label_values({__name__=~"org_apache_kafka_.+_request_throttle_time_avg"}, client_id)',
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, title: str, unit: str, lines: list[tuple[str, str]]) -> dict[str, Any]:
    a_row = _COLUMNS // _WIDTH
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "gridPos": {"w": _WIDTH, "h": _HEIGHT, "x": number % a_row * _WIDTH, "y": number // a_row * _HEIGHT},
        "fieldConfig": {"defaults": {"unit": _UNITS.get(unit, "short"), "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            for at, (expr, legend) in enumerate(lines)
        ],
    }
