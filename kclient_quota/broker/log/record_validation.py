"""Whether a batch holds the records that it says: Kafka's `LogValidator` for message format 2.

Kafka reads every record of every batch. Here, so that nobody's batch keeps others waiting, the first 100 are read field
by field and up to 30,000 by length and timestamp, and a compressed batch is read if it inflates to 1 MiB at most;
of what is larger the header is believed.
"""

from typing import NamedTuple

from kclient_telemetry.compression import decompress
from kclient_telemetry.errors import PayloadTooLargeError, TelemetryError, UnsupportedCompressionTypeError

from kclient_quota.wire.batches import HEADER_BYTES, BatchHeader, Buffer

MOST_INFLATED_BYTES = 1024 * 1024
READ_WHOLE = 100
READ_AT_MOST = 30_000
NO_TIMESTAMP = -1
_MOST_SHIFT = 63
_KNOWN_COMPRESSIONS = range(5)
_NEVER = -1


class UnsoundRecords(Exception):  # noqa: N818 - an answer to the client, not an error of the program
    """The records are not what the batch says."""


class RecordsSeen(NamedTuple):
    """What reading the records showed.

    Attributes:
        max_timestamp: the largest timestamp, which the header should state.
        untimely: index and timestamp of records outside the limits.
        keyless: indexes of records without a key, if those were asked for.
    """

    max_timestamp: int
    untimely: tuple[tuple[int, int], ...] = ()
    keyless: tuple[int, ...] = ()


def see_records(
    batch: Buffer, header: BatchHeader, least_ms: int, most_ms: int, *, needs_keys: bool = False
) -> RecordsSeen:
    """Read the records of a batch.

    Args:
        batch: exactly one v2 batch.
        header: its header.
        least_ms: the earliest timestamp that may be.
        most_ms: the latest.
        needs_keys: whether to look for records without keys.

    Raises:
        UnsoundRecords: count, lengths or fields are wrong, or it cannot be inflated.
    """
    body = _body(batch, header)
    if body is None:
        newest = header.max_timestamp
        return RecordsSeen(newest, () if newest <= most_ms else ((header.record_count - 1, newest),))
    try:
        newest_ms = None if needs_keys else _newest_of_sound(body, header, least_ms, most_ms)
        if newest_ms is not None:
            return RecordsSeen(newest_ms)
        return _read(body, header, least_ms, most_ms, needs_keys=needs_keys)
    except IndexError:
        raise UnsoundRecords("the batch ends within a record") from None


def _body(batch: Buffer, header: BatchHeader) -> bytes | None:
    """The records, inflated; None where that would be too much, or no library for it is there."""
    body = bytes(memoryview(batch)[HEADER_BYTES : header.size])
    kind = header.compression
    if not kind:
        return body
    if kind not in _KNOWN_COMPRESSIONS:
        raise UnsoundRecords(f"compression {kind} is unknown")
    try:
        return decompress(body, kind, MOST_INFLATED_BYTES)
    except (PayloadTooLargeError, UnsupportedCompressionTypeError):
        return None
    except TelemetryError as error:
        raise UnsoundRecords(f"the compressed records cannot be read: {error}") from None


def _newest_of_sound(body: bytes, header: BatchHeader, least_ms: int, most_ms: int) -> int | None:
    """The largest timestamp if there is nothing to be said against the records; None leaves it to `_read` to say what.

    This is what a broker spends most of its time on where messages are small, hence without a call for each record.
    """
    count, position = min(header.record_count, READ_AT_MOST), 0
    newest, oldest = NO_TIMESTAMP - header.base_timestamp, most_ms - header.base_timestamp
    for _ in range(min(count, READ_WHOLE)):
        end, delta, fields = _frame(body, position)
        if _after_fields(body, fields) != end:
            return None
        newest, oldest, position = max(newest, delta), min(oldest, delta), end
    last = _NEVER
    for _ in range(count - READ_WHOLE):
        size = body[position]
        if size > 0x7F:  # noqa: PLR2004 - more bytes follow
            more = body[position + 1]
            if more > 0x7F:  # noqa: PLR2004
                size, position = _more(body, position + 1, size)
            else:
                size += (more << 7) - 0x80
                position += 2
        else:
            position += 1
        if size & 1:
            return None
        stamp = body[position + 1]
        if stamp > 0x7F:  # noqa: PLR2004
            more = body[position + 2]
            stamp = _more(body, position + 2, stamp)[0] if more > 0x7F else stamp + (more << 7) - 0x80  # noqa: PLR2004
        if stamp != last:
            last, delta = stamp, (stamp >> 1) ^ -(stamp & 1)
            newest, oldest = max(newest, delta), min(oldest, delta)
        position += size >> 1
    is_all = header.record_count <= READ_AT_MOST
    newest_ms, oldest_ms = newest + header.base_timestamp, oldest + header.base_timestamp
    if position > len(body) or (is_all and position < len(body)) or oldest_ms < least_ms or newest_ms > most_ms:
        return None
    return newest_ms if is_all else max(newest_ms, header.max_timestamp)


