"""Prometheus' text format, checked line by line against its grammar."""

import math
import re
import urllib.error
import urllib.request
from pathlib import Path
from uuid import UUID

import pytest
from kclient_telemetry.metric import HistogramValue, MetricKind, Point, PointKey, PushPoint
from kclient_telemetry.otlp import encode
from kclient_telemetry.receiver.fanout import FanOut
from kclient_telemetry.receiver.plugin import AuthorizableRequestContext, ClientTelemetryContext, ClientTelemetryPayload
from kclient_telemetry.receiver.prometheus import PrometheusEndpoint, PrometheusStore, prometheus_name

PAYLOADS = Path(__file__).parent / "payloads"
NOW = 1_800_000_000_000
LINE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*",?)*\})? (\S+)')


def push(store, data, *, client=1, at_ms=NOW, client_id="orders"):
    context = ClientTelemetryContext(30_000, AuthorizableRequestContext(client_id=client_id))
    payload = ClientTelemetryPayload(UUID(int=client << 64), False, data)
    FanOut([store], unix_ms=lambda: at_ms).export_metrics(context, payload)


def payload_of(*points, resource=()):
    return encode([PushPoint(point, point.value, 1, 2, delta) for point, delta in points], resource, 0).payload


def gauge(name, value, attributes=()):
    return Point(PointKey(name, attributes), MetricKind.GAUGE, value), False


def total(name, value, *, delta=True):
    return Point(PointKey(name), MetricKind.SUM, value), delta


def samples(store, now=NOW):
    """`{name: {labels text: value}}` of what is rendered; every line must be well formed."""
    found = {}
    for line in store.render(now).splitlines():
        if line.startswith("# TYPE"):
            continue
        match = LINE.fullmatch(line)
        assert match, line
        found.setdefault(match[1], {})[match[2] or ""] = float(match[3])
    return found


def only(store, name, now=NOW):
    (value,) = samples(store, now)[name].values()
    return value


@pytest.mark.parametrize("name", ["java-producer-0", "java-consumer-0", "librdkafka-producer-0"])
def test_real_pushes_are_well_formed(name):
    store = PrometheusStore()
    push(store, (PAYLOADS / f"{name}.bin").read_bytes())
    found = samples(store)
    kind = "consumer" if "consumer" in name else "producer"
    assert f"org_apache_kafka_{kind}_connection_creation_total" in found
    assert not any(series.endswith("_total_total") for series in found)
    (labels,) = found[f"org_apache_kafka_{kind}_connection_creation_total"]
    assert 'client_id="orders"' in labels
    assert 'client_instance_id="AAAAAAAAAAEAAAAAAAAAAA"' in labels
    assert any("node_id=" in labels for series in found.values() for labels in series)


def test_names():
    assert prometheus_name("org.apache-kafka.x$") == "org_apache_kafka_x_"
    assert prometheus_name("9lives") == "_9lives"


def test_types_and_suffixes():
    store = PrometheusStore()
    push(store, payload_of(gauge("a.avg", 1.5), total("b.total", 2), total("c", 3)))
    text = store.render(NOW)
    assert "# TYPE a_avg gauge" in text
    assert "# TYPE b_total counter" in text
    assert "# TYPE c_total counter" in text


def test_deltas_are_added_up_and_cumulative_values_are_taken():
    store = PrometheusStore()
    for value in (2, 3):
        push(store, payload_of(total("d", value), total("c", value, delta=False), gauge("g", value)))
    assert (only(store, "d_total"), only(store, "c_total"), only(store, "g")) == (5, 3, 3)


def test_clients_do_not_overwrite_each_other():
    store = PrometheusStore(labels=())
    push(store, payload_of(gauge("g", 1)), client=1)
    push(store, payload_of(gauge("g", 2)), client=2)
    assert samples(store)["g"] == {
        '{client_instance_id="AAAAAAAAAAEAAAAAAAAAAA"}': 1,
        '{client_instance_id="AAAAAAAAAAIAAAAAAAAAAA"}': 2,
    }


