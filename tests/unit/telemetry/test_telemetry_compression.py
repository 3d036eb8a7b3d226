"""Every codec against payloads of real clients, other libraries, and bombs."""

import gzip
import random
import struct
import sys
import tracemalloc
import zlib
from pathlib import Path

import cramjam
import lz4.frame
import pyarrow as pa
import pytest
from kclient_telemetry.compression import (
    BROKER_PREFERENCE,
    CompressionType,
    compress,
    decompress,
    is_known,
    offered,
    preferred,
)
from kclient_telemetry.errors import InvalidPayloadError, PayloadTooLargeError, UnsupportedCompressionTypeError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PAYLOADS = Path(__file__).parent / "payloads"
MEBIBYTE = 1 << 20
MAKE = zlib.decompressobj
SAMPLE = b"org.apache.kafka.producer." * 4000 + bytes(range(256))

ALL = list(CompressionType)
FRAMED = [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("size", [0, 1, 100, 40_000, 70_000])
def test_what_is_compressed_comes_back(kind, size):
    data = SAMPLE[:size]
    assert decompress(compress(data, kind), kind, max_bytes=len(data)) == data


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(("client", "raw_bytes"), [("java", 9655), ("librdkafka", 1435)])
def test_real_payloads_inflate_to_what_was_captured(kind, client, raw_bytes):
    data = (PAYLOADS / f"{client}-producer-{kind.value}.bin").read_bytes()
    inflated = decompress(data, kind, max_bytes=MEBIBYTE)
    assert len(inflated) == raw_bytes
    assert b"org.apache.kafka.producer.connection.creation.rate" in inflated
    assert decompress(data, kind, max_bytes=raw_bytes) == inflated
    with pytest.raises(PayloadTooLargeError, match=str(raw_bytes - 1)):
        decompress(data, kind, max_bytes=raw_bytes - 1)


def test_other_libraries_read_what_is_written():
    assert gzip.decompress(compress(SAMPLE, CompressionType.GZIP)) == SAMPLE
    assert lz4.frame.decompress(compress(SAMPLE, CompressionType.LZ4)) == SAMPLE
    assert pa.decompress(compress(SAMPLE, CompressionType.ZSTD), len(SAMPLE), "zstd", asbytes=True) == SAMPLE
    assert compress(SAMPLE, CompressionType.SNAPPY).startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")


def test_lz4_blocks_are_independent_as_kafka_demands():
    info = lz4.frame.get_frame_info(compress(SAMPLE, CompressionType.LZ4))
    assert info["block_linked"] is False
    assert info["block_size"] == 65536


def test_raw_snappy_and_several_gzip_members_are_read():
    assert decompress(bytes(cramjam.snappy.compress_raw(SAMPLE)), CompressionType.SNAPPY, len(SAMPLE)) == SAMPLE
    members = gzip.compress(SAMPLE[:500]) + gzip.compress(SAMPLE[500:])
    assert decompress(members, CompressionType.GZIP, len(SAMPLE)) == SAMPLE


@pytest.mark.parametrize("kind", FRAMED)
def test_a_bomb_costs_what_is_allowed_and_ends_in_an_error(kind):
    bomb = compress(bytes(64 * MEBIBYTE), kind)
    tracemalloc.start()
    try:
        with pytest.raises(PayloadTooLargeError):
            decompress(bomb, kind, max_bytes=MEBIBYTE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * MEBIBYTE


def test_a_snappy_bomb_is_not_even_begun():
    claims_four_gigabytes = b"\xff\xff\xff\xff\x0f" + b"x"
    for data in (claims_four_gigabytes, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 6) + claims_four_gigabytes):
        with pytest.raises(PayloadTooLargeError):
            decompress(data, CompressionType.SNAPPY, max_bytes=MEBIBYTE)


def test_blocks_of_xerial_snappy_share_one_bound():
    framed = compress(bytes(100_000), CompressionType.SNAPPY)
    with pytest.raises(PayloadTooLargeError):
        decompress(framed, CompressionType.SNAPPY, max_bytes=99_999)


@pytest.mark.parametrize("kind", [*FRAMED, CompressionType.SNAPPY])
@pytest.mark.parametrize("damage", ["cut", "garbage", "empty"])
def test_damaged_data_is_refused(kind, damage):
    whole = compress(SAMPLE, kind)
    data = {"cut": whole[:-3], "garbage": b"\x00\x01\x02" * 20, "empty": b""}[damage]
    with pytest.raises(InvalidPayloadError, match=r"no .* data"):
        decompress(data, kind, max_bytes=MEBIBYTE)


@pytest.mark.parametrize("kind", [-1, 5, 10, 100])
def test_unknown_types(kind):
    assert not is_known(kind)
    with pytest.raises(UnsupportedCompressionTypeError):
        decompress(b"x", kind, 10)


def test_case_83_unknown_ids_are_passed_over():
    accepted = [1, 3, 2, 4, 0, -1]
    assert [kind for kind in accepted if is_known(kind)] == [1, 3, 2, 4, 0]
    assert preferred([-1, 9, 3]) is CompressionType.LZ4


def test_case_84_the_first_accepted_type_that_works():
    none, gz, zstd = CompressionType.NONE, CompressionType.GZIP, CompressionType.ZSTD
    assert preferred([]) is none
    assert preferred([none, gz]) is none
    assert preferred([gz, none]) is gz
    assert preferred(BROKER_PREFERENCE) is zstd
    assert preferred(BROKER_PREFERENCE, frozenset({zstd})) is CompressionType.LZ4
    assert preferred([zstd, gz], frozenset({zstd, gz})) is none


def test_without_its_extra_snappy_is_neither_offered_nor_chosen(monkeypatch):
    monkeypatch.setattr("kclient_telemetry.compression.find_spec", lambda _name: None)
    monkeypatch.setitem(sys.modules, "cramjam", None)
    assert CompressionType.SNAPPY not in offered()
    assert preferred([CompressionType.SNAPPY, CompressionType.GZIP]) is CompressionType.GZIP
    with pytest.raises(UnsupportedCompressionTypeError, match=r"pip install 'kclient-quota\[snappy\]'"):
        decompress(b"x", CompressionType.SNAPPY, 10)


def test_a_zstd_frame_that_claims_nothing_is_bounded_too():
    whole = bytes(64 * MEBIBYTE)
    compressor = zstd.ZstdCompressor()
    bomb = compressor.compress(whole) + compressor.flush()
    assert zstd.get_frame_info(bomb).decompressed_size is None
    with pytest.raises(PayloadTooLargeError):
        decompress(bomb, CompressionType.ZSTD, MEBIBYTE)
    assert decompress(bomb, CompressionType.ZSTD, len(whole)) == whole
    for damaged in (bomb[:-1], bomb + b"x", bomb + bomb):
        with pytest.raises(InvalidPayloadError):
            decompress(damaged, CompressionType.ZSTD, 2 * len(whole))


def test_thousands_of_gzip_members_cost_no_more_than_their_bytes(monkeypatch):
    """zlib copies what follows a member: 50,000 empty ones in a megabyte held a broker up for seconds."""
    given = []

    class Inflater:
        def __init__(self, wbits):
            self._inflater = MAKE(wbits=wbits)

        def decompress(self, data, most):
            given.append(len(data))
            return self._inflater.decompress(data, most)

        def __getattr__(self, name):
            return getattr(self._inflater, name)

    monkeypatch.setattr(zlib, "decompressobj", Inflater)
    members = gzip.compress(b"") * 10_000 + gzip.compress(b"end")
    assert decompress(members, CompressionType.GZIP, 10) == b"end"
    assert sum(given) < 100 * len(members)


@pytest.mark.parametrize("sizes", [[0, 0], [1, 5_000, 3], [70_000], [5_000] * 3], ids=str)
def test_gzip_members_are_read_wherever_they_end(sizes):
    parts = [random.Random(size).randbytes(size) for size in sizes]  # cannot be compressed: as long as that
    members = b"".join(map(gzip.compress, parts))
    whole = b"".join(parts)
    assert decompress(members, CompressionType.GZIP, len(whole)) == whole
    with pytest.raises(InvalidPayloadError, match="cut short"):
        decompress(members[:-1], CompressionType.GZIP, len(whole))
    with pytest.raises(InvalidPayloadError):
        decompress(members + b"x", CompressionType.GZIP, len(whole))
