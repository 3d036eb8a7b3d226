"""OTLP to rows by ptars (protobuf to Arrow in Rust) and Arrow kernels: many payloads at a time, no Python per point."""

from functools import lru_cache
from typing import Any

import numpy as np
import ptars
import pyarrow as pa
import pyarrow.compute as pc
from kclient_telemetry.errors import InvalidPayloadError

from kclient_quota.spark.decoding.attribute_lists import OPAQUE, AttributeLists
from kclient_quota.spark.decoding.otlp_view import descriptor
from kclient_quota.spark.decoding.schema import EVERYTHING, Wanted

_NANOS_PER_MS = pa.scalar(1_000_000, pa.uint64())
_LARGEST = pa.scalar(2**63 - 1, pa.uint64())
_DELTA = 1
_MAPS = ("resource", "attributes")
_VALUED = ("gauge", "sum")
_KINDS = (*_VALUED, "histogram")


@lru_cache
def _handler(left_out: frozenset[tuple[str, str]]) -> Any:
    request = descriptor(left_out)
    return ptars.HandlerPool([request.file]).get_for_message(request)


def _left_out(wanted: Wanted) -> frozenset[tuple[str, str]]:
    """Fields of messages that nothing wanted is made of."""
    fields = {("Metric", "histogram")} if wanted.valued else set()
    if "unit" not in wanted.columns:
        fields.add(("Metric", "unit"))
    if wanted.columns.isdisjoint(_MAPS):
        fields |= {("AnyValue", name) for name in OPAQUE}
    return frozenset(fields)


def decode_many(payloads: pa.Array, wanted: Wanted = EVERYTHING) -> list[pa.RecordBatch]:
    """The data points of all payloads.

    Args:
        payloads: ExportMetricsServiceRequests, not compressed; null and empty ones have no points.
        wanted: which points, what of them.

    Returns:
        batches of `wanted.schema`, `row` being the position in `payloads`.

    Raises:
        InvalidPayloadError: one of them is none, or holds what only the other decoder reads; which one is not told.
    """
    try:
        requests = _handler(_left_out(wanted)).array_to_record_batch(payloads)
    except ValueError as error:
        raise InvalidPayloadError(f"the payload is no OTLP metrics message: {error}") from error
    resources = requests.column(0)
    each = resources.flatten()
    scopes = _field(each, "scope_metrics")
    families = _field(scopes.flatten(), "metrics")
    of_resource = pc.list_parent_indices(scopes).take(pc.list_parent_indices(families))
    metrics = families.flatten()
    if wanted.metrics is not None:
        kept = pc.indices_nonzero(pc.is_in(_field(metrics, "name"), pa.array(sorted(wanted.metrics), pa.string())))
        if len(kept) < len(metrics):
            metrics, of_resource = metrics.take(kept), of_resource.take(kept)
    rows = pc.list_parent_indices(resources).cast(pa.int64())
    kinds = _VALUED if wanted.valued else _KINDS
    whole = {"row": rows, **_attributes(_field(each, "resource", "attributes"), "resource", wanted)}
    return [batch for kind in kinds if (batch := _of_kind(kind, metrics, whole, of_resource, wanted)) is not None]


def _of_kind(
    kind: str, metrics: pa.Array, whole: dict[str, pa.Array], of_resource: pa.Array, wanted: Wanted
) -> pa.RecordBatch | None:
    data = _field(metrics, kind)
    lists = _field(data, "data_points")
    points = lists.flatten()
    if not len(points):
        return None
    parent = pc.list_parent_indices(lists)
    index = of_resource.take(parent)
    columns = {
        **_columns(kind, points, wanted),
        **_repeated(kind, data, metrics, parent, wanted),
        **{name: _take(column, index) for name, column in whole.items()},
        **_attributes(_field(points, "attributes"), "attributes", wanted),
    }
    schema = wanted.schema
    arrays = [
        columns[name] if name in columns else pa.nulls(len(points), kind_of)
        for name, kind_of in zip(schema.names, schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _attributes(lists: pa.Array, of: str, wanted: Wanted) -> dict[str, pa.Array]:
    """Attribute lists as the columns that are wanted: the map, and single ones."""
    names: tuple[str, ...] = getattr(wanted, of)
    if of not in wanted.columns and not names:
        return {}
    read = AttributeLists(lists)
    columns = {f"{of}.{name}": read.of(name) for name in names}
    if of in wanted.columns:
        columns[of] = read.maps()
    return columns


def _repeated(kind: str, data: pa.Array, metrics: pa.Array, parent: pa.Array, wanted: Wanted) -> dict[str, pa.Array]:
    """What a metric says once for all of its points."""
    columns = {
        name: _field(metrics, of) for name, of in (("metric", "name"), ("unit", "unit")) if name in wanted.columns
    }
    if kind != "gauge" and "temporality" in wanted.columns:
        is_delta = pc.equal(_field(data, "aggregation_temporality"), _DELTA)
        columns["temporality"] = pc.if_else(is_delta, "delta", "cumulative")
    if kind == "sum" and "monotonic" in wanted.columns:
        columns["monotonic"] = _field(data, "is_monotonic")
    is_one_each = (
        len(parent) == len(metrics)
        and parent.null_count == 0
        and pc.all(pc.equal(parent, pa.array(np.arange(len(parent)), parent.type))).as_py()
    )
    return columns if is_one_each else {name: _take(column, parent) for name, column in columns.items()}


def _columns(kind: str, points: pa.Array, wanted: Wanted) -> dict[str, pa.Array]:
    """What the points of one kind say of themselves."""
    columns = {}
    if "kind" in wanted.columns:
        columns["kind"] = pa.repeat(pa.scalar(kind), len(points))
    for name, of in (("start_ms", "start_time_unix_nano"), ("time_ms", "time_unix_nano")):
        if name in wanted.columns:
            columns[name] = _milliseconds(_field(points, of))
    if kind != "histogram":
        return columns | ({"value": _finite(points)} if "value" in wanted.columns else {})
    if "count" in wanted.columns:
        columns["count"] = _bounded(_field(points, "count"))
    if "sum" in wanted.columns:
        columns["sum"] = _field(points, "sum")
    if "bounds" in wanted.columns:
        columns["bounds"] = _field(points, "explicit_bounds").cast(pa.list_(pa.float64()))
    if "bucket_counts" in wanted.columns:
        columns["bucket_counts"] = _bounded_lists(_field(points, "bucket_counts"))
    return columns


def _field(structs: pa.Array, *path: str) -> pa.Array:
    """A field, null wherever the struct is."""
    return pc.struct_field(structs, list(path))


def _take(column: pa.Array, index: pa.Array) -> pa.Array:
    return pa.nulls(len(index), column.type) if column.null_count == len(column) else column.take(index)


def _finite(points: pa.Array) -> pa.Array:
    whole = _field(points, "as_int").cast(pa.float64(), safe=False)
    value = pc.coalesce(_field(points, "as_double"), whole)
    return pc.if_else(pc.is_finite(value), value, pa.scalar(None, pa.float64()))


def _milliseconds(nanos: pa.Array) -> pa.Array:
    millis = pc.divide(nanos, _NANOS_PER_MS).cast(pa.int64())
    return pc.if_else(pc.equal(millis, 0), pa.scalar(None, pa.int64()), millis)


def _bounded(counts: pa.Array) -> pa.Array:
    return pc.min_element_wise(counts, _LARGEST).cast(pa.int64())


def _bounded_lists(lists: pa.Array) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False))))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _bounded(lists.flatten()))
