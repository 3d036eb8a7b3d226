"""Records inside a batch, as Apache Kafka 4.3 takes and refuses them (asked with the same batches).

More damage to the same batches: `tests/grids/test_record_validation_grid.py`.
"""

import gzip
import random
from itertools import islice

import pytest

from kclient_quota.broker.log import alike_records as alike_reading
from kclient_quota.broker.log import record_validation
from kclient_quota.broker.log.log_config import LogConfig
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.record_fields import UnsoundRecords
from kclient_quota.broker.log.record_validation import MOST_INFLATED_BYTES, READ_AT_MOST, READ_WHOLE, see_records
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


def seen(body, count, least_ms, most_ms, needs_keys=False, attributes=0):
    batch = with_body(body, count, attributes)
    try:
        return see_records(batch, parse_header(batch), least_ms, most_ms, needs_keys=needs_keys)
    except UnsoundRecords as error:
        return str(error)


LIMITS = [(-1 << 62, 1 << 62), (NOW_MS, NOW_MS + 64), (NOW_MS, NOW_MS + 300)]


def seen_both_ways(monkeypatch, asked):
    """What is said of these, which must be what is said when every record is read one by one."""
    quickly = [seen(*one) for one in asked]
    with monkeypatch.context() as plain:
        plain.setattr(record_validation, "_newest_of_sound", lambda *_, **__: None)
        assert [seen(*one) for one in asked] == quickly
    return quickly


def flipped(chance, sound, first=0):
    damaged = bytearray(sound)
    damaged[chance.randrange(first, len(sound))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


SEEDS_IN_PASSING = range(6)


@pytest.mark.parametrize("seed", SEEDS_IN_PASSING)
def test_what_is_read_in_passing_is_read_as_what_is_read_one_by_one(monkeypatch, seed):
    read_in_passing_as_one_by_one(monkeypatch, seed, damages=60)


def read_in_passing_as_one_by_one(monkeypatch, seed, damages):
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
    asked += [(flipped(chance, sound, len(sound) // 2), len(records)) for _ in range(damages)]
    found = seen_both_ways(monkeypatch, [(*one, *limit) for one in asked for limit in LIMITS[:2]])
    assert len({str(one) for one in found}) > 3


def alike_records(chance, shape):
    """Records in stretches of equal ones, as producers of measurements write them, with an odd one in between."""
    while True:
        key, headers = chance.choice(shape["keys"]), chance.choice(shape["headers"])
        size, step = chance.choice(shape["sizes"]), chance.choice(shape["steps"])
        since = chance.choice((0, 0, 60, 8000))
        for number in range(chance.choice((1, 3, 9, 70, 300))):
            yield Record(bytes(size), key, headers, NOW_MS + since + int(number * step))


SHAPES = {
    "measurements": {"keys": [None], "headers": [()], "sizes": [10, 100], "steps": [0, 0.1, 1]},
    "keyed": {"keys": [b"k", b"key", bytes(70)], "headers": [()], "sizes": [0, 60, 64, 1000], "steps": [0, 1, 3]},
    "anything": {
        "keys": [None, b"", b"k" * 63],
        "headers": [(), (), [("trace", b"")], [("h", None), ("i", b"\0")]],
        "sizes": [0, 53, 100, 1000],
        "steps": [-1, 0, 2, 500],
    },
}


SEEDS_ALIKE = range(3)


@pytest.mark.parametrize("seed", SEEDS_ALIKE)
@pytest.mark.parametrize("shape", SHAPES)
def test_records_cut_alike_are_read_as_one_by_one(monkeypatch, shape, seed):
    alike_read_as_one_by_one(monkeypatch, shape, seed, damages=15)


def alike_read_as_one_by_one(monkeypatch, shape, seed, damages):
    chance = random.Random(f"{shape} {seed}")
    count = chance.choice((7, 40, 99, 101, 400))
    sound = bytes(build_batch(list(islice(alike_records(chance, SHAPES[shape]), count)))[HEADER_BYTES:])
    bodies = [sound, *(flipped(chance, sound) for _ in range(damages)), *(flipped(chance, sound, -3) for _ in range(5))]
    bodies += [sound[: chance.randrange(len(sound))] for _ in range(damages // 4)]
    bodies += [
        sound[:place] + sound[place + 1 :] for place in (chance.randrange(len(sound)) for _ in range(damages // 2))
    ]
    asked = [(body, number, *limit) for body in bodies for number in (count, count + 1) for limit in LIMITS[:2]]
    asked += [(body, count, *LIMITS[2], True) for body in bodies]
    asked += [
        (gzip.compress(body, 1), count, *LIMITS[0], needs_keys, 1) for body in bodies[:9] for needs_keys in (0, 1)
    ]
    found = seen_both_ways(monkeypatch, asked)
    assert len({str(one) for one in found}) > 3


@pytest.mark.parametrize("place", [*range(7), -1])
def test_every_byte_that_says_a_length_is_looked_at_in_every_record(monkeypatch, place):
    for count, key, late_ms in ((50, None, 0), (50, b"key", 0), (300, None, 0), (50, None, 100)):
        times = [NOW_MS] + [NOW_MS + late_ms] * (count - 1)
        body = bytes(build_batch([Record(bytes(20), key, timestamp_ms=time_ms) for time_ms in times])[HEADER_BYTES:])
        size = -(-len(body) // count)
        starts = [max(0, len(body) - size * left) for left in (count, count - 1, count // 2, 1)]
        asked = []
        for start in starts:
            for bit in range(8):
                damaged = bytearray(body)
                damaged[(start + place) % len(body)] ^= 1 << bit
                asked += [(bytes(damaged), count, *limits) for limits in (LIMITS[1], LIMITS[0])]
                asked.append((bytes(damaged), count, *LIMITS[0], True))
        seen_both_ways(monkeypatch, asked)


@pytest.mark.parametrize("size", [30, 1000])
def test_no_order_of_records_makes_reading_dear(size):
    """Runs that are just worth looking at, each ended by another record: the most that quick reading costs in vain."""
    run = [Record(bytes(size), timestamp_ms=NOW_MS)] * 9 + [Record(bytes(size + 1), timestamp_ms=NOW_MS)]
    body = bytes(build_batch(run * 10)[HEADER_BYTES:])
    looks = []

    class Watched(bytes):
        def __getitem__(self, key):
            looks.append(len(range(*key.indices(len(self)))) if isinstance(key, slice) else 1)
            return super().__getitem__(key)

    alike_reading.pass_over(Watched(body * 50), 5000, READ_WHOLE)
    assert sum(looks) < 5000 * 12
