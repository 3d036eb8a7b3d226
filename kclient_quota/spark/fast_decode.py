"""OTLP to rows by ptars (protobuf to Arrow in Rust) and Arrow kernels: many payloads at a time, no Python per point."""

from functools import lru_cache
from typing import Any

import numpy as np
import ptars
import pyarrow as pa
import pyarrow.compute as pc

from kclient_quota.spark.otlp_view import descriptor
from kclient_quota.spark.schema import SERIES
from telemetry.errors import InvalidPayloadError

_NANOS_PER_MS = pa.scalar(1_000_000, pa.uint64())
_LARGEST = pa.scalar(2**63 - 1, pa.uint64())
_DELTA = 1
_OPAQUE = ("array_value", "kvlist_value", "bytes_value")


@lru_cache(maxsize=1)
def _handler() -> Any:
    return ptars.HandlerPool([descriptor().file]).get_for_message(descriptor())


def decode_many(payloads: pa.Array) -> list[pa.RecordBatch]:
    """The data points of all payloads.

    Args:
        payloads: ExportMetricsServiceRequests, not compressed; null and empty ones have no points.

    Returns:
        batches of the schema `SERIES`, `row` being the position in `payloads`.

    Raises:
        InvalidPayloadError: one of them is none, or holds what only the other decoder reads; which one is not told.
    """
    try:
        requests = _handler().array_to_record_batch(payloads)
    except ValueError as error:
        raise InvalidPayloadError(f"the payload is no OTLP metrics message: {error}") from error
    resources = requests.column(0)
    rows = pc.list_parent_indices(resources)
    each = resources.flatten()
    resource = _texts(_field(each, "resource", "attributes"))
    scopes = _field(each, "scope_metrics")
    of_resource = pc.list_parent_indices(scopes)
    families = _field(scopes.flatten(), "metrics")
    of_resource = of_resource.take(pc.list_parent_indices(families))
    metrics = families.flatten()
    found = []
    for kind in ("gauge", "sum", "histogram"):
        data = pc.struct_field(metrics, [kind])
        lists = pc.struct_field(data, ["data_points"])
        points = lists.flatten()
        if len(points):
            parent = pc.list_parent_indices(lists)
            index = of_resource.take(parent)
            columns = _columns(kind, points, data.take(parent), metrics.take(parent))
            columns |= {"row": rows.take(index).cast(pa.int64()), "resource": resource.take(index)}
            arrays = [
                columns[name] if name in columns else pa.nulls(len(points), kind_of)
                for name, kind_of in zip(SERIES.names, SERIES.types, strict=True)
            ]
            found.append(pa.RecordBatch.from_arrays(arrays, schema=SERIES))
    return found


def _columns(kind: str, points: pa.Array, data: pa.Array, metrics: pa.Array) -> dict[str, pa.Array]:
    """Columns of the points of one kind; `data` and `metrics` have been repeated for every point."""
    columns = {
        "metric": _field(metrics, "name"),
        "unit": _field(metrics, "unit"),
        "kind": pa.repeat(pa.scalar(kind), len(points)),
        "start_ms": _milliseconds(_field(points, "start_time_unix_nano")),
        "time_ms": _milliseconds(_field(points, "time_unix_nano")),
        "attributes": _texts(_field(points, "attributes")),
    }
    if kind != "gauge":
        is_delta = pc.equal(_field(data, "aggregation_temporality"), _DELTA)
        columns["temporality"] = pc.if_else(is_delta, "delta", "cumulative")
    if kind == "sum":
        columns["monotonic"] = _field(data, "is_monotonic")
    if kind == "histogram":
        columns["count"] = _bounded(_field(points, "count"))
        columns["sum"] = _field(points, "sum")
        columns["bounds"] = _field(points, "explicit_bounds").cast(pa.list_(pa.float64()))
        columns["bucket_counts"] = _bounded_lists(_field(points, "bucket_counts"))
    else:
        columns["value"] = _finite(points)
    return columns


def _field(structs: pa.Array, *path: str) -> pa.Array:
    """A field, null wherever the struct is."""
    return pc.struct_field(structs, list(path))


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


def _texts(pairs: pa.Array) -> pa.Array:
    """Lists of key-values as maps of texts; of a key that comes twice the last value holds, as in a dictionary."""
    lengths = pc.list_value_length(pairs).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    flat = pairs.flatten()
    keys, values = _field(flat, "key"), _text(_field(flat, "value"))
    if _has_twins(keys, lengths):
        raise InvalidPayloadError("an attribute stands twice in a list")
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, values)


def _has_twins(keys: pa.Array, lengths: "np.ndarray[Any, np.dtype[np.int64]]") -> bool:
    if not len(keys) or lengths.max() <= 1:
        return False
    codes = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    pairs = np.repeat(np.arange(len(lengths)), lengths) * (codes.max() + 1) + codes
    return len(np.unique(pairs)) < len(pairs)


def _text(values: pa.Array) -> pa.Array:
    for name in _OPAQUE:
        opaque = _field(values, name)
        if opaque.null_count < len(opaque):
            raise InvalidPayloadError(f"an attribute has a {name}, which a column of texts does not hold")
    doubles = _field(values, "double_value")
    if doubles.null_count < len(doubles):  # Python's way of writing them, which Arrow's is not
        doubles = pa.array([None if each is None else str(each) for each in doubles.to_pylist()], pa.string())
    else:
        doubles = pa.nulls(len(doubles), pa.string())
    return pc.coalesce(
        _field(values, "string_value"),
        _field(values, "bool_value").cast(pa.string()),
        _field(values, "int_value").cast(pa.string()),
        doubles,
        pa.scalar(""),
    )
