"""Clients that push whatever they like: the others' data, the page, the files and the memory are unharmed."""

import json
import logging
import math
import tempfile
import tracemalloc
from pathlib import Path
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kclient_telemetry.metric import HistogramValue, MetricKind, Point, PointKey, PushPoint
from kclient_telemetry.otlp import encode
from kclient_telemetry.receiver.exposition import page
from kclient_telemetry.receiver.fanout import FanOut
from kclient_telemetry.receiver.files import JsonLinesWriter, ParquetWriter
from kclient_telemetry.receiver.plugin import AuthorizableRequestContext, ClientTelemetryContext, ClientTelemetryPayload
from kclient_telemetry.receiver.prometheus import PrometheusStore
from kclient_telemetry.receiver.rows import rows_of
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.property.examples import examples

NOW = 1_800_000_000_000
OPENMETRICS = "application/openmetrics-text; version=1.0.0"

_LIKE_OTHERS = "v.rate v v.total v_total v.count v.h v.h.bucket v_h_sum v.h.count v.h.created v.rate.gauge"
_LIKE_OURS = "v_rate_histogram kafka_client_telemetry_series kafka.client.telemetry.pushes __name__ le 9"


@pytest.fixture(autouse=True, scope="module")
def _no_log():
    """A store says once a minute what it drops; here every example has a new one."""
    logger = logging.getLogger("kclient_telemetry")
    before = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(before)


names = st.sampled_from(["", *_LIKE_OTHERS.split(), *_LIKE_OURS.split()]) | st.text(max_size=20)
keys = st.sampled_from(
    ["le", "quantile", "__name__", "client_id", "client_instance_id", "principal", "a.b", "a_b", "job", ""]
)
texts = st.text(max_size=20) | st.sampled_from(["x" * 5_000, "\n", '"', "\\", "\0", "\u2028"])
attributes = st.dictionaries(keys | st.text(max_size=8), texts, max_size=4).map(
    lambda pairs: [KeyValue(key=key, value=AnyValue(string_value=text)) for key, text in pairs.items()]
)
times = st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1])
doubles = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1.0])
numbers = st.builds(
    lambda attributes, time, value: NumberDataPoint(
        attributes=attributes, start_time_unix_nano=time, time_unix_nano=time, **value
    ),
    attributes,
    times,
    doubles.map(lambda value: {"as_double": value})
    | st.integers(-(2**63), 2**63 - 1).map(lambda value: {"as_int": value})
    | st.just({}),
)
histograms = st.builds(
    lambda attributes, time, total, count, bounds, counts: HistogramDataPoint(
        attributes=attributes, time_unix_nano=time, sum=total, count=count, explicit_bounds=bounds, bucket_counts=counts
    ),
    attributes,
    times,
    doubles,
    times,
    st.lists(doubles, max_size=4) | st.just([float(bound) for bound in range(600)]),
    st.lists(times, max_size=5),
)
temporality = st.integers(0, 2)
metrics = st.one_of(
    st.builds(
        lambda name, points: Metric(name=name, gauge=Gauge(data_points=points)), names, st.lists(numbers, max_size=3)
    ),
    st.builds(
        lambda name, points, kind, monotonic: Metric(
            name=name, sum=Sum(data_points=points, aggregation_temporality=kind, is_monotonic=monotonic)
        ),
        names,
        st.lists(numbers, max_size=3),
        temporality,
        st.booleans(),
    ),
    st.builds(
        lambda name, points, kind: Metric(
            name=name, histogram=Histogram(data_points=points, aggregation_temporality=kind)
        ),
        names,
        st.lists(histograms, max_size=3),
        temporality,
    ),
    st.builds(lambda name: Metric(name=name), names),
)
pushes = st.builds(
    lambda resource, found: ExportMetricsServiceRequest(
        resource_metrics=[
            ResourceMetrics(resource=Resource(attributes=resource), scope_metrics=[ScopeMetrics(metrics=found)])
        ]
    ).SerializeToString(),
    attributes,
    st.lists(metrics, max_size=4),
)


def push(fan, data, client, address):
    context = ClientTelemetryContext(30_000, AuthorizableRequestContext(client_id=f"c{client}", client_address=address))
    fan.export_metrics(context, ClientTelemetryPayload(UUID(int=client), False, data))


