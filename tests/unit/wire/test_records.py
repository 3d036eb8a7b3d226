"""Record batches against aiokafka's and kafka-python's own readers and writers."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder

from kclient_quota.errors import WireError
from kclient_quota.wire.batches import (
    HEADER_BYTES,
    check_crc,
    iterate_batches,
    parse_header,
    patch,
    patch_append_time,
)
from kclient_quota.wire.records import (
    ABORT,
    COMMIT,
    Record,
    build_batch,
    control_batch,
    iterate_keys,
    iterate_records,
    marker_type,
    read_varint,
    varint,
)
from tests.unit.wire.oracles import KafkaPythonBatch as PythonBatch
from tests.unit.wire.oracles import KafkaPythonBuilder as PythonBuilder

RECORDS = [
    Record(b"one", b"k", [("h", b"v"), ("h", None), ("grün", b"")], 1_700_000_000_123),
    Record(None, b"", (), 1_700_000_000_100),
    Record(b"", None, (), 1_700_000_002_000),
    Record(b"x" * 5000, b"key" * 50, [("n", b"y" * 300)], 1_700_000_000_123),
]
COMPRESSIONS = [0, 1, 2, 3, 4]
IDS = ["none", "gzip", "snappy", "lz4", "zstd"]
AIO = [("aiokafka", name, code) for code, name in enumerate(IDS)]
PYTHON = [("kafka-python", name, code) for code, name in enumerate(IDS) if name != "snappy"]  # it needs python-snappy
READERS = [
    pytest.param({"aiokafka": AioBatch, "kafka-python": PythonBatch}[library], code, id=f"{library}-{name}")
    for library, name, code in AIO + PYTHON
]
BUILDERS = [
    pytest.param({"aiokafka": AioBuilder, "kafka-python": PythonBuilder}[library], code, id=f"{library}-{name}")
    for library, name, code in AIO + PYTHON
]


def plain(record):
    return (
        record.offset,
        record.timestamp_ms,
        record.key,
        record.value,
        [(name, value) for name, value in record.headers],
    )


def theirs(record):
    key = None if record.key is None else bytes(record.key)
    value = None if record.value is None else bytes(record.value)
    headers = [(name, None if held is None else bytes(held)) for name, held in record.headers]
    return (record.offset, record.timestamp, key, value, headers)


@pytest.mark.parametrize(("reader", "compression"), READERS)
def test_others_read_our_batches(reader, compression):
    batch = build_batch(
        RECORDS, base_offset=40, compression=compression, producer_id=9, producer_epoch=2, base_sequence=7
    )
    other = reader(bytes(batch))
    assert other.validate_crc()
    assert (other.base_offset, other.last_offset_delta, other.is_control_batch) == (40, 3, False)
    assert (other.producer_id, other.producer_epoch, other.base_sequence) == (9, 2, 7)
    expected = [
        (40 + index, record.timestamp_ms, record.key, record.value, list(record.headers))
        for index, record in enumerate(RECORDS)
    ]
    assert [theirs(record) for record in other] == expected
    assert [plain(record) for record in iterate_records(batch)] == expected


@pytest.mark.parametrize(("builder", "compression"), BUILDERS)
def test_we_read_others_batches(builder, compression):
    made = builder(
        magic=2,
        compression_type=compression,
        is_transactional=True,
        producer_id=5,
        producer_epoch=1,
        base_sequence=0,
        batch_size=100_000,
    )
    for index, record in enumerate(RECORDS):
        made.append(
            index,
            timestamp=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=[(name, value) for name, value in record.headers if value is not None],
        )
    batch = bytes(made.build())
    header = parse_header(batch)
    assert header.compression == compression
    assert header.is_transactional
    assert (header.record_count, header.last_offset, header.size) == (4, 3, len(batch))
    assert header.max_timestamp == 1_700_000_002_000
    expected = [
        (index, record.timestamp_ms, record.key, record.value, [item for item in record.headers if item[1] is not None])
        for index, record in enumerate(RECORDS)
    ]
    assert [plain(record) for record in iterate_records(batch)] == expected


def test_uncompressed_batches_are_byte_identical():
    made = PythonBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=5,
        producer_epoch=1,
        base_sequence=3,
        batch_size=100_000,
    )
    for index, record in enumerate(RECORDS):
        made.append(
            index, timestamp=record.timestamp_ms, key=record.key, value=record.value, headers=list(record.headers)
        )
    theirs_bytes = bytes(made.build())
    header = parse_header(theirs_bytes)
    ours = build_batch(
        RECORDS, producer_id=5, producer_epoch=1, base_sequence=3, leader_epoch=header.partition_leader_epoch
    )
    assert bytes(ours) == theirs_bytes


@pytest.mark.parametrize(("marker", "name"), [(COMMIT, 1), (ABORT, 0)])
def test_markers_are_control_batches_to_others(marker, name):
    batch = control_batch(marker, producer_id=12, producer_epoch=3, coordinator_epoch=8, timestamp_ms=1000)
    for reader in (AioBatch, PythonBatch):
        other = reader(bytes(batch))
        assert other.validate_crc()
        assert other.is_control_batch
        assert other.is_transactional
        (record,) = list(other)
        assert bytes(record.key) == b"\0\0\0" + bytes([name])
    (ours,) = iterate_records(batch)
    assert marker_type(ours) == marker
    with pytest.raises(WireError, match="key of four bytes"):
        marker_type(Record(key=b"\0"))


def test_offset_and_epoch_are_patched_in_place():
    batch = build_batch(RECORDS)
    patch(batch, 0, base_offset=1 << 40, leader_epoch=17)
    header = parse_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 17)
    other = AioBatch(bytes(batch))
    assert other.validate_crc()
    assert next(iter(other)).offset == 1 << 40


def test_append_time_is_patched_in_place():
    batch = build_batch(RECORDS)
    patch_append_time(batch, 0, 1_800_000_000_000)
    other = AioBatch(bytes(batch))
    assert other.validate_crc()
    assert {record.timestamp for record in other} == {1_800_000_000_000}
    assert {record.timestamp_ms for record in iterate_records(batch)} == {1_800_000_000_000}


def test_batches_follow_each_other():
    first, second = build_batch(RECORDS), build_batch(RECORDS[:1], base_offset=4)
    stream = b"junk" + first + second
    found = list(iterate_batches(stream, 4))
    assert [(position, header.base_offset) for position, header in found] == [(4, 0), (4 + len(first), 4)]
    assert all(check_crc(stream, position, header) for position, header in found)
    cut = stream[:-1]
    assert len(list(iterate_batches(cut, 4, partial=True))) == 1
    assert len(list(iterate_batches(cut[: 4 + len(first) + 30], 4, partial=True))) == 1
    with pytest.raises(WireError, match="claims"):
        list(iterate_batches(cut, 4))


@pytest.mark.parametrize(
    ("position", "value", "problem"),
    [
        (16, 1, "magic 1"),
        (8, 0x7F, "claims"),
        (11, 10, "claims"),
        (57, 0x80, "negative"),
        (23, 0xFF, "negative"),
        (-1, 0xFF, "checksum"),
        (21, 0x7F, "checksum"),
    ],
)
def test_corrupt_batches_are_refused(position, value, problem):
    batch = build_batch(RECORDS[1:2])
    batch[position] = value
    with pytest.raises(WireError, match=problem):
        list(iterate_records(batch))


def test_short_and_empty_batches_are_refused():
    with pytest.raises(WireError, match="needs 61 bytes"):
        parse_header(bytes(HEADER_BYTES - 1))
    with pytest.raises(WireError, match="at least one record"):
        build_batch([])
    with pytest.raises(WireError, match="compression 6"):
        build_batch(RECORDS, compression=6)


@pytest.mark.parametrize("compression", COMPRESSIONS[1:], ids=IDS[1:])
def test_inflation_is_bounded(compression):
    batch = build_batch([Record(bytes(1_000_000))], compression=compression)
    assert len(batch) < 60_000
    with pytest.raises(WireError, match="inflates to more than"):
        list(iterate_records(batch, max_inflated_bytes=100_000))


@pytest.mark.parametrize("value", [0, -1, 1, 63, -64, 64, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63)])
def test_varints_round_trip(value):
    assert read_varint(varint(value), 0) == (value, len(varint(value)))


def _keys(body: bytearray) -> list[object]:
    return list(iterate_keys(body, parse_header(body, 0, len(body))))


def _records(body: bytearray) -> list[object]:
    return list(iterate_records(body, verify=False))


@pytest.mark.parametrize("read", [_keys, _records])
@pytest.mark.parametrize("size", [-1, 0, 63])
def test_a_record_has_to_fill_its_size(read, size):
    body = bytearray(build_batch([Record(b"value", b"key"), Record(b"value", b"key")]))
    assert len(read(body)) == 2
    body[HEADER_BYTES] = 2 * size & 0xFF if size >= 0 else 1  # zigzag
    with pytest.raises(WireError, match="does not fill its size"):
        read(body)


@pytest.mark.parametrize("more", [1, 2])
def test_a_record_of_no_headers_ends_where_it_says(more):
    body = bytearray(build_batch([Record(b"value", b"key"), Record(b"value", b"key")]))
    body[HEADER_BYTES] += 2 * more  # zigzag
    with pytest.raises(WireError, match="does not fill its size"):
        _records(body)


def test_nothing_stands_behind_the_last_record():
    body = bytearray(build_batch([Record(b"value", b"key"), Record(b"value", b"key")]))
    body[HEADER_BYTES - 1] = 1  # how many there are
    with pytest.raises(WireError, match="behind its last record"):
        _records(body)


def test_headers_fill_their_record():
    body = bytearray(build_batch([Record(b"value", b"key", [("h", b"x")]), Record(b"value", b"key")]))
    body[HEADER_BYTES] += 2  # zigzag
    with pytest.raises(WireError, match="headers do not fill"):
        _records(body)
