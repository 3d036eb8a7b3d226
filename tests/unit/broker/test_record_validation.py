"""Records inside a batch, as Apache Kafka 4.3 takes and refuses them (asked with the same batches)."""

import gzip
import random

import pytest

from kclient_quota.broker.log import record_validation
from kclient_quota.broker.log.log_config import LogConfig
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.record_validation import (
    MOST_INFLATED_BYTES,
    READ_AT_MOST,
    READ_WHOLE,
    UnsoundRecords,
    see_records,
)
from kclient_quota.broker.log.segments import SegmentPool
from kclient_quota.wire.batches import HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, compute_crc, parse_header
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.records import Record, build_batch, iterate_records

NOW_MS = 1_795_000_000_000
HOUR_MS = 3_600_000
FIELDS = b"\x00\x00\x00"
"""Attributes, timestamp delta and offset delta."""


def with_body(body, count=1, attributes=0, **changes):
    """A batch whose header says `count` records and whose checksum is right, whatever `body` is."""
    header = parse_header(build_batch([Record(b"x", timestamp_ms=NOW_MS)]))._replace(
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body),
        record_count=count,
        last_offset_delta=count - 1,
        attributes=attributes,
        **changes,
    )
    return resealed(header, body)


def resealed(header, body):
    batch = bytearray(HEADER.pack(*header) + body)
    batch[17:21] = compute_crc(batch, 0, len(batch)).to_bytes(4)
    return batch


def one(fields):
    return bytes([len(fields) << 1]) + fields


def body_of(count):
    return bytes(build_batch([Record(b"x", timestamp_ms=NOW_MS)] * count)[HEADER_BYTES:])


def append(batch, now_ms=NOW_MS, **config):
    log = PartitionLog(SegmentPool(1 << 24), LogConfig(max_message_bytes=1 << 24, **config))
    return log, log.append(batch, leader_epoch=0, now_ms=now_ms)


SOUND = body_of(1)
TWO = body_of(2)


@pytest.mark.parametrize("inflate", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"\xff" * 30, 1),
        (b"\x00" * 30, 1),
        (b"", 1),
        (SOUND + b"zzzz", 1),
        (SOUND[:-3], 1),
        (TWO, 1),
        (SOUND, 2),
        (one(FIELDS + b"\x80\x80\x80\x40\x01\x00"), 1),
        (one(FIELDS + b"\x01\x01\x03"), 1),
        (one(FIELDS + b"\x01\x01\x04"), 1),
        (one(FIELDS + b"\x01\x01\x02\x01\x01"), 1),
        (one(FIELDS + b"\x01\x01\x00\x00"), 1),
        (one(b"\x00" + b"\x80" * 12), 1),
        (b"\x01", 1),
    ],
)
def test_garbage_with_a_true_checksum_is_refused(body, count, inflate):
    batch = with_body(gzip.compress(body) if inflate else body, count, attributes=int(inflate))
    log, answer = append(batch)
    assert answer.error is ErrorCode.INVALID_RECORD
    assert answer.error_message
    assert log.end_offset == 0


def test_what_is_not_compressed_as_it_says_is_refused():
    assert append(with_body(b"\xff" * 30, attributes=1))[1].error is ErrorCode.INVALID_RECORD
    assert append(with_body(SOUND, attributes=5))[1].error is ErrorCode.INVALID_RECORD


def test_what_kafka_takes_is_taken():
    for body in (SOUND, one(FIELDS + b"\x03\x01\x00"), one(FIELDS + b"\x01\x01\x02\x02k\x01")):
        assert append(with_body(body))[1].error is ErrorCode.NONE
    assert append(with_body(SOUND * 2, 2))[1].error is ErrorCode.NONE, "offsets are the broker's to give"


@pytest.mark.parametrize("compression", [0, 1, 2, 3, 4])
def test_any_sound_batch_is_taken(compression):
    draw = random.Random(compression)

    def some_bytes():
        return draw.choice([None, b"", b"k", draw.randbytes(draw.choice([63, 64, 127, 8191, 8192, 20_000]))])

    for count in (1, 2, 30, READ_WHOLE + 1):
        records = [
            Record(
                some_bytes(),
                some_bytes() if count < 31 else b"k",
                [("h" * draw.choice([1, 64, 200]), some_bytes()) for _ in range(draw.choice([0, 1, 70]))],
                NOW_MS + draw.choice([0, 1, -63, 64, -(1 << 40), HOUR_MS - 1]),
            )
            for _ in range(count)
        ]
        batch = build_batch(records, compression=compression)
        log, answer = append(batch)
        assert answer.error is ErrorCode.NONE
        assert log.read(0, len(batch), min_one_batch=True)[21:] == batch[21:]