def good():
    points = [
        Point(PointKey("v.rate", (("topic", "t"),)), MetricKind.GAUGE, 1.5),
        Point(PointKey("v.total"), MetricKind.SUM, 4),
        Point(PointKey("v.h"), MetricKind.HISTOGRAM, HistogramValue((1.0, 2.0), (1, 2, 3), 9.0)),
    ]
    return encode([PushPoint(point, point.value, 1, 2, delta=False) for point in points], (), 0).payload


VICTIMS = range(1, 4)
EXPECTED = {"v_rate": [1.5], "v_total": [4], "v_h_sum": [9], "v_h_count": [6], "v_h_bucket": [1, 3, 6]}


def of_victims(families):
    found = {}
    for family in families:
        for sample in family.samples:
            if sample.labels.get("client_id") in {f"c{client}" for client in VICTIMS}:
                found.setdefault((sample.name, sample.labels["client_id"]), []).append(sample.value)
    return found


def request_of(*found):
    scope = ScopeMetrics(metrics=found)
    return ExportMetricsServiceRequest(resource_metrics=[ResourceMetrics(scope_metrics=[scope])]).SerializeToString()


def histogram_of(*points, name="v.histogram", kind=2):
    return request_of(Metric(name=name, histogram=Histogram(data_points=points, aggregation_temporality=kind)))


def labelled(**labels):
    return [KeyValue(key=key, value=AnyValue(string_value=text)) for key, text in labels.items()]


def gauges_of(*points):
    return request_of(Metric(name="v.gauge", gauge=Gauge(data_points=points)))


BELOW_ZERO = {"explicit_bounds": [-1.0, 1.0], "bucket_counts": [1, 2, 3]}
LARGEST = 2**64 - 1


@settings(max_examples=examples(30, 60), deadline=None)
@given(st.lists(pushes, max_size=3), st.booleans())
@example([], True)
@example([histogram_of(HistogramDataPoint(sum=5, **BELOW_ZERO))], False)
@example([histogram_of(HistogramDataPoint(sum=-5, **BELOW_ZERO), kind=1)] * 2, False)
@example([histogram_of(HistogramDataPoint(sum=math.nan, **BELOW_ZERO))], True)
@example([histogram_of(HistogramDataPoint(sum=math.nan, explicit_bounds=[1], bucket_counts=[1, 1]))], True)
@example([histogram_of(HistogramDataPoint(explicit_bounds=[1], bucket_counts=[1, 1]))], True)  # no sum at all
@example([histogram_of(HistogramDataPoint(sum=1, explicit_bounds=[-0.0], bucket_counts=[1, 1]))], True)
@example([histogram_of(HistogramDataPoint(sum=1, explicit_bounds=[1e-5, 1e6, 1e21], bucket_counts=[1] * 4))], True)
@example(
    [histogram_of(HistogramDataPoint(sum=1e308, explicit_bounds=[1], bucket_counts=[LARGEST] * 2), kind=1)] * 3, True
)
@example([histogram_of(HistogramDataPoint(sum=1, explicit_bounds=[2, 1], bucket_counts=[1] * 3))], True)
@example([histogram_of(HistogramDataPoint(sum=1, explicit_bounds=[1, 1], bucket_counts=[1] * 3))], True)
@example([histogram_of(*(HistogramDataPoint(sum=1, count=1, attributes=labelled(le=le)) for le in "12"))], True)
@example([histogram_of(HistogramDataPoint(sum=1, count=1), name="v.h"), histogram_of(name="v.h.bucket")], True)
@example([gauges_of(NumberDataPoint(as_int=1), NumberDataPoint(as_int=2, attributes=labelled(a="")))], True)
@example([gauges_of(*(NumberDataPoint(as_int=1, time_unix_nano=time) for time in (2, 1, 0, LARGEST)))], True)
def test_a_page_with_hostile_clients_shows_what_the_others_pushed(hostile, first):
    store = PrometheusStore(max_series=60)
    fan = FanOut([store], unix_ms=lambda: NOW)
    everything = [lambda client=client: push(fan, good(), client, f"10.0.0.{client}") for client in VICTIMS]
    bad = [lambda data=data: push(fan, data, 99, "10.6.6.6") for data in hostile]
    for act in [*bad, *everything] if first else [*everything, *bad]:
        act()
    assert fan.failures == [0]
    for accept, parse in (("", parse_text), (OPENMETRICS, parse_openmetrics)):
        body = page(store.families(NOW), accept)[0].decode()
        families = list(parse(body))
        shown = [
            (sample.name, tuple(sorted((key, text) for key, text in sample.labels.items() if text)))
            for family in families
            for sample in family.samples
        ]
        assert len(shown) == len(set(shown))
        found = of_victims(families)
        assert found == {(name, f"c{client}"): values for name, values in EXPECTED.items() for client in VICTIMS}


