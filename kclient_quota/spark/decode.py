"""Pushes to points on the executors, whatever the compression and whatever is wrong with some of them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.spark.fast_decode import decode_many
from kclient_quota.spark.schema import CARRIED, COLUMNS, DECODED, SERIES, ddl
from kclient_quota.spark.slow_decode import decode_one
from telemetry.compression import CompressionType, decompress
from telemetry.errors import TelemetryError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MAX_PAYLOAD_BYTES: Final = 16 * 1024 * 1024
"""What a push may inflate to; Kafka's own bound is `telemetry.max.bytes`, 1 MiB."""

_AT_ONCE: Final = 1_000
_COORDINATOR: Final = 2**31 - 1
_INPUT: Final = ("value", "compression_type", *CARRIED.names)
_UNPACKED: Final = int(CompressionType.NONE)


def decode(pushes: "DataFrame") -> "DataFrame":
    """Pushes decoded, malformed ones included; take `points` and `dead_letters` of it.

    Args:
        pushes: column `value`: OTLP as a client or a receiver sent it. Optional: `compression_type` (Kafka's id; none
            means not compressed) and the columns of `kclient_quota.spark.schema.CARRIED`, which count more than what
            the push says of its sender.
    """
    given = set(pushes.columns)
    types = {field.name: field for field in CARRIED}
    columns = [
        F.col(name)
        if name in given
        else F.lit(None).cast(ddl(pa.schema([types[name]])).split()[-1] if name in types else "int").alias(name)
        for name in _INPUT
    ]
    return pushes.select(*columns).mapInArrow(_decode_batches, ddl(DECODED))


def points(decoded: "DataFrame") -> "DataFrame":
    """The flat table (`kclient_quota.spark.schema`) of what could be decoded."""
    good = decoded.where(F.col("error").isNull())
    time_ms = F.coalesce("time_ms", "received_unix_ms")
    return good.select(
        _known("client_instance_id").alias("client_instance_id"),
        _known("client_id").alias("client_id"),
        _without("User:", _known("principal")).alias("user"),
        F.col("resource")["group_id"].alias("group_id"),
        _broker().alias("broker"),
        _known("broker_id").alias("receiving_broker"),
        _known("cluster_id").alias("cluster_id"),
        _known("client_software_name").alias("software_name"),
        _known("client_software_version").alias("software_version"),
        _known("client_source_address").alias("source_address"),
        *("terminating", "push_interval_ms", F.col("received_unix_ms").alias("received_ms")),
        *(name for name in SERIES.names if name != "row"),
        F.timestamp_millis(time_ms).alias("time"),
    ).select(*COLUMNS)


def dead_letters(decoded: "DataFrame") -> "DataFrame":
    """What could not be decoded: `error` (why), `payload` (as it came) and who sent it, as far as that is known."""
    return decoded.where(F.col("error").isNotNull()).select("error", "payload", *CARRIED.names)


def _known(name: str) -> "Column":
    return F.coalesce(F.col(name), F.col("resource")[name])


def _without(prefix: str, text: "Column") -> "Column":
    return F.when(text.startswith(prefix), F.substr(text, F.lit(len(prefix) + 1))).otherwise(text)


def _broker() -> "Column":
    """`1` of librdkafka's `node.id` 1, of Java's `node_id` node-1, of its coordinator connection's node-2147483646."""
    raw = _without("node-", F.coalesce(F.col("attributes")["node.id"], F.col("attributes")["node_id"]))
    number = raw.try_cast("bigint")
    return (
        F.when(number < 0, None)  # a bootstrap connection, before the broker's id is known
        .when(number > _COORDINATOR // 2, (F.lit(_COORDINATOR) - number).cast("string"))
        .otherwise(raw)
    )


def _decode_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, _AT_ONCE):
            yield from _decode_batch(batch.slice(start, _AT_ONCE))


def _decode_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    payloads, errors = _inflated(batch)
    for found in decode_all(payloads, errors):
        rows = found.column("row")
        carried = [
            batch.column(name).take(rows).cast(kind) for name, kind in zip(CARRIED.names, CARRIED.types, strict=True)
        ]
        series = [found.column(name) for name in SERIES.names if name != "row"]
        nothing = [pa.nulls(found.num_rows, pa.string()), pa.nulls(found.num_rows, pa.binary())]
        yield pa.RecordBatch.from_arrays([*carried, *series, *nothing], schema=DECODED)
    if errors:
        yield _letters(batch, errors)


def decode_all(payloads: pa.Array, errors: dict[int, str]) -> Iterator[pa.RecordBatch]:
    """The points of all payloads, by the fast decoder where it can, else by the other one; see `_bisected`."""
    yield from _bisected(payloads, 0, errors)


def _bisected(payloads: pa.Array, first: int, errors: dict[int, str]) -> Iterator[pa.RecordBatch]:
    """Halve until the payloads that the fast decoder refuses stand alone; what nobody reads goes to `errors`."""
    try:
        found = decode_many(payloads)
    except (TelemetryError, pa.ArrowInvalid):
        pass  # who is to blame is found below
    else:
        for batch in found:
            rows = pa.compute.add(batch.column("row"), first)
            yield batch.set_column(0, SERIES.field(0), rows)
        return
    if len(payloads) > 1:
        half = len(payloads) // 2
        yield from _bisected(payloads.slice(0, half), first, errors)
        yield from _bisected(payloads.slice(half), first + half, errors)
        return
    try:
        yield decode_one(payloads[0].as_py(), first)
    except (TelemetryError, pa.ArrowInvalid) as error:
        errors[first] = str(error)


def _inflated(batch: pa.RecordBatch) -> tuple[pa.Array, dict[int, str]]:
    values, types = batch.column("value"), batch.column("compression_type")
    errors: dict[int, str] = {}
    if types.null_count == len(types):
        return values, errors
    inflated: list[bytes | None] = []
    for row, (value, kind) in enumerate(zip(values.to_pylist(), types.to_pylist(), strict=True)):
        inflated.append(None)
        if value:
            try:
                inflated[row] = decompress(value, _UNPACKED if kind is None else kind, MAX_PAYLOAD_BYTES)
            except TelemetryError as error:
                errors[row] = str(error)
    return pa.array(inflated, pa.binary()), errors


def _letters(batch: pa.RecordBatch, errors: dict[int, str]) -> pa.RecordBatch:
    rows = sorted(errors)
    columns: dict[str, Any] = {name: batch.column(name).take(pa.array(rows)) for name in CARRIED.names}
    columns["error"] = pa.array([errors[row] for row in rows])
    columns["payload"] = batch.column("value").take(pa.array(rows))
    return pa.RecordBatch.from_arrays(
        [columns[f.name].cast(f.type) if f.name in columns else pa.nulls(len(rows), f.type) for f in DECODED],
        schema=DECODED,
    )
