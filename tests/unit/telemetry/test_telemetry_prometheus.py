"""Prometheus' text format, checked line by line against its grammar."""

import math
import re
import sys
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest
from kclient_telemetry.errors import MissingExtraError
from kclient_telemetry.metric import HistogramValue, MetricKind, Point, PointKey, PushPoint
from kclient_telemetry.otlp import encode
from kclient_telemetry.receiver.endpoint import PrometheusEndpoint
from kclient_telemetry.receiver.exposition import page, prometheus_name
from kclient_telemetry.receiver.fanout import FanOut
from kclient_telemetry.receiver.plugin import AuthorizableRequestContext, ClientTelemetryContext, ClientTelemetryPayload
from kclient_telemetry.receiver.prometheus import MAX_BYTES, PrometheusStore
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

PAYLOADS = Path(__file__).parent / "payloads"
NOW = 1_800_000_000_000
LINE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*",?)*\})? (\S+)')


def push(store, data, *, client=1, at_ms=NOW, client_id="orders", address=None):
    sender = AuthorizableRequestContext(client_id=client_id, client_address=address)
    context = ClientTelemetryContext(30_000, sender)
    payload = ClientTelemetryPayload(UUID(int=client << 64), False, data)
    FanOut([store], unix_ms=lambda: at_ms).export_metrics(context, payload)


def payload_of(*points, resource=()):
    return encode([PushPoint(point, point.value, 1, 2, delta) for point, delta in points], resource, 0).payload


def gauge(name, value, attributes=()):
    return Point(PointKey(name, attributes), MetricKind.GAUGE, value), False


def total(name, value, *, delta=True):
    return Point(PointKey(name), MetricKind.SUM, value), delta


def text_of(store, now=NOW):
    return page(store.families(now))[0].decode()