@settings(max_examples=examples(15, 30), deadline=None)
@given(st.lists(pushes, min_size=1, max_size=2))
def test_files_with_hostile_clients_hold_what_the_others_pushed(hostile):
    with tempfile.TemporaryDirectory() as folder:
        jsonl, parquet = JsonLinesWriter(folder), ParquetWriter(folder)

        class Writers:
            def export_metrics(self, context, payload):
                raise AssertionError

            def accept(self, received):
                list(rows_of(received))
                jsonl.write(received)
                parquet.write(received)

            def close(self, timeout_ms):
                pass

        fan = FanOut([Writers()], unix_ms=lambda: NOW)
        for data in hostile:
            push(fan, data, 99, "10.6.6.6")
            push(fan, good(), 1, "10.0.0.1")
        assert fan.failures == [0]
        jsonl.close()
        parquet.close()
        (lines,), (table,) = Path(folder).glob("*.jsonl"), Path(folder).glob("*.parquet")
        rows = [json.loads(line, parse_constant=lambda text: 1 / 0) for line in lines.read_text().splitlines()]
        for found in (rows, pq.read_table(table).to_pylist()):
            mine = [row for row in found if row["client_id"] == "c1"]
            assert len(mine) == 3 * len(hostile)
            assert [row["value"] for row in mine[:2]] == [1.5, 4]
            assert mine[2]["bucket_counts"] == [1, 2, 3]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(pushes, st.integers(10, 19)), min_size=1, max_size=8))
def test_the_page_never_takes_more_bytes_than_it_may(hostile):
    store = PrometheusStore(max_bytes=20_000)
    fan = FanOut([store], unix_ms=lambda: NOW)
    for data, client in hostile:
        push(fan, data, client, f"10.6.6.{client}")
        assert store._bytes <= 20_000
        assert store._bytes == sum(value.bytes for values in store._families.values() for value in values.values())
    assert fan.failures == [0]
    store.families(NOW + 10**9)
    assert (store._bytes, store._series) == (0, 0), "all of it is given back"


def test_what_the_page_says_it_takes_is_what_it_takes():
    tracemalloc.start()
    try:
        store = PrometheusStore(max_bytes=1_000_000)
        fan = FanOut([store], unix_ms=lambda: NOW)
        for client in range(12):
            points = [NumberDataPoint(as_int=1, attributes=labelled(a=f"{client}-{n}" + "x" * n)) for n in range(300)]
            push(fan, gauges_of(*points), client, f"10.6.6.{client}")
        del points
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert store.dropped.total() + store.evicted_series > 0
    assert store._bytes <= 1_000_000
    assert held < 2_500_000


def many_points():
    return [NumberDataPoint() for _ in range(30_000)]


def many_attributes():
    return [KeyValue(key=f"k{number}", value=AnyValue(string_value="v")) for number in range(60_000)]


def of_a_resource_with_many_attributes():
    scope = ScopeMetrics(metrics=[Metric(name="v.gauge", gauge=Gauge(data_points=many_points()))])
    resource = ResourceMetrics(resource=Resource(attributes=many_attributes()), scope_metrics=[scope])
    return ExportMetricsServiceRequest(resource_metrics=[resource]).SerializeToString()


@pytest.mark.parametrize(
    ("data", "dropped"),
    [
        (lambda: gauges_of(*many_points()), 10_000),
        (lambda: gauges_of(NumberDataPoint(as_int=1, attributes=many_attributes())), 1),
        (of_a_resource_with_many_attributes, 1),
    ],
    ids=["points", "attributes", "attributes of the resource"],
)
def test_a_push_of_very_much_costs_the_receiver_little(data, dropped):
    """What is left out is looked at no further: it is counted as too large."""
    store = PrometheusStore()
    fan = FanOut([store], unix_ms=lambda: NOW)
    push(fan, data(), 99, "10.6.6.6")
    assert store.dropped == {"too_large": dropped}
    push(fan, good(), 1, "10.0.0.1")
    assert of_victims(parse_text(page(store.families(NOW), "")[0].decode()))
