"""OTLP metrics as bytes: building a push, checking one, adding attributes to one without decoding its points.

A KIP-714 payload is an OTLP `MetricsData`, byte for byte an `ExportMetricsServiceRequest`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # protobuf ships no types
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from kclient_telemetry.errors import InvalidPayloadError
from kclient_telemetry.metric import Attributes, AttributeValue, HistogramValue, MetricKind, PushPoint

CONTENT_TYPE = "OTLP"

_NANOS_PER_MS = 1_000_000
_RESOURCE_METRICS_TAG = b"\x0a"  # field 1, length-delimited: the only field of the request
_RESOURCE_TAG = b"\x0a"  # field 1, length-delimited: ResourceMetrics.resource
_SCOPE_METRICS_TAG = b"\x12"  # field 2, length-delimited: ResourceMetrics.scope_metrics
_LEAST_RESOURCE_METRICS_BYTES = 16  # less than a ResourceMetrics with one point takes
_EMPTY_RESOURCES_BYTES = 1024  # a few empty ones do no harm
_GROUP_GROWTH_BYTES = 8  # by which the lengths of a ResourceMetrics and its ScopeMetrics may grow as they fill

# Protobuf's wire types as far as they occur in OTLP, and the bit that says that a varint goes on.
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_MORE = 0x80

_INT64_RANGE = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class EncodedPush:
    """A payload and what is in it.

    Attributes:
        payload: OTLP bytes, not compressed.
        sent: the points in it.
        deferred: points left for the next push because the payload would have grown too large.
        dropped: points that alone are too large for any push.
    """

    payload: bytes
    sent: tuple[PushPoint, ...]
    deferred: tuple[PushPoint, ...] = ()
    dropped: tuple[PushPoint, ...] = ()


def encode(points: Sequence[PushPoint], resource: Attributes, max_bytes: int) -> EncodedPush:
    """Build a payload of at most `max_bytes` bytes out of `points`, the first ones first.

    Args:
        points: what to push.
        resource: attributes of this client (Kafka: group_id, client_rack, transactional_id …).
        max_bytes: bound of the payload; 0 for none.
    """
    payload: bytes = _message(points, resource).SerializeToString()
    if max_bytes <= 0 or len(payload) <= max_bytes:
        return EncodedPush(payload, tuple(points))
    sent, deferred, dropped = _fit(points, resource, max_bytes)
    payload = _message(sent, resource).SerializeToString()
    return EncodedPush(payload, tuple(sent), tuple(deferred), tuple(dropped))


def _fit(
    points: Sequence[PushPoint], resource: Attributes, max_bytes: int
) -> tuple[list[PushPoint], list[PushPoint], list[PushPoint]]:
    """Share out `points` by an upper bound of what each adds to the payload."""
    sent: list[PushPoint] = []
    deferred: list[PushPoint] = []
    dropped: list[PushPoint] = []
    groups: set[tuple[Attributes, str]] = set()
    used = 0
    for point in points:
        group = (point.point.key.resource, point.point.key.scope)
        alone = _message((point,), resource).ByteSize()
        size = _nested_size(_metric((point,)).ByteSize()) if group in groups else alone + _GROUP_GROWTH_BYTES
        if alone > max_bytes:
            dropped.append(point)
        elif used + size > max_bytes and sent:
            deferred.append(point)
        else:
            sent.append(point)
            groups.add(group)
            used += size
    return sent, deferred, dropped


def _nested_size(size: int) -> int:
    return 1 + len(_varint(size)) + size


def _message(points: Iterable[PushPoint], resource: Attributes) -> ExportMetricsServiceRequest:
    """One ResourceMetrics per resource, one ScopeMetrics per scope, one Metric per name."""
    tree: dict[Attributes, dict[str, dict[tuple[str, MetricKind], list[PushPoint]]]] = {}
    for point in points:
        key = point.point.key
        families = tree.setdefault(key.resource, {}).setdefault(key.scope, {})
        families.setdefault((key.name, point.point.kind), []).append(point)
    return ExportMetricsServiceRequest(
        resource_metrics=[
            ResourceMetrics(
                resource=Resource(attributes=_key_values({**dict(resource), **dict(extra)}.items())),
                scope_metrics=[
                    ScopeMetrics(
                        scope=InstrumentationScope(name=scope) if scope else None,
                        metrics=[_metric(family) for family in families.values()],
                    )
                    for scope, families in scopes.items()
                ],
            )
            for extra, scopes in tree.items()
        ]
    )


def _metric(family: Sequence[PushPoint]) -> Metric:
    first = family[0]
    metric = Metric(name=first.point.key.name, unit=first.point.unit)
    if first.point.kind is MetricKind.GAUGE:
        metric.gauge.data_points.extend(_number(point) for point in family)
        return metric
    temporality = AGGREGATION_TEMPORALITY_DELTA if first.delta else AGGREGATION_TEMPORALITY_CUMULATIVE
    if first.point.kind is MetricKind.SUM:
        metric.sum.aggregation_temporality = temporality
        metric.sum.is_monotonic = True
        metric.sum.data_points.extend(_number(point) for point in family)
    else:
        metric.histogram.aggregation_temporality = temporality
        metric.histogram.data_points.extend(_histogram(point) for point in family)
    return metric


def _number(point: PushPoint) -> NumberDataPoint:
    data = NumberDataPoint(
        attributes=_key_values(point.point.key.attributes),
        start_time_unix_nano=(point.start_unix_ms or 0) * _NANOS_PER_MS,
        time_unix_nano=point.time_unix_ms * _NANOS_PER_MS,
    )
    if isinstance(point.value, int) and point.value in _INT64_RANGE:
        data.as_int = int(point.value)  # protobuf refuses True and False, with the whole push
    elif not isinstance(point.value, HistogramValue):
        data.as_double = float(point.value)
    return data


def _histogram(point: PushPoint) -> HistogramDataPoint:
    value = point.value
    assert isinstance(value, HistogramValue), "a histogram point carries a HistogramValue"
    return HistogramDataPoint(
        attributes=_key_values(point.point.key.attributes),
        start_time_unix_nano=(point.start_unix_ms or 0) * _NANOS_PER_MS,
        time_unix_nano=point.time_unix_ms * _NANOS_PER_MS,
        count=value.count,
        sum=value.total,
        bucket_counts=value.bucket_counts,
        explicit_bounds=value.bounds,
    )


def _key_values(attributes: Iterable[tuple[str, AttributeValue]]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_any_value(value)) for key, value in attributes]


def _any_value(value: AttributeValue) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    return AnyValue(double_value=value)


def parse(payload: bytes) -> ExportMetricsServiceRequest:
    """The metrics in `payload`.

    Raises:
        InvalidPayloadError: it is no OTLP metrics message, or hardly anything but empty resources, each of which would
            grow by the attributes that receivers add.
    """
    try:
        request: ExportMetricsServiceRequest = ExportMetricsServiceRequest.FromString(payload)
    except DecodeError as error:
        raise InvalidPayloadError(f"the payload is no OTLP metrics message: {error}") from error
    if len(request.resource_metrics) * _LEAST_RESOURCE_METRICS_BYTES > len(payload) + _EMPTY_RESOURCES_BYTES:
        raise InvalidPayloadError("the payload has more resources than points")
    return request


def with_resource_attributes(
    payload: bytes, attributes: Mapping[str, str], parsed: ExportMetricsServiceRequest
) -> bytes:
    """`payload` with `attributes` on every resource, its points untouched byte for byte in what clients send.

    They go into the one field of a resource, behind its own: a second `resource` field would add to the first one by
    protobuf's merge rule, but not every reader merges (VictoriaMetrics looks at the first alone). Neighbours of the
    same resource become one ResourceMetrics before, since Kafka's Java client sends one a metric, and the attributes
    would take more room than the metrics. A client that already claims one of these keys for itself loses that claim:
    only then is the message written anew, because two attributes of one key would let a reader take the wrong one.

    Args:
        payload: an ExportMetricsServiceRequest.
        attributes: what the receiver knows about the client.
        parsed: the outcome of `parse(payload)`.
    """
    if not attributes:
        return payload
    if any(pair.key in attributes for metrics in parsed.resource_metrics for pair in metrics.resource.attributes):
        return _rewritten(parsed, attributes)
    added: bytes = Resource(attributes=_key_values(attributes.items())).SerializeToString()
    parts: list[bytes] = []
    for resource, rest in _by_resource(payload):
        resource_size = len(resource) + len(added)
        head = _RESOURCE_TAG + _varint(resource_size)
        size = len(head) + resource_size + sum(map(len, rest))
        parts += (_RESOURCE_METRICS_TAG, _varint(size), head, resource, added, *rest)
    return b"".join(parts)


def _by_resource(payload: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """What resources say, and what belongs to each of them."""
    former: bytes | None = None
    scopes: list[bytes] = []
    for chunk in _resource_metrics(payload):
        resource, rest, is_scope = _split(chunk)
        if scopes and not (is_scope and resource == former):
            yield former or b"", scopes
            scopes = []
        if is_scope:
            former = resource
            scopes.append(rest)
        else:
            yield resource, [rest]
    if scopes:
        yield former or b"", scopes


def _split(chunk: bytes) -> tuple[bytes, bytes, bool]:
    """What a ResourceMetrics says of its resource, the rest of it, and whether that is one ScopeMetrics, no more."""
    start = end = 0
    if chunk[:1] == _RESOURCE_TAG:
        length, start = read_varint(chunk, 1)
        end = start + length
    if chunk[end : end + 1] == _SCOPE_METRICS_TAG:
        length, position = read_varint(chunk, end + 1)
        if position + length == len(chunk):
            return chunk[start:end], chunk[end:], True
    metrics = ResourceMetrics.FromString(chunk)  # of several parts, which this puts together
    resource = metrics.resource.SerializeToString()
    metrics.ClearField("resource")
    return resource, metrics.SerializeToString(), False


def _rewritten(parsed: ExportMetricsServiceRequest, attributes: Mapping[str, str]) -> bytes:
    request = ExportMetricsServiceRequest()
    request.CopyFrom(parsed)
    for metrics in request.resource_metrics:
        kept = [pair for pair in metrics.resource.attributes if pair.key not in attributes]
        del metrics.resource.attributes[:]
        metrics.resource.attributes.extend(kept + _key_values(attributes.items()))
    rewritten: bytes = request.SerializeToString()
    return rewritten


def _resource_metrics(payload: bytes) -> Iterator[bytes]:
    """The encoded ResourceMetrics of a payload that `parse` accepted; fields unknown to OTLP are passed over."""
    position = 0
    while position < len(payload):
        tag, position = read_varint(payload, position)
        wire_type = tag & 7
        start = position
        if wire_type == _LENGTH_DELIMITED:
            length, start = read_varint(payload, position)
            position = start + length
        else:
            position = _skip(payload, position, wire_type)
        if tag == _RESOURCE_METRICS_TAG[0]:
            yield payload[start:position]


def _skip(payload: bytes, position: int, wire_type: int) -> int:
    if wire_type == _VARINT:
        return read_varint(payload, position)[1]
    if wire_type == _FIXED64:
        return position + 8
    if wire_type == _FIXED32:
        return position + 4
    raise InvalidPayloadError(f"the payload has a field of protobuf's wire type {wire_type}, which OTLP never uses")


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A protobuf varint at `position`, and where it ends."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            return value, position
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= _MORE:
        out.append(value & 0x7F | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)
