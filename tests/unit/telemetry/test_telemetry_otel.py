"""An application's MeterProvider as a source of pushes, made with OpenTelemetry's own SDK."""

from kclient_telemetry.client.collector import Collector
from kclient_telemetry.client.otel import KafkaMetricReader
from kclient_telemetry.client.subscription import EVERYTHING, Selection
from kclient_telemetry.metric import HistogramValue, MetricKind
from kclient_telemetry.otlp import encode, parse
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource


def provider_with(reader, views=()):
    resource = Resource({"service.name": "shop"})
    return MeterProvider([reader], resource, views=views, shutdown_on_exit=False)


def by_name(points):
    return {point.key.name: point for point in points}


def test_every_instrument_becomes_a_point():
    reader = KafkaMetricReader()
    assert reader.points() == []
    provider = provider_with(reader)
    meter = provider.get_meter("app.orders")
    meter.create_counter("orders", unit="{order}").add(3, {"region": "eu", "parts": ["a", "b"], "vip": True})
    meter.create_up_down_counter("carts").add(-2)
    meter.create_histogram("latency", unit="s", explicit_bucket_boundaries_advisory=[1.0, 5.0]).record(2.5)
    meter.create_observable_gauge("stock", [lambda options: [_observed(7)]])
    points = by_name(reader.points())
    assert {name: point.kind for name, point in points.items()} == {
        "orders": MetricKind.SUM,
        "carts": MetricKind.GAUGE,
        "latency": MetricKind.HISTOGRAM,
        "stock": MetricKind.GAUGE,
    }
    orders = points["orders"]
    assert (orders.value, orders.unit, orders.key.scope) == (3, "{order}", "app.orders")
    assert dict(orders.key.attributes) == {"region": "eu", "parts": "a,b", "vip": True}
    assert dict(orders.key.resource) == {"service.name": "shop"}
    assert orders.start_unix_ms > 1_700_000_000_000
    assert points["carts"].value == -2
    assert points["latency"].value == HistogramValue((1.0, 5.0), (0, 1, 0), 2.5)
    assert points["stock"].value == 7
    provider.shutdown()
    assert reader.points() == []


def _observed(value):
    from opentelemetry.metrics import Observation

    return Observation(value)


def test_deltas_count_from_the_last_acknowledged_push():
    reader = KafkaMetricReader()
    provider = provider_with(reader)
    counter = provider.get_meter("app").create_counter("orders")
    collector = Collector()
    collector.add_source(reader.points)
    values = []
    for step, acknowledged in enumerate([True, False, True], start=1):
        counter.add(step)
        points = collector.collect(EVERYTHING, delta=True, unix_ms=step)
        values.append([point.value for point in points])
        if acknowledged:
            collector.acknowledge(points)
    assert values == [[1], [2], [5]]
    assert collector.collect(Selection(("org.apache.kafka.",)), delta=True, unix_ms=9) == []
    provider.shutdown()


def test_a_push_carries_the_applications_resource_and_scope():
    reader = KafkaMetricReader()
    provider = provider_with(reader)
    provider.get_meter("app").create_counter("orders").add(1)
    collector = Collector({"group_id": "g"})
    collector.add_source(reader.points)
    points = collector.collect(EVERYTHING, delta=False, unix_ms=1)
    (resource,) = parse(encode(points, collector.resource, 0).payload).resource_metrics
    assert {pair.key: pair.value.string_value for pair in resource.resource.attributes} == {
        "group_id": "g",
        "service.name": "shop",
    }
    assert resource.scope_metrics[0].scope.name == "app"
    provider.shutdown()


def test_exponential_histograms_are_counted_and_told_once(caplog):
    reader = KafkaMetricReader()
    view = View(instrument_name="latency", aggregation=ExponentialBucketHistogramAggregation())
    provider = provider_with(reader, [view])
    provider.get_meter("app").create_histogram("latency").record(1.0)
    assert reader.points() == []
    assert reader.points() == []
    assert reader.unsupported_points == 2
    assert caplog.text.count("latency is an exponential histogram") == 1
    provider.shutdown()
