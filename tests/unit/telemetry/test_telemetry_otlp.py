"""OTLP bytes against opentelemetry's own classes and payloads of real clients."""

import math
from pathlib import Path

import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet
from kclient_telemetry.errors import InvalidPayloadError
from kclient_telemetry.metric import HistogramValue, MetricKind, Point, PointKey, PushPoint
from kclient_telemetry.otlp import encode, parse, with_resource_attributes
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

PAYLOADS = Path(__file__).parent / "payloads"
REAL = ["java-producer-0", "java-consumer-0", "librdkafka-producer-0", "librdkafka-consumer-0"]
WHO = {"client_id": "orders", "principal": "User:alice", "broker_id": "1"}


def push_point(
    name="m", value=1.5, kind=MetricKind.GAUGE, *, delta=False, start=None, attributes=(), scope="", extra=()
):
    return PushPoint(Point(PointKey(name, attributes, scope, extra), kind, value), value, start, 2_000, delta)


def only_metric(encoded):
    (resource_metrics,) = parse(encoded.payload).resource_metrics
    (scope_metrics,) = resource_metrics.scope_metrics
    (metric,) = scope_metrics.metrics
    return metric


def attribute_map(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def test_gauges_keep_their_type():
    for value, field in ((3, "as_int"), (3.5, "as_double"), (2**70, "as_double"), (math.nan, "as_double")):
        (data,) = only_metric(encode([push_point(value=value)], (), 0)).gauge.data_points
        assert data.WhichOneof("value") == field
        sent = getattr(data, field)
        assert sent == pytest.approx(value, nan_ok=True)
        assert data.time_unix_nano == 2_000_000_000


@pytest.mark.parametrize(("delta", "temporality"), [(True, 1), (False, 2)])
def test_sums_are_monotonic_and_name_their_temporality(delta, temporality):
    metric = only_metric(encode([push_point(value=4, kind=MetricKind.SUM, delta=delta, start=1_000)], (), 0))
    assert metric.sum.is_monotonic
    assert metric.sum.aggregation_temporality == temporality
    assert metric.sum.data_points[0].start_time_unix_nano == 1_000_000_000


def test_histograms():
    value = HistogramValue((1.0, 5.0), (2, 0, 1), 9.5)
    metric = only_metric(encode([push_point(value=value, kind=MetricKind.HISTOGRAM, delta=True, start=1)], (), 0))
    (data,) = metric.histogram.data_points
    assert (data.count, data.sum) == (3, 9.5)
    assert list(data.bucket_counts) == [2, 0, 1]
    assert list(data.explicit_bounds) == [1.0, 5.0]


def test_points_are_grouped_by_resource_scope_and_name():
    points = [
        push_point("a", attributes=(("topic", "t1"),)),
        push_point("a", attributes=(("topic", "t2"), ("ok", True), ("n", 1), ("f", 0.5))),
        push_point("b", scope="app"),
        push_point("c", extra=(("service.name", "shop"),)),
    ]
    request = parse(encode(points, (("group_id", "g"),), 0).payload)
    first, second = request.resource_metrics
    assert attribute_map(first.resource.attributes) == {"group_id": "g"}
    assert attribute_map(second.resource.attributes) == {"group_id": "g", "service.name": "shop"}
    assert [(scope.scope.name, [m.name for m in scope.metrics]) for scope in first.scope_metrics] == [
        ("", ["a"]),
        ("app", ["b"]),
    ]
    (family, _) = first.scope_metrics[0].metrics[0].gauge.data_points
    assert attribute_map(family.attributes) == {"topic": "t1"}
    assert attribute_map(first.scope_metrics[0].metrics[0].gauge.data_points[1].attributes) == {
        "topic": "t2",
        "ok": True,
        "n": 1,
        "f": 0.5,
    }


def test_nothing_to_push_is_no_bytes():
    assert encode([], (), 100).payload == b""


@pytest.mark.parametrize("limit", [120, 400, 1000, 5000])
def test_what_does_not_fit_is_left_for_the_next_push(limit):
    points = [push_point(f"metric.{n}", n, attributes=(("topic", f"t{n}"),)) for n in range(100)]
    encoded = encode(points, (("group_id", "g"),), limit)
    assert 0 < len(encoded.payload) <= limit
    assert encoded.sent + encoded.deferred == tuple(points)
    assert encoded.dropped == ()
    names = [m.name for m in parse(encoded.payload).resource_metrics[0].scope_metrics[0].metrics]
    assert names == [point.point.key.name for point in encoded.sent]


def test_a_limit_is_used_well():
    points = [push_point(f"metric.{n}", n) for n in range(100)]
    whole = len(encode(points, (), 0).payload)
    assert len(encode(points, (), whole // 2).payload) > whole // 2 * 0.8


def test_a_point_too_large_for_any_push_is_dropped_and_named():
    large, small = push_point("x" * 500), push_point("y")
    encoded = encode([large, small], (), 200)
    assert encoded.dropped == (large,)
    assert encoded.sent == (small,)
    assert encoded.deferred == ()


@pytest.mark.parametrize("name", REAL)
def test_attributes_are_added_without_touching_the_points(name):
    payload = (PAYLOADS / f"{name}.bin").read_bytes()
    before = parse(payload)
    enriched = with_resource_attributes(payload, WHO, before)
    # All metrics of these clients are of one resource, of which Java's sends a hundred.
    (after,) = parse(enriched).resource_metrics
    assert attribute_map(after.resource.attributes) == (
        attribute_map(before.resource_metrics[0].resource.attributes) | WHO
    )
    # As bytes: what has no value yet is NaN, which is equal to nothing.
    assert [scope.SerializeToString() for scope in after.scope_metrics] == [
        scope.SerializeToString() for metrics in before.resource_metrics for scope in metrics.scope_metrics
    ]
    for scope in after.scope_metrics:
        assert scope.SerializeToString() in payload
        assert scope.SerializeToString() in enriched
    assert len(enriched) < len(payload) + 100


def fields_of(message):
    return [(field.field_number, field.data) for field in UnknownFieldSet(Empty.FromString(message))]


def twice(payload):
    """The same message with a resource in two parts, and its scopes between them, which protobuf merges."""
    ((_, metrics),) = fields_of(payload)
    rest = b"\x0a\x0a\x0a\x08\x0a\x01b\x12\x03\x0a\x01w"
    return b"\x0a" + bytes([len(metrics) + len(rest)]) + metrics + rest


@pytest.mark.parametrize(
    "payload",
    [
        *((PAYLOADS / f"{name}.bin").read_bytes() for name in REAL),
        encode([push_point("m")], (), 0).payload,
        encode([push_point("m")], (("a", "v"),), 0).payload,
        encode([push_point("m"), push_point("m", scope="s")], (("a", "v"),), 0).payload,
        twice(encode([push_point("m")], (("a", "v"),), 0).payload),
    ],
    ids=[*REAL, "empty", "own", "two scopes", "in two parts"],
)
def test_a_resource_is_one_field_since_some_readers_know_the_first_alone(payload):
    before = parse(payload).resource_metrics[0].resource
    for _, metrics in fields_of(with_resource_attributes(payload, WHO, parse(payload))):
        (resource,) = [content for number, content in fields_of(metrics) if number == 1]
        assert attribute_map(Resource.FromString(resource).attributes) == attribute_map(before.attributes) | WHO


def test_only_neighbours_of_the_same_resource_are_united():
    one, other = (encode([push_point("m")], ((key, "v"),), 0).payload for key in ("a", "b"))
    bare = encode([push_point("m")], (), 0).payload
    with_schema = ExportMetricsServiceRequest.FromString(one)
    with_schema.resource_metrics[0].schema_url = "https://example.org"
    two_scopes = encode([push_point("m"), push_point("m", scope="s")], (("a", "v"),), 0).payload
    parts = [one, one, other, one, bare, bare, with_schema.SerializeToString(), one, two_scopes, two_scopes]
    payload = b"".join(parts)
    resources = parse(with_resource_attributes(payload, WHO, parse(payload))).resource_metrics
    assert [len(metrics.scope_metrics) for metrics in resources] == [2, 1, 1, 2, 1, 1, 2, 2]
    assert [metrics.schema_url for metrics in resources].count("https://example.org") == 1
    assert all(attribute_map(metrics.resource.attributes).items() >= WHO.items() for metrics in resources)
    keys = [set(attribute_map(metrics.resource.attributes)) - set(WHO) for metrics in resources]
    assert keys == [{"a"}, {"b"}, {"a"}, set(), {"a"}, {"a"}, {"a"}, {"a"}]


def test_attributes_of_real_payloads_are_those_of_the_capture():
    java = parse((PAYLOADS / "java-producer-0.bin").read_bytes())
    assert len(java.resource_metrics) == 108
    assert len({r.scope_metrics[0].metrics[0].name for r in java.resource_metrics}) == 96
    (librdkafka,) = parse((PAYLOADS / "librdkafka-consumer-0.bin").read_bytes()).resource_metrics
    assert attribute_map(librdkafka.resource.attributes) == {"group_id": "g"}
    assert len({metric.name for metric in librdkafka.scope_metrics[0].metrics}) == 13


def test_a_client_cannot_claim_to_be_someone_else():
    forged = encode([push_point()], (("client_id", "forged"), ("group_id", "g")), 0).payload
    after = parse(with_resource_attributes(forged, WHO, parse(forged)))
    (metrics,) = after.resource_metrics
    assert sorted(pair.key for pair in metrics.resource.attributes) == sorted([*WHO, "group_id"])
    assert attribute_map(metrics.resource.attributes)["client_id"] == "orders"
    assert metrics.scope_metrics[0].metrics[0].gauge.data_points[0].as_double == 1.5


def test_fields_of_later_versions_are_passed_over():
    payload = encode([push_point()], (), 0).payload
    unknown = b"\x10\x96\x01" + b"\x19" + b"8bytes!!" + b"\x25" + b"4by!" + b"\x32\x02hi"
    enriched = with_resource_attributes(unknown + payload + unknown, WHO, parse(unknown + payload + unknown))
    assert enriched == with_resource_attributes(payload, WHO, parse(payload))
    group = b"\x13\x14"
    with pytest.raises(InvalidPayloadError, match="wire type 3"):
        with_resource_attributes(group, WHO, ExportMetricsServiceRequest())


def test_nothing_to_add_changes_nothing():
    payload = encode([push_point()], (), 0).payload
    assert with_resource_attributes(payload, {}, parse(payload)) is payload
    assert with_resource_attributes(b"", WHO, parse(b"")) == b""


@pytest.mark.parametrize("payload", [b"\x0a\x05abc", b"\xff", b"\x00" * 10, b"\x0a\x02\x0a\x05"])
def test_what_is_no_otlp_is_refused(payload):
    with pytest.raises(InvalidPayloadError, match="no OTLP metrics"):
        parse(payload)


def test_a_payload_of_empty_resources_is_refused_before_it_grows():
    with pytest.raises(InvalidPayloadError, match="more resources than points"):
        parse(b"\x0a\x00" * 100_000)
    assert len(parse(b"\x0a\x00" * 50).resource_metrics) == 50
    smallest = ExportMetricsServiceRequest()
    smallest.resource_metrics.add().scope_metrics.add().metrics.add(name="m").gauge.data_points.add(as_double=1.0)
    assert parse(smallest.SerializeToString()) == smallest