@pytest.mark.parametrize("compression", [0, 1])
def test_timestamps_out_of_range_are_refused_record_by_record(compression):
    times = [NOW_MS, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1, -1, 5]
    batch = build_batch([Record(b"x", timestamp_ms=time_ms) for time_ms in times], compression=compression)
    _, answer = append(batch)
    assert answer.error is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in answer.record_errors] == [2]
    assert f"Timestamp {NOW_MS + HOUR_MS + 1} of message with offset 2 is out of range" in answer.record_errors[0][1]
    _, answer = append(batch, before_max_ms=1000, after_max_ms=HOUR_MS + 1)
    assert [index for index, _ in answer.record_errors] == [4], "-1 is no timestamp"
    assert append(batch, uses_log_append_time=True)[1].error is ErrorCode.NONE


def test_a_clock_that_knows_no_dates_sets_no_limit_but_a_configured_one():
    batch = build_batch([Record(b"x", timestamp_ms=NOW_MS)])
    assert append(batch, now_ms=0)[1].error is ErrorCode.NONE
    assert append(batch, now_ms=0, after_max_ms=1)[1].error is ErrorCode.INVALID_TIMESTAMP


def test_a_header_that_lies_about_the_largest_timestamp_is_put_right():
    for said in (NOW_MS + 100 * HOUR_MS, 5):
        log, answer = append(with_body(SOUND, max_timestamp=said))
        assert answer.error is ErrorCode.NONE
        stored = log.read(0, 1 << 20, min_one_batch=True)
        assert parse_header(stored).max_timestamp == NOW_MS
        assert [record.value for record in iterate_records(stored)] == [b"x"], "the checksum is right"
        assert log.batch_at(NOW_MS + 1) is None


def test_a_compacted_topic_needs_keys():
    batch = build_batch([Record(b"x", b"k", timestamp_ms=NOW_MS), Record(b"x", timestamp_ms=NOW_MS)])
    _, answer = append(batch, is_compacted=True)
    assert (answer.error, [index for index, _ in answer.record_errors]) == (ErrorCode.INVALID_RECORD, [1])
    assert append(build_batch([Record(None, b"", timestamp_ms=NOW_MS)]), is_compacted=True)[1].error is ErrorCode.NONE


def test_a_batch_too_large_to_be_read_in_passing_is_believed():
    much = with_body(gzip.compress(b"\0" * (MOST_INFLATED_BYTES + 1)), attributes=1)
    assert append(much)[1].error is ErrorCode.NONE
    late = with_body(gzip.compress(b"\0" * (MOST_INFLATED_BYTES + 1)), attributes=1, max_timestamp=NOW_MS + 2 * HOUR_MS)
    assert append(late)[1].error is ErrorCode.INVALID_TIMESTAMP
    many = build_batch([Record(None, timestamp_ms=NOW_MS)] * (READ_AT_MOST + 5))
    assert append(many)[1].error is ErrorCode.NONE


def seen(body, count, least_ms, most_ms):
    header = parse_header(with_body(body, count))
    try:
        return see_records(with_body(body, count), header, least_ms, most_ms)
    except UnsoundRecords as error:
        return str(error)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_read_in_passing_is_read_as_what_is_read_one_by_one(monkeypatch, seed):
    chance = random.Random(seed)
    times = [0, 1, 63, 64, 200, 20_000, -1, -70, 3_000_000_000]
    records = [
        Record(
            bytes(chance.choice((0, 1, 50, 60, 130, 20_000))), timestamp_ms=NOW_MS + chance.choice(times[: seed + 3])
        )
        for _ in range(READ_WHOLE + 60)
    ]
    sound = bytes(build_batch(records)[HEADER_BYTES:])
    asked = [(sound, len(records)), (sound, len(records) - 1), (sound, len(records) + 1), (sound[:-1], len(records))]
    for _ in range(200):
        flipped = bytearray(sound)
        flipped[chance.randrange(len(sound) // 2, len(sound))] ^= 1 << chance.randrange(8)
        asked.append((bytes(flipped), len(records)))
    limits = [(-1 << 62, 1 << 62), (NOW_MS, NOW_MS + 64)]
    in_passing = [seen(*one, *limit) for one in asked for limit in limits]
    monkeypatch.setattr(record_validation, "_newest_of_sound", lambda *_: None)
    assert [seen(*one, *limit) for one in asked for limit in limits] == in_passing
    assert len({str(one) for one in in_passing}) > 3