def _read(body: bytes, header: BatchHeader, least_ms: int, most_ms: int, *, needs_keys: bool) -> RecordsSeen:
    total, base_ms = len(body), header.base_timestamp
    position, newest_ms = 0, NO_TIMESTAMP
    untimely: list[tuple[int, int]] = []
    keyless: list[int] = []
    for index in range(min(header.record_count, READ_AT_MOST)):
        end, time_ms, fields = _frame(body, position)
        if end > total:
            raise UnsoundRecords(f"record {index} does not fit into its batch")
        time_ms += base_ms
        newest_ms = max(newest_ms, time_ms)
        if not least_ms <= time_ms <= most_ms and time_ms != NO_TIMESTAMP:
            untimely.append((index, time_ms))
        if needs_keys and _has_no_key(body, fields):
            keyless.append(index)
        if index < READ_WHOLE and _after_fields(body, fields) != end:
            raise UnsoundRecords(f"the fields of record {index} do not fill its length")
        position = end
    if header.record_count > READ_AT_MOST:
        newest_ms = max(newest_ms, header.max_timestamp)
    elif position != total:
        raise UnsoundRecords(f"{total - position} bytes follow the last record")
    return RecordsSeen(newest_ms, tuple(untimely), tuple(keyless))


def _frame(body: bytes, position: int) -> tuple[int, int, int]:
    """Where the record at `position` ends, its timestamp delta, and where its offset delta begins."""
    size = body[position]
    position += 1
    if size > 0x7F:  # noqa: PLR2004 - more bytes follow
        size, position = _more(body, position, size)
    if size & 1:
        raise UnsoundRecords("a record has a negative length")
    end = position + (size >> 1)
    delta = body[position + 1]
    position += 2
    if delta > 0x7F:  # noqa: PLR2004 - more bytes follow
        delta, position = _more(body, position, delta)
    return end, (delta >> 1) ^ -(delta & 1), position


def _more(body: bytes, position: int, low: int) -> tuple[int, int]:
    """An unsigned varint whose first byte `low` says that others follow, and the position behind it."""
    value, shift = low & 0x7F, 7
    while True:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte <= 0x7F:  # noqa: PLR2004 - the last byte
            return value, position
        shift += 7
        if shift > _MOST_SHIFT:
            raise UnsoundRecords("a number is longer than ten bytes")


def _has_no_key(body: bytes, position: int) -> bool:
    _, position = _more(body, position, 0x80) if body[position] > 0x7F else (0, position + 1)  # noqa: PLR2004
    return bool(body[position] & 1)


def _after_fields(body: bytes, position: int) -> int:
    """Where a record ends whose offset delta, key, value and headers begin at `position`."""
    while body[position] > 0x7F:  # noqa: PLR2004 - the offset delta
        position += 1
    position += 1
    for _ in (0, 1):
        size = body[position]
        position += 1
        if size > 0x7F:  # noqa: PLR2004 - more bytes follow
            size, position = _more(body, position, size)
        if not size & 1:
            position += size >> 1
    count = body[position]
    position += 1
    return position if not count else _after_headers(body, position, count)


def _after_headers(body: bytes, position: int, count: int) -> int:
    if count > 0x7F:  # noqa: PLR2004 - more bytes follow
        count, position = _more(body, position, count)
    if count & 1 or count > len(body) - position + 1:
        return _NEVER
    for _ in range(count >> 1):
        for is_name in (True, False):
            size = body[position]
            position += 1
            if size > 0x7F:  # noqa: PLR2004 - more bytes follow
                size, position = _more(body, position, size)
            if size & 1 and is_name:
                return _NEVER
            if not size & 1:
                position += size >> 1
    return position
