"""Records inside a batch (magic 2): build batches, read records, decompress within bounds, transaction markers.

batch = build_batch([Record(value=b"hello", timestamp_ms=0)])
for record in iterate_records(batch): ...
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kclient_telemetry.compression import CompressionType, compress, decompress
from kclient_telemetry.errors import TelemetryError

from kclient_quota.errors import WireError
from kclient_quota.wire.batches import (
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    check_crc,
    compute_crc,
    parse_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kclient_quota.wire.batches import Buffer

MAX_INFLATED_BYTES = 64 * 1024 * 1024
"""The most that one batch may inflate to unless the caller says otherwise."""

ABORT = 0
COMMIT = 1
_MAX_VARINT_SHIFT = 63
_LEAST_RECORD_BYTES = 7
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


@dataclass(slots=True)
class Record:
    """One record.

    Attributes:
        value: None is a tombstone.
        key: None when there is none.
        headers: names and values, in order; names may repeat.
        timestamp_ms: milliseconds since the epoch, -1 for none.
        offset: its place in the log; ignored when a batch is built.
    """

    value: bytes | None = None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int = -1
    offset: int = -1


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """A batch of these records, with consecutive offsets.

    Args:
        records: at least one.
        base_offset: offset of the first.
        compression: Kafka's compression id.
        producer_id: of an idempotent producer.
        producer_epoch: of an idempotent producer.
        base_sequence: sequence number of the first record.
        attributes: `TRANSACTIONAL`, `CONTROL` or both; compression is added.
        leader_epoch: as the broker would set it.

    Raises:
        WireError: there are no records, or the compression id is unknown.
    """
    if not records:
        raise WireError("a record batch needs at least one record")
    base_timestamp = records[0].timestamp_ms
    body = b"".join(_encode_record(record, delta, base_timestamp) for delta, record in enumerate(records))
    if compression:
        body = _compress(body, compression)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body),
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes | compression,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp_ms for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return _sealed(header, body)


class KeyedBytes(NamedTuple):
    """A record as it stands in its batch.

    Attributes:
        key: None when there is none.
        has_value: whether it is no tombstone.
        offset: its place in the log.
        timestamp_ms: milliseconds since the epoch.
        encoded: all of it.
    """

    key: bytes | None
    has_value: bool
    offset: int
    timestamp_ms: int
    encoded: bytes


def iterate_keys(
    buffer: Buffer, header: BatchHeader, max_inflated_bytes: int = MAX_INFLATED_BYTES
) -> Iterator[KeyedBytes]:
    """The records of a batch, none of them taken apart further than its key; the checksum is not looked at.

    Raises:
        WireError: the batch inflates to too much or holds other records than it says.
    """
    body = bytes(memoryview(buffer)[HEADER_BYTES : header.size])
    if header.compression:
        body = _decompress(body, header.compression, max_inflated_bytes)
    position = 0
    for _ in range(header.record_count):
        start = position
        try:
            size, position = read_varint(body, position)
            end = position + size
            timestamp_delta, position = read_varint(body, position + 1)
            offset_delta, position = read_varint(body, position)
            key, position = _read_bytes(body, position)
            value_size, _ = read_varint(body, position)
        except IndexError as error:
            raise WireError(f"a record is malformed: {error}") from None
        if not start < position < end <= len(body):
            raise WireError(f"a record of {size} bytes does not fill its size")
        timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
        yield KeyedBytes(key, value_size >= 0, header.base_offset + offset_delta, timestamp, body[start:end])
        position = end


def with_records(header: BatchHeader, records: Sequence[KeyedBytes]) -> bytearray:
    """A batch that holds some of its records only, each at the offset it had; the others' offsets are gaps.

    Args:
        header: of the batch as it was.
        records: those that stay, at least one.

    Raises:
        WireError: the compression id is unknown.
    """
    body = b"".join(record.encoded for record in records)
    if header.compression:
        body = _compress(body, header.compression)
    changed = header._replace(
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body),
        max_timestamp=max(record.timestamp_ms for record in records),
        record_count=len(records),
    )
    return _sealed(changed, body)


def without_records(header: BatchHeader) -> bytearray:
    """A batch that holds nothing any more, but says whose it was, and its offsets and sequences.

    As Apache Kafka's cleaner leaves the last batch of a producer (`DefaultRecordBatch.writeEmptyHeader`).
    """
    changed = header._replace(
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES,
        attributes=header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL),
        base_timestamp=-1,
        record_count=0,
    )
    return _sealed(changed, b"")


def _sealed(header: BatchHeader, body: bytes) -> bytearray:
    """Header and records with the checksum that they need."""
    batch = bytearray(HEADER.pack(*header) + body)
    struct.pack_into(">I", batch, CRC_START - 4, compute_crc(batch, 0, len(batch)))
    return batch


def control_batch(
    marker: int, *, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0, timestamp_ms: int = -1
) -> bytearray:
    """The marker that ends a transaction in one partition (`EndTransactionMarker`).

    Args:
        marker: `COMMIT` or `ABORT`.
        producer_id: whose transaction.
        producer_epoch: its epoch.
        coordinator_epoch: of the transaction coordinator.
        timestamp_ms: when it was written.
    """
    record = Record(
        key=_MARKER_KEY.pack(0, marker), value=_MARKER_VALUE.pack(0, coordinator_epoch), timestamp_ms=timestamp_ms
    )
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, attributes=TRANSACTIONAL | CONTROL
    )


def marker_type(record: Record) -> int:
    """`COMMIT` or `ABORT` of a control batch's record; other numbers are other kinds of control records.

    Raises:
        WireError: it has no such key.
    """
    if record.key is None or len(record.key) < _MARKER_KEY.size:
        raise WireError("a control record needs a key of four bytes")
    _version, marker = _MARKER_KEY.unpack_from(record.key)
    return int(marker)


def iterate_records(
    buffer: Buffer,
    offset: int = 0,
    *,
    header: BatchHeader | None = None,
    max_inflated_bytes: int = MAX_INFLATED_BYTES,
    verify: bool = True,
) -> Iterator[Record]:
    """The records of the batch at `offset`, one after the other.

    Args:
        buffer: holds the batch.
        offset: where it starts.
        header: what `parse_header` made of it, if known already.
        max_inflated_bytes: the most that may come out of a compressed batch.
        verify: check the checksum first.

    Raises:
        WireError: the batch is corrupt, inflates to too much or holds other records than it says.
    """
    head = header or parse_header(buffer, offset)
    if verify and not check_crc(buffer, offset, head):
        raise WireError(f"the batch at offset {head.base_offset} fails its checksum")
    body = bytes(memoryview(buffer)[offset + HEADER_BYTES : offset + head.size])
    if head.compression:
        body = _decompress(body, head.compression, max_inflated_bytes)
    if head.record_count * _LEAST_RECORD_BYTES > len(body):
        raise WireError(f"a batch claims {head.record_count} records in {len(body)} bytes")
    position = 0
    for _ in range(head.record_count):
        record, position = _decode_record(body, position, head)
        yield record
    if position != len(body):
        raise WireError(f"a batch has {len(body) - position} bytes behind its last record")


def _encode_record(record: Record, delta: int, base_timestamp: int) -> bytes:
    out = bytearray(b"\x00")
    out += varint(record.timestamp_ms - base_timestamp)
    out += varint(delta)
    _append_bytes(out, record.key)
    _append_bytes(out, record.value)
    out += varint(len(record.headers))
    for name, value in record.headers:
        _append_bytes(out, name.encode())
        _append_bytes(out, value)
    return varint(len(out)) + out


def _append_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += b"\x01"  # the zigzag of -1
    else:
        out += varint(len(value))
        out += value


def varint(value: int) -> bytes:
    """A zigzag varint (Kafka's VARINT and VARLONG)."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_varint(body: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint and the position behind it.

    Raises:
        WireError: it is longer than ten bytes.
        IndexError: the bytes end too early.
    """
    byte = body[position]
    position += 1
    value = byte & 0x7F
    shift = 7
    while byte & 0x80:
        if shift > _MAX_VARINT_SHIFT:
            raise WireError("a varint is longer than ten bytes")
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), position


def _decode_record(body: bytes, position: int, head: BatchHeader) -> tuple[Record, int]:
    try:
        size, position = read_varint(body, position)
        end = position + size
        timestamp_delta, position = read_varint(body, position + 1)
        offset_delta, position = read_varint(body, position)
        key, position = _read_bytes(body, position)
        value, position = _read_bytes(body, position)
        count, position = read_varint(body, position)
        headers = _read_headers(body, position, count, end) if count else ()
    except (IndexError, UnicodeDecodeError) as error:
        raise WireError(f"a record is malformed: {error}") from None
    if end > len(body) or size < 0 or (not count and position != end):
        raise WireError(f"a record of {size} bytes does not fill its size")
    timestamp = head.max_timestamp if head.is_log_append_time else head.base_timestamp + timestamp_delta
    return Record(value, key, headers, timestamp, head.base_offset + offset_delta), end


def _read_bytes(body: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(body, position)
    if size < 0:
        return None, position
    end = position + size
    if end > len(body):
        raise WireError(f"a record claims {size} bytes with {len(body) - position} left")
    return body[position:end], end


def _read_headers(body: bytes, position: int, count: int, end: int) -> list[tuple[str, bytes | None]]:
    if not 0 <= count * 2 <= end - position:
        raise WireError(f"a record claims {count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(body, position)
        if name is None:
            raise WireError("a record header has no name")
        value, position = _read_bytes(body, position)
        headers.append((name.decode(), value))
    if position != end:
        raise WireError("a record's headers do not fill its size")
    return headers


def _compress(body: bytes, compression: int) -> bytes:
    try:
        return compress(body, CompressionType(compression))
    except ValueError as error:
        raise WireError(f"compression {compression} is unknown; use 0 to 4") from error


def _decompress(body: bytes, compression: int, max_bytes: int) -> bytes:
    try:
        return decompress(body, compression, max_bytes)
    except TelemetryError as error:
        raise WireError(f"a compressed batch cannot be read: {error}") from error
