"""Frames and headers."""

from __future__ import annotations

import pytest

from kclient_quota.errors import WireError
from kclient_quota.wire.frame import (
    FrameSplitter,
    RequestHeader,
    ResponseHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response,
    request_header_version,
    response_header_version,
)
from kclient_quota.wire.messages import ApiVersionsResponse, FetchResponse


def test_header_versions():
    assert [request_header_version(0, version) for version in (3, 8, 9, 13)] == [1, 1, 2, 2]
    assert [response_header_version(0, version) for version in (3, 8, 9, 13)] == [0, 0, 1, 1]
    assert [response_header_version(18, version) for version in range(5)] == [0] * 5
    assert request_header_version(18, 3) == 2
    assert request_header_version(7, 0) == 0
    assert request_header_version(17, 1) == 1


@pytest.mark.parametrize(
    "header",
    [
        RequestHeader(0, 8, 1, "c"),
        RequestHeader(0, 9, -1, "grün"),
        RequestHeader(0, 9, 5, None),
        RequestHeader(18, 4, 5, "", {3: b"x"}),
        RequestHeader(7, 0, 5),
        RequestHeader(999, 0, 5, "c"),
    ],
)
def test_request_header_round_trips(header):
    raw = encode_request_header(header)
    assert decode_request_header(b"!" + raw + b"body", 1, 1 + len(raw) + 4) == (header, 1 + len(raw))


@pytest.mark.parametrize(
    ("raw", "version", "header"),
    [
        (b"\0\0\0\7", 0, ResponseHeader(7)),
        (b"\xff\xff\xff\xf9\1\1\2yz", 1, ResponseHeader(-7, {1: b"yz"})),
    ],
)
def test_response_header_is_read(raw, version, header):
    assert decode_response_header(raw, version) == (header, len(raw))


@pytest.mark.parametrize("raw", ["", "0000", "0000000900000001", "00000009000000017fff41"])
def test_malformed_request_header(raw):
    with pytest.raises(WireError, match="request header"):
        decode_request_header(bytes.fromhex(raw))


def test_a_client_id_that_is_no_utf8_is_read_as_kafka_reads_it():
    header, _ = decode_request_header(bytes.fromhex("00000009000000010001ff00"))
    assert header.client_id == "\ufffd"


@pytest.mark.parametrize("client_id", ["a\udcff", "z" * 40_000])
def test_a_client_id_that_cannot_be_written_is_one_error(client_id):
    with pytest.raises(WireError, match="client id cannot be written"):
        encode_request_header(RequestHeader(3, 12, 1, client_id))


def test_malformed_response_header():
    with pytest.raises(WireError):
        decode_response_header(b"\0\0", 0)
    with pytest.raises(WireError):
        decode_response_header(b"\0\0\0\1", 1)


def test_response_frame_keeps_records_by_reference():
    records = bytes(5000)
    partition = FetchResponse.PartitionData(records=records)
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
    parts = encode_response(FetchResponse(responses=[topic]), 12, 9)
    assert any(part is records for part in parts)
    frame = b"".join(parts)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame[4:9] == b"\0\0\0\x09\0"


def test_api_versions_response_has_the_old_header():
    frame = b"".join(encode_response(ApiVersionsResponse(error_code=35), 0, 9))
    assert frame.hex() == "0000000a" + "00000009" + "0023" + "00000000"


def test_splitter_takes_bytes_as_they_come():
    stream = b"\0\0\0\2ab" + b"\0\0\0\0" + b"\0\0\0\1c"
    splitter = FrameSplitter()
    assert [frame for byte in stream for frame in splitter.feed(bytes([byte]))] == [b"ab", b"", b"c"]
    assert splitter.pending_bytes == 0
    assert FrameSplitter().feed(stream) == [b"ab", b"", b"c"]


@pytest.mark.parametrize("length", [b"\0\0\0\x0b", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
def test_splitter_refuses_lengths(length):
    with pytest.raises(WireError, match="the limit is 10"):
        FrameSplitter(10).feed(length)
