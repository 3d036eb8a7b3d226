"""The 61-byte header of a record batch (magic 2), which is all a broker needs of it.

The checksum starts behind the leader epoch, so base offset and leader epoch may be written into a batch in place.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import crc32c

from kclient_quota.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Iterator

Buffer = bytes | bytearray | memoryview

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
MAGIC = 2
LOG_OVERHEAD_BYTES = 12
"""Base offset and length, which the length does not count."""

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
CRC_START = 21
_LEADER_EPOCH_START = 12
_CRC_POSITION = 17
_ATTRIBUTES_POSITION = 21
_MAX_TIMESTAMP_POSITION = 35
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_SHORT = struct.Struct(">h")


class BatchHeader(NamedTuple):
    """A record batch without its records; Kafka's names (`DefaultRecordBatch`).

    Attributes:
        base_offset: offset of the first record.
        batch_length: bytes behind this field.
        partition_leader_epoch: set by the broker.
        magic: 2.
        crc: CRC-32C of everything behind it.
        attributes: compression, timestamp type, transactional, control.
        last_offset_delta: of the last record, also of one that compaction removed.
        base_timestamp: milliseconds; of the first record.
        max_timestamp: milliseconds; the append time when attributes say so.
        producer_id: -1 without idempotence.
        producer_epoch: -1 without idempotence.
        base_sequence: -1 without idempotence.
        record_count: records in the batch.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def compression(self) -> int:
        """Kafka's compression id: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether all records carry `max_timestamp`, the broker's append time."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch is a transaction marker, which no application sees."""
        return bool(self.attributes & CONTROL)


def parse_header(buffer: Buffer, offset: int = 0, end: int | None = None) -> BatchHeader:
    """The header at `offset`; the whole batch must lie before `end`.

    Raises:
        WireError: no batch of magic 2 is there, or it is cut short.
    """
    left = (len(buffer) if end is None else end) - offset
    if left < HEADER_BYTES:
        raise WireError(f"a record batch needs {HEADER_BYTES} bytes, {max(left, 0)} are left")
    header = BatchHeader._make(HEADER.unpack_from(buffer, offset))
    if header.magic != MAGIC:
        raise WireError(f"record batches of magic {header.magic} are not spoken; use message format 2")
    if header.size < HEADER_BYTES or header.size > left:
        raise WireError(f"a record batch claims {header.size} bytes with {left} left")
    if header.record_count < 0 or header.last_offset_delta < 0:
        raise WireError("a record batch has a negative number of records")
    return header


def iterate_batches(
    buffer: Buffer, offset: int = 0, end: int | None = None, *, partial: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the batches from `offset` to `end`.

    Args:
        buffer: holds the batches one after the other.
        offset: where the first starts.
        end: where the last ends, by default where the buffer does.
        partial: stop silently at a batch that is cut short, as brokers may send it last in a Fetch response.

    Raises:
        WireError: what stands there is no batch.
    """
    stop = len(buffer) if end is None else end
    while offset < stop:
        if partial and _is_cut_short(buffer, offset, stop):
            return
        header = parse_header(buffer, offset, stop)
        yield offset, header
        offset += header.size


def _is_cut_short(buffer: Buffer, offset: int, stop: int) -> bool:
    if stop - offset < HEADER_BYTES:
        return True
    (length,) = _EPOCH.unpack_from(buffer, offset + 8)
    return bool(length > stop - offset - LOG_OVERHEAD_BYTES)


def compute_crc(buffer: Buffer, offset: int, size: int) -> int:
    """CRC-32C of a batch of `size` bytes, as its header should state it."""
    crc: int = crc32c.crc32c(memoryview(buffer)[offset + CRC_START : offset + size])
    return crc


def check_crc(buffer: Buffer, offset: int, header: BatchHeader) -> bool:
    """Whether the batch at `offset` is what its producer sent."""
    return compute_crc(buffer, offset, header.size) == header.crc


def patch(buffer: bytearray | memoryview, offset: int, *, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch at `offset`; its checksum stays true."""
    _OFFSET.pack_into(buffer, offset, base_offset)
    _EPOCH.pack_into(buffer, offset + _LEADER_EPOCH_START, leader_epoch)


def patch_append_time(buffer: bytearray | memoryview, offset: int, append_time_ms: int) -> None:
    """Give the batch at `offset` the broker's append time (`LogAppendTime`), and the checksum that this needs."""
    header = parse_header(buffer, offset)
    _SHORT.pack_into(buffer, offset + _ATTRIBUTES_POSITION, header.attributes | LOG_APPEND_TIME)
    _OFFSET.pack_into(buffer, offset + _MAX_TIMESTAMP_POSITION, append_time_ms)
    _CRC.pack_into(buffer, offset + _CRC_POSITION, compute_crc(buffer, offset, header.size))


def with_max_timestamp(batch: Buffer, max_timestamp: int) -> bytearray:
    """A copy of the batch whose header states this timestamp, and the checksum that this needs."""
    copy = bytearray(batch)
    _OFFSET.pack_into(copy, _MAX_TIMESTAMP_POSITION, max_timestamp)
    _CRC.pack_into(copy, _CRC_POSITION, compute_crc(copy, 0, len(copy)))
    return copy