def test_histograms_are_cumulative_by_bucket():
    store = PrometheusStore(labels=())
    value = HistogramValue((1.0, 5.0), (1, 2, 3), 20.0)
    point = Point(PointKey("h"), MetricKind.HISTOGRAM, value)
    for _ in range(2):
        push(store, payload_of((point, True)))
    lines = [line for line in store.render(NOW).splitlines() if line.startswith("h_")]
    who = 'client_instance_id="AAAAAAAAAAEAAAAAAAAAAA"'
    assert lines == [
        f'h_bucket{{{who},le="1.0"}} 2',
        f'h_bucket{{{who},le="5.0"}} 6',
        f'h_bucket{{{who},le="+Inf"}} 12',
        f"h_sum{{{who}}} 40.0",
        f"h_count{{{who}}} 12",
    ]
    push(store, payload_of((point, False)))
    assert only(store, "h_count") == 6
    empty = HistogramValue((), (4,), 2.0)
    push(store, payload_of((Point(PointKey("e"), MetricKind.HISTOGRAM, empty), False)))
    assert only(store, "e_count") == 4


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "NaN"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (2.5, "2.5"), (3, "3.0")]
)
def test_numbers(value, text):
    store = PrometheusStore(labels=())
    push(store, payload_of(gauge("g", value)))
    assert re.search(rf"^g\{{.*\}} {re.escape(text)}$", store.render(NOW), re.MULTILINE)


def test_labels_are_escaped_and_what_the_receiver_knows_wins():
    store = PrometheusStore()
    nasty = (("client_id", "forged"), ("topic.name", 'a"b\\c\nd'))
    push(store, payload_of(gauge("g", 1, nasty), resource=(("group_id", "g"),)))
    ((labels, _),) = samples(store)["g"].items()
    assert r'topic_name="a\"b\\c\nd"' in labels
    assert 'client_id="orders"' in labels
    assert 'group_id="g"' in labels


def test_series_of_silent_clients_go_and_their_counters_begin_anew():
    store = PrometheusStore()
    push(store, payload_of(total("d", 5)))
    assert only(store, "d_total", NOW + 89_999) == 5
    push(store, payload_of(total("d", 2)), at_ms=NOW + 90_000)
    assert only(store, "d_total", NOW + 90_000) == 2
    found = samples(store, NOW + 180_000)
    assert "d_total" not in found
    assert found["kafka_client_telemetry_series"] == {"": 0}


def test_the_number_of_series_is_bounded_and_drops_are_counted():
    store = PrometheusStore(max_series=2)
    push(store, payload_of(gauge("a", 1), gauge("b", 1), gauge("c", 1)))
    push(store, payload_of(gauge("a", 2), gauge("c", 1)))
    found = samples(store)
    assert set(found) - {"a", "b"} == {
        "kafka_client_telemetry_pushes_total",
        "kafka_client_telemetry_dropped_points_total",
        "kafka_client_telemetry_series",
    }
    assert only(store, "a") == 2
    assert only(store, "kafka_client_telemetry_dropped_points_total") == 2
    assert only(store, "kafka_client_telemetry_pushes_total") == 2


def test_one_name_of_two_kinds_keeps_the_first():
    store = PrometheusStore()
    push(store, payload_of(gauge("x_total", 1)))
    push(store, payload_of(total("x", 9)), client=2)
    assert only(store, "x_total") == 1
    assert store.dropped_points == 1


def test_the_endpoint():
    endpoint = PrometheusEndpoint(unix_ms=lambda: NOW)
    try:
        push(endpoint, payload_of(gauge("g", 1)))
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics?x=1", timeout=10) as response:
            assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert "\ng{" in response.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/", timeout=10)
        refused.value.close()
    finally:
        endpoint.close(5_000)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics", timeout=10)
