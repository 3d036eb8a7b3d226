"""Pushes to points on the executors, whatever the compression and whatever is wrong with some of them."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from kclient_telemetry.compression import CompressionType, decompress
from kclient_telemetry.errors import TelemetryError
from pyspark.sql import functions as F  # noqa: N812 # what every Spark program calls it

from kclient_quota.spark.decoding.fast_decode import decode_many
from kclient_quota.spark.decoding.point_rows import ALL, Shape, senders, table_rows
from kclient_quota.spark.decoding.push_rows import push_rows
from kclient_quota.spark.decoding.schema import (
    EVERYTHING,
    KNOWN_AS,
    LETTER,
    RECEIVED_MS,
    SENDER,
    TABLE,
    UNTIMELY,
    Wanted,
    ddl,
)
from kclient_quota.spark.decoding.slow_decode import decode_one

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_PAYLOAD_BYTES: Final = 16 * 1024 * 1024
"""What a push may inflate to; Kafka's own bound is `telemetry.max.bytes`, 1 MiB."""

TYPES: Final = {
    "value": "binary",
    "compression_type": "int",
    **{known: ddl(pa.schema([TABLE.field(name)])).split()[-1] for name, known in KNOWN_AS.items()},
}
"""Columns that pushes may have, and their types in Spark's words."""

_AT_ONCE: Final = 2_000
_UNPACKED: Final = int(CompressionType.NONE)


def decode(pushes: "DataFrame", shape: Shape = ALL) -> "DataFrame":
    """Pushes decoded, malformed ones included; take `points` and `dead_letters` of it.

    Args:
        pushes: column `value`: OTLP as a client or a receiver sent it. Optional: `compression_type` (Kafka's id; none
            means not compressed) and columns of the sender by the receiver's names (`schema.KNOWN_AS`), which count
            more than what the push says of its sender.
        shape: which points, and which columns of them; `measures.MEASURED` is all that the jobs need, and faster;
            `measures.PUSHED` all that `usage` needs of a stream, and faster still.
    """
    given = set(pushes.columns)
    columns = [
        (F.col(name) if name in given else F.lit(None)).cast(kind).alias(name)
        for name, kind in TYPES.items()
        if name in given or name == "value"
    ]
    return pushes.select(*columns).mapInArrow(partial(_decode_batches, shape=shape), ddl(shape.decoded))


def points(decoded: "DataFrame") -> "DataFrame":
    """The flat table (`decoding.schema`) of what could be decoded, in the shape it was decoded to."""
    return decoded.where(F.col("error").isNull()).drop(*LETTER.names)


def dead_letters(decoded: "DataFrame") -> "DataFrame":
    """What could not be decoded: `error` (why), `payload` (as it came) and who sent it, as far as that is known."""
    sender = [name for name in SENDER if name in decoded.columns]
    return decoded.where(F.col("error").isNotNull()).select(*LETTER.names, *sender)


def _decode_batches(batches: Iterator[pa.RecordBatch], shape: Shape) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, _AT_ONCE):
            yield from _decode_batch(batch.slice(start, _AT_ONCE), shape)


def _decode_batch(batch: pa.RecordBatch, shape: Shape) -> Iterator[pa.RecordBatch]:
    payloads, errors = _inflated(batch)
    known = senders(batch)
    payloads = _timely(payloads, known, errors)
    found = decode_all(payloads, errors, shape.wanted(known))
    if shape.spans is None:
        for each in found:
            yield table_rows(each, known, shape)
    else:
        yield push_rows(list(found), known, shape)
    if errors:
        yield _letters(batch, known, errors, shape)


def decode_all(payloads: pa.Array, errors: dict[int, str], wanted: Wanted = EVERYTHING) -> Iterator[pa.RecordBatch]:
    """The points of all payloads, by the fast decoder where it can, else by the other one.

    Args:
        payloads: not compressed.
        errors: gets what is wrong with those that nobody reads, by position.
        wanted: which points, what of them.
    """
    yield from _bisected(payloads, 0, errors, wanted)


def _bisected(payloads: pa.Array, first: int, errors: dict[int, str], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Halve until the payloads that the fast decoder refuses stand alone; what nobody reads goes to `errors`."""
    try:
        found = decode_many(payloads, wanted)
    except (TelemetryError, pa.ArrowInvalid):
        pass  # who is to blame is found below
    else:
        for batch in found:
            rows = pc.add(batch.column("row"), first) if first else batch.column("row")
            yield batch.set_column(0, wanted.schema.field(0), rows)
        return
    if len(payloads) > 1:
        half = len(payloads) // 2
        yield from _bisected(payloads.slice(0, half), first, errors, wanted)
        yield from _bisected(payloads.slice(half), first + half, errors, wanted)
        return
    try:
        yield decode_one(payloads[0].as_py(), first, wanted)
    except (TelemetryError, pa.ArrowInvalid) as error:
        errors[first] = str(error)


def _inflated(batch: pa.RecordBatch) -> tuple[pa.Array, dict[int, str]]:
    values = batch.column("value")
    errors: dict[int, str] = {}
    if "compression_type" not in batch.schema.names:
        return values, errors
    types = pc.fill_null(batch.column("compression_type"), _UNPACKED)
    if pc.all(pc.equal(types, _UNPACKED)).as_py():
        return values, errors
    inflated: list[bytes | None] = []
    for row, (value, kind) in enumerate(zip(values.to_pylist(), types.to_pylist(), strict=True)):
        inflated.append(None)
        if value:
            try:
                inflated[row] = decompress(value, kind, MAX_PAYLOAD_BYTES)
            except TelemetryError as error:
                errors[row] = str(error)
    return pa.array(inflated, pa.binary()), errors


def _timely(payloads: pa.Array, known: dict[str, pa.Array], errors: dict[int, str]) -> pa.Array:
    """Only payloads that were received at some time: the calendars of jobs and reports end with the year 9999."""
    received = known.get("received_ms")
    if received is None:
        return payloads
    first, end = RECEIVED_MS
    is_wrong = pc.fill_null(pc.or_(pc.less(received, first), pc.greater_equal(received, end)), False)
    wrong = pc.indices_nonzero(is_wrong).to_pylist()
    for row in wrong:
        errors.setdefault(row, f"{UNTIMELY} {received[row]}")
    return pc.if_else(is_wrong, pa.scalar(None, payloads.type), payloads) if wrong else payloads


def _letters(batch: pa.RecordBatch, known: dict[str, pa.Array], errors: dict[int, str], shape: Shape) -> pa.RecordBatch:
    rows = sorted(errors)
    columns: dict[str, Any] = {name: column.take(pa.array(rows)) for name, column in known.items()}
    columns["error"] = pa.array([errors[row] for row in rows])
    columns["payload"] = batch.column("value").take(pa.array(rows))
    return pa.RecordBatch.from_arrays(
        [columns[f.name].cast(f.type) if f.name in columns else pa.nulls(len(rows), f.type) for f in shape.decoded],
        schema=shape.decoded,
    )
