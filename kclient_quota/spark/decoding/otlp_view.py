"""OTLP's metrics as far as Kafka's clients use them: the same field numbers, no recursion, so that Arrow can hold them.

Values that a flat table has no room for (arrays, key-value lists, bytes) are seen as opaque bytes: that they are there
is enough to hand the payload to the other decoder.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool  # type: ignore[import-untyped] # protobuf ships no types

_Field = descriptor_pb2.FieldDescriptorProto
_TEXT, _BYTES, _BOOL = _Field.TYPE_STRING, _Field.TYPE_BYTES, _Field.TYPE_BOOL
_INT, _DOUBLE, _ENUM = _Field.TYPE_INT64, _Field.TYPE_DOUBLE, _Field.TYPE_INT32
_FIXED, _SIGNED = _Field.TYPE_FIXED64, _Field.TYPE_SFIXED64
_PACKAGE: Final = "kclient_quota.otlp_view"

# name, number, type (a name: a message of this file), then "many" or "one" (of the message's oneof)
_MESSAGES: Final[dict[str, tuple[tuple[Any, ...], ...]]] = {
    "AnyValue": (
        ("string_value", 1, _TEXT, "one"),
        ("bool_value", 2, _BOOL, "one"),
        ("int_value", 3, _INT, "one"),
        ("double_value", 4, _DOUBLE, "one"),
        ("array_value", 5, _BYTES, "one"),
        ("kvlist_value", 6, _BYTES, "one"),
        ("bytes_value", 7, _BYTES, "one"),
    ),
    "KeyValue": (("key", 1, _TEXT), ("value", 2, "AnyValue")),
    "Resource": (("attributes", 1, "KeyValue", "many"),),
    "NumberDataPoint": (
        ("start_time_unix_nano", 2, _FIXED),
        ("time_unix_nano", 3, _FIXED),
        ("as_double", 4, _DOUBLE, "one"),
        ("as_int", 6, _SIGNED, "one"),
        ("attributes", 7, "KeyValue", "many"),
    ),
    "HistogramDataPoint": (
        ("start_time_unix_nano", 2, _FIXED),
        ("time_unix_nano", 3, _FIXED),
        ("count", 4, _FIXED),
        ("sum", 5, _DOUBLE),
        ("bucket_counts", 6, _FIXED, "many"),
        ("explicit_bounds", 7, _DOUBLE, "many"),
        ("attributes", 9, "KeyValue", "many"),
    ),
    "Gauge": (("data_points", 1, "NumberDataPoint", "many"),),
    "Sum": (
        ("data_points", 1, "NumberDataPoint", "many"),
        ("aggregation_temporality", 2, _ENUM),
        ("is_monotonic", 3, _BOOL),
    ),
    "Histogram": (("data_points", 1, "HistogramDataPoint", "many"), ("aggregation_temporality", 2, _ENUM)),
    "Metric": (
        ("name", 1, _TEXT),
        ("unit", 3, _TEXT),
        ("gauge", 5, "Gauge", "one"),
        ("sum", 7, "Sum", "one"),
        ("histogram", 9, "Histogram", "one"),
        ("exponential_histogram", 10, _BYTES, "one"),
        ("summary", 11, _BYTES, "one"),
    ),
    "ScopeMetrics": (("metrics", 2, "Metric", "many"),),
    "ResourceMetrics": (("resource", 1, "Resource"), ("scope_metrics", 2, "ScopeMetrics", "many")),
    "Request": (("resource_metrics", 1, "ResourceMetrics", "many"),),
}


@lru_cache
def descriptor(left_out: frozenset[tuple[str, str]] = frozenset()) -> Any:
    """The descriptor of the request, in a pool of its own.

    Args:
        left_out: message and field, of what is to be passed over unread: a third of the time went into what no column
            was made of.
    """
    file = descriptor_pb2.FileDescriptorProto(name="kclient_quota_otlp_view.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        _add(file.message_type.add(name=name), [field for field in fields if (name, field[0]) not in left_out])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool.FindMessageTypeByName(f"{_PACKAGE}.Request")


def _add(message: Any, fields: Sequence[tuple[Any, ...]]) -> None:
    for name, number, kind, *how in fields:
        field = message.field.add(name=name, number=number)
        field.label = _Field.LABEL_REPEATED if "many" in how else _Field.LABEL_OPTIONAL
        if isinstance(kind, str):
            field.type = _Field.TYPE_MESSAGE
            field.type_name = f".{_PACKAGE}.{kind}"
        else:
            field.type = kind
        if "one" in how:
            if not message.oneof_decl:
                message.oneof_decl.add(name="of")
            field.oneof_index = 0