def samples(store, now=NOW):
    """`{name: {labels text: value}}` of what is rendered; every line must be well formed."""
    found = {}
    for line in text_of(store, now).splitlines():
        if line.startswith("#"):
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
    text = text_of(store)
    assert "# TYPE a_avg gauge" in text
    assert "# TYPE b_total counter" in text
    assert "# TYPE c_total counter" in text
    assert prometheus_name("") == "_"


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
    lines = [line for line in text_of(store).splitlines() if line.startswith("h_")]
    who = 'client_instance_id="AAAAAAAAAAEAAAAAAAAAAA"'
    assert lines == [
        f'h_bucket{{{who},le="1.0"}} 2.0',
        f'h_bucket{{{who},le="5.0"}} 6.0',
        f'h_bucket{{{who},le="+Inf"}} 12.0',
        f"h_sum{{{who}}} 40.0",
        f"h_count{{{who}}} 12.0",
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
    assert re.search(rf"^g\{{.*\}} {re.escape(text)}$", text_of(store), re.MULTILINE)


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


def test_series_of_silent_clients_go_in_time_though_the_clock_is_put_back():
    store = PrometheusStore()
    push(store, payload_of(total("d", 5)), at_ms=NOW + 36_000_000)
    assert only(store, "d_total", NOW) == 5
    assert only(store, "d_total", NOW + 89_999) == 5
    assert "d_total" not in samples(store, NOW + 90_000)


def test_counters_go_on_of_who_is_said_to_push_in_time_to_come():
    store = PrometheusStore()
    for after_ms in range(0, 300_000, 30_000):
        push(store, payload_of(total("d", 5)), at_ms=NOW + 36_000_000 + after_ms)
        assert only(store, "d_total", NOW + after_ms) == 5 + after_ms // 6_000


def test_the_number_of_series_is_bounded_and_drops_are_counted():
    store = PrometheusStore(max_series=2)
    push(store, payload_of(gauge("a", 1), gauge("b", 1), gauge("c", 1)))
    push(store, payload_of(gauge("a", 2), gauge("c", 1)))
    found = samples(store)
    assert {name for name in found if not name.startswith("kafka_client_telemetry_")} == {"a", "b"}
    assert only(store, "a") == 2
    assert only(store, "kafka_client_telemetry_dropped_points_total") == 2
    assert only(store, "kafka_client_telemetry_pushes_total") == 2


def test_one_name_of_two_kinds_is_kept_for_both():
    store = PrometheusStore()
    push(store, payload_of(gauge("x_total", 1)), address="10.0.0.1")
    push(store, payload_of(total("x", 9)), client=2, address="10.0.0.2")
    assert (only(store, "x_total"), only(store, "x_counter_total")) == (1, 9)
    assert store.dropped_points == 0
    # the name is of those who are more: who came first with a wrong kind does not keep it from them
    push(store, payload_of(total("x", 7)), client=3, address="10.0.0.3")
    assert sorted(samples(store)["x_total"].values()) == [7, 9]
    assert only(store, "x_total_gauge") == 1
    assert only(store, "kafka_client_telemetry_renamed_metrics") == 1


def test_who_takes_most_room_loses_it_to_others(caplog):
    store = PrometheusStore(max_series=100)
    push(store, payload_of(*(gauge(f"n{n}", 1) for n in range(500))), client=1, address="10.0.0.1")
    assert store.dropped == {"no_room": 400}
    assert caplog.text.count("from User:ANONYMOUS at 10.0.0.1 are dropped: no_room") == 1
    for client in range(2, 12):
        push(store, payload_of(gauge("g", client), gauge("h", 1)), client=client, address=f"10.0.0.{client}")
    assert sorted(samples(store)["g"].values()) == list(range(2, 12))
    assert store.evicted_series == 20
    assert store.dropped == {"no_room": 400}


def of_family(body, name):
    (family,) = (family for family in parse_openmetrics(body) if family.name == name)
    return family.samples


def test_what_is_dropped_is_said_once_a_minute_for_each_reason(caplog):
    store = PrometheusStore(max_series=1)
    for second in range(150):
        payload = payload_of(gauge("a", 1), gauge("b", 1), gauge("kafka.client.telemetry.x", 1))
        push(store, payload, client=second + 1, at_ms=NOW + second * 1_000)
    assert caplog.text.count("are dropped: no_room") == 3
    assert caplog.text.count("are dropped: reserved_name") == 3
    assert store.dropped["reserved_name"] == 150


def test_a_bound_is_written_as_openmetrics_has_it():
    store = PrometheusStore()
    push(store, payload_of((Point(PointKey("h"), MetricKind.HISTOGRAM, HistogramValue((1e6,), (1, 2), 3.0)), False)))
    body = page(store.families(NOW), "application/openmetrics-text")[0].decode()
    assert [sample.labels["le"] for sample in of_family(body, "h") if "le" in sample.labels] == ["1e+06", "+Inf"]


def test_a_histogram_of_what_may_be_negative_has_no_sum():
    store = PrometheusStore()
    push(store, payload_of((Point(PointKey("h"), MetricKind.HISTOGRAM, HistogramValue((-1.0,), (1, 2), -3.0)), False)))
    body = page(store.families(NOW), "application/openmetrics-text")[0].decode()
    assert [(sample.name, sample.value) for sample in of_family(body, "h")] == [("h_bucket", 1), ("h_bucket", 3)]


def test_memory_is_bounded_in_bytes():
    store = PrometheusStore(max_bytes=100_000)
    for client in range(200):
        push(store, payload_of(gauge("g", 1, (("topic", "t" * 3_000),))), client=client + 1)
    assert len(samples(store)["g"]) in range(20, 40)
    grown = HistogramValue(tuple(map(float, range(400))), (1,) * 401, 1.0)
    small = HistogramValue((1.0,), (1, 1), 1.0)
    store = PrometheusStore(max_bytes=50_000)
    for value in (small, grown):
        for number in range(10):
            point = Point(PointKey(f"h{number}"), MetricKind.HISTOGRAM, value), True
            push(store, payload_of(point))
    assert len(samples(store)) <= 10 * 3 + 6
    assert only(store, "kafka_client_telemetry_series_bytes") <= 50_000
    assert MAX_BYTES <= 1 << 27


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'kclient-quota\[prometheus\]'"):
        PrometheusEndpoint()


def test_the_endpoint():
    endpoint = PrometheusEndpoint(unix_ms=lambda: NOW)
    try:
        push(endpoint, payload_of(gauge("g", 1)))
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics?x=1", timeout=10) as response:
            assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4; charset=utf-8")
            assert "\ng{" in response.read().decode()
        asked = urllib.request.Request(
            f"http://127.0.0.1:{endpoint.port}/metrics", headers={"Accept": "application/openmetrics-text"}
        )
        with urllib.request.urlopen(asked, timeout=10) as response:
            assert response.headers["Content-Type"].startswith("application/openmetrics-text")
            assert response.read().endswith(b"# EOF\n")
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/", timeout=10)
        refused.value.close()
    finally:
        endpoint.close(5_000)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics", timeout=10)


def test_who_takes_most_is_not_looked_for_at_every_point_that_is_refused():
    """With thousands of clients on a full page each push took seven times as long as where there is room."""

    class Looked(Counter):
        times = 0

        def __iter__(self):
            self.times += 1
            return super().__iter__()

    store = PrometheusStore(max_series=100)
    looked = store._bytes_of = Looked()
    many = payload_of(*(gauge(f"m{number}", 1.0) for number in range(50)))
    for client in range(2):
        push(store, many, client=client, address=f"10.0.0.{client}")
    for client in range(2, 4):  # one takes an equal part of both, the next finds nobody who has much more
        push(store, many, client=client, address=f"10.0.0.{client}")
    dropped, looked.times = store.dropped_points, 0
    for client in range(4):
        push(store, many, client=client, address=f"10.0.0.{client}")
    assert store.dropped_points > dropped
    assert looked.times <= 2
