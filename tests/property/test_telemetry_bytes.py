"""Bytes of strangers: whatever arrives, nothing but the named errors comes out, and nothing is lost or invented."""

from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from kclient_telemetry.compression import CompressionType, compress, decompress
from kclient_telemetry.errors import InvalidPayloadError
from kclient_telemetry.metric import MetricKind, Point, PointKey, PushPoint
from kclient_telemetry.otlp import encode, parse, with_resource_attributes
from kclient_telemetry.receiver.subscription import java_hash_set_order

from tests.property.examples import examples

# The machine may be busy; how long an example takes says nothing here.
UNHURRIED = settings(deadline=None)
FEWER = settings(deadline=None, max_examples=examples(50))

PAYLOADS = Path(__file__).parents[1] / "unit" / "telemetry" / "payloads"
SAMPLES = {path.name: path.read_bytes() for path in sorted(PAYLOADS.glob("*-producer-*.bin"))}
KINDS = st.sampled_from(CompressionType)
WHO = {"client_id": "orders", "broker_id": "1"}
ATTRIBUTES = st.lists(st.tuples(st.sampled_from(["a", "client_id", "topic"]), st.text(max_size=5)), max_size=3).map(
    tuple
)


@UNHURRIED
@given(st.binary(max_size=3_000), KINDS, st.integers(0, 3_000))
def test_compression_comes_back_within_its_bound(data, kind, limit):
    framed = compress(data, kind)
    if len(data) <= limit:
        assert decompress(framed, kind, limit) == data
        return
    try:
        decompress(framed, kind, limit)
    except InvalidPayloadError:
        return
    raise AssertionError("more came out than is allowed")


@UNHURRIED
@given(st.sampled_from(sorted(SAMPLES)), KINDS, st.data())
def test_damaged_payloads_give_the_named_error_or_bounded_bytes(name, kind, data):
    damaged = bytearray(SAMPLES[name])
    for _ in range(data.draw(st.integers(0, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    with suppress(InvalidPayloadError):
        assert len(decompress(bytes(damaged[:cut]), kind, 20_000)) <= 20_000


def scopes_of(request):
    return [scope.SerializeToString() for metrics in request.resource_metrics for scope in metrics.scope_metrics]


@UNHURRIED
@given(st.data())
def test_damaged_metrics_are_refused_or_enriched(data):
    damaged = bytearray(SAMPLES["librdkafka-producer-0.bin"])
    for _ in range(data.draw(st.integers(0, 6))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    payload = bytes(damaged)
    try:
        before = parse(payload)
        after = parse(with_resource_attributes(payload, WHO, before))
    except InvalidPayloadError:
        return
    assert scopes_of(after) == scopes_of(before)


@st.composite
def push_points(draw):
    names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
    key = PointKey(draw(names), draw(ATTRIBUTES), draw(st.sampled_from(["", "scope"])), draw(ATTRIBUTES))
    value = draw(st.integers() | st.floats())
    kind = draw(st.sampled_from([MetricKind.GAUGE, MetricKind.SUM]))
    return PushPoint(Point(key, kind, value), value, draw(st.integers(0, 10**13)), 10**13, delta=draw(st.booleans()))


@FEWER
@given(st.lists(push_points(), max_size=12), ATTRIBUTES, st.integers(0, 1_500))
def test_a_payload_keeps_its_bound_and_every_point_is_accounted_for(points, resource, limit):
    encoded = encode(points, resource, limit)
    assert limit == 0 or len(encoded.payload) <= limit
    sent = [id(point) for group in (encoded.sent, encoded.deferred, encoded.dropped) for point in group]
    assert sorted(sent) == sorted(map(id, points))
    numbers = sum(
        len(metric.gauge.data_points) + len(metric.sum.data_points)
        for metrics in parse(encoded.payload).resource_metrics
        for scope in metrics.scope_metrics
        for metric in scope.metrics
    )
    assert numbers == len(encoded.sent)


def per_scope(request):
    """Every ScopeMetrics with the attributes of its resource, in order."""
    return [
        ([(pair.key, pair.value.string_value) for pair in metrics.resource.attributes], scope.SerializeToString())
        for metrics in request.resource_metrics
        for scope in metrics.scope_metrics
    ]


@FEWER
@given(st.lists(st.tuples(st.lists(push_points(), min_size=1, max_size=3), ATTRIBUTES), max_size=4))
def test_appending_attributes_equals_encoding_them(parts):
    payload = b"".join(encode(points, resource, 0).payload for points, resource in parts)
    before = parse(payload)
    after = parse(with_resource_attributes(payload, WHO, before))
    assert per_scope(after) == [
        ([*((key, value) for key, value in attributes if key not in WHO), *WHO.items()], scope)
        for attributes, scope in per_scope(before)
    ]


@UNHURRIED
@given(st.lists(st.text(max_size=6), unique=True, max_size=40))
def test_javas_order_is_a_permutation_and_stable(strings):
    ordered = java_hash_set_order(strings)
    assert sorted(ordered) == sorted(strings)
    assert java_hash_set_order(ordered) == ordered
