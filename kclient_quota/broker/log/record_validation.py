"""Whether a batch holds the records that it says: Kafka's `LogValidator` for message format 2.

Kafka reads every record of every batch. Here, so that nobody's batch keeps others waiting, the first 100 are read field
by field and up to 30,000 by length and timestamp, and a compressed batch is read if it inflates to 1 MiB at most;
of what is larger the header is believed.
"""

from typing import NamedTuple

from kclient_telemetry.compression import decompress
from kclient_telemetry.errors import PayloadTooLargeError, TelemetryError, UnsupportedCompressionTypeError

from kclient_quota.broker.log.alike_records import NotPlain, pass_over
from kclient_quota.broker.log.log_config import Appended
from kclient_quota.broker.log.record_fields import UnsoundRecords, after_fields, frame, has_no_key
from kclient_quota.wire.batches import HEADER_BYTES, BatchHeader, Buffer
from kclient_quota.wire.error_codes import ErrorCode

MOST_INFLATED_BYTES = 1024 * 1024
READ_WHOLE = 100
READ_AT_MOST = 30_000
NO_TIMESTAMP = -1
_KNOWN_COMPRESSIONS = range(5)
_WORTH_A_COPY_BYTES = 512
"""Records that are smaller on average are copied before they are read: single bytes are read faster from bytes."""


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
    newest_ms = _newest_of_sound(body, header, least_ms, most_ms, needs_keys=needs_keys)
    if newest_ms is not None:
        return RecordsSeen(newest_ms)
    try:
        return _read(body, header, least_ms, most_ms, needs_keys=needs_keys)
    except IndexError:
        raise UnsoundRecords("the batch ends within a record") from None


def _body(batch: Buffer, header: BatchHeader) -> Buffer | None:
    """The records, inflated; None where that would be too much, or no library for it is there."""
    stored, kind = memoryview(batch)[HEADER_BYTES : header.size], header.compression
    if not kind and len(stored) > header.record_count * _WORTH_A_COPY_BYTES:
        return stored
    body = bytes(stored)
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


def _newest_of_sound(body: Buffer, header: BatchHeader, least_ms: int, most_ms: int, *, needs_keys: bool) -> int | None:
    """The largest timestamp if there is nothing to be said against the records; None leaves it to `_read` to say."""
    count = min(header.record_count, READ_AT_MOST)
    whole = count if needs_keys else min(count, READ_WHOLE)
    try:
        passed = pass_over(body, count, whole, needs_keys=needs_keys)
    except (IndexError, UnsoundRecords, NotPlain):
        return None
    is_all = header.record_count <= READ_AT_MOST
    if passed.end > len(body) or (is_all and passed.end < len(body)):
        return None
    newest_ms = max(NO_TIMESTAMP, header.base_timestamp + passed.newest)
    if newest_ms > most_ms or header.base_timestamp + passed.oldest < least_ms:
        return None
    return newest_ms if is_all else max(newest_ms, header.max_timestamp)


def _read(body: Buffer, header: BatchHeader, least_ms: int, most_ms: int, *, needs_keys: bool) -> RecordsSeen:
    total, base_ms = len(body), header.base_timestamp
    position, newest_ms = 0, NO_TIMESTAMP
    untimely: list[tuple[int, int]] = []
    keyless: list[int] = []
    for index in range(min(header.record_count, READ_AT_MOST)):
        end, time_ms, fields = frame(body, position)
        if end > total:
            raise UnsoundRecords(f"record {index} does not fit into its batch")
        time_ms += base_ms
        newest_ms = max(newest_ms, time_ms)
        if not least_ms <= time_ms <= most_ms and time_ms != NO_TIMESTAMP:
            untimely.append((index, time_ms))
        if needs_keys and has_no_key(body, fields):
            keyless.append(index)
        if index < READ_WHOLE and after_fields(body, fields) != end:
            raise UnsoundRecords(f"the fields of record {index} do not fill its length")
        position = end
    if header.record_count > READ_AT_MOST:
        newest_ms = max(newest_ms, header.max_timestamp)
    elif position != total:
        raise UnsoundRecords(f"{total - position} bytes follow the last record")
    return RecordsSeen(newest_ms, tuple(untimely), tuple(keyless))


def refuse_records(seen: RecordsSeen, least_ms: int, most_ms: int) -> Appended:
    """Kafka's words, which name every record that is to blame (KIP-467)."""
    if seen.untimely:
        range_ms = f"The timestamp should be within [{least_ms}, {most_ms}]"
        late = tuple(
            (index, f"Timestamp {time_ms} of message with offset {index} is out of range. {range_ms}")
            for index, time_ms in seen.untimely
        )
        message = "One or more records have been rejected due to invalid timestamp"
        return Appended(ErrorCode.INVALID_TIMESTAMP, error_message=message, record_errors=late)
    keyless = tuple((index, "Compacted topic cannot accept message without key") for index in seen.keyless)
    message = "One or more records have been rejected"
    return Appended(ErrorCode.INVALID_RECORD, error_message=message, record_errors=keyless)
