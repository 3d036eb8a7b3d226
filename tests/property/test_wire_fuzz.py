"""Whatever the bytes: a message, or one WireError; in bounded time and memory."""

from __future__ import annotations

import time
import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kclient_quota.errors import WireError
from kclient_quota.wire.batches import iterate_batches
from kclient_quota.wire.codec import decode, encode
from kclient_quota.wire.frame import FrameSplitter, decode_request_header, decode_response_header
from kclient_quota.wire.messages import API, FetchResponse, MetadataResponse
from kclient_quota.wire.records import Record, build_batch, iterate_records
from tests.property.examples import examples
from tests.unit.wire.random_message import random_struct

EVERY_MESSAGE = [
    (cls, version)
    for api in API.values()
    for cls in (api.request, api.response)
    for version in cls.__schema__.valid_versions
]
BATCH = bytes(
    build_batch(
        [Record(b"value", b"key", [("h", b"v")], 1_700_000_000_000 + index) for index in range(5)], compression=0
    )
)
COMPRESSED = [
    bytes(build_batch([Record(bytes(range(256)), timestamp_ms=index) for index in range(20)], compression=kind))
    for kind in range(1, 5)
]


def reads_or_refuses(cls, version, body):
    """Decode; what was accepted must be writable again, and mean the same."""
    try:
        message = decode(cls, version, body)
    except WireError:
        return
    again = decode(cls, version, encode(message, version))
    assert repr(again) == repr(message)


@settings(max_examples=examples(200, 400))
@given(st.sampled_from(EVERY_MESSAGE), st.binary(max_size=200))
def test_random_bytes(case, body):
    reads_or_refuses(*case, body)


@st.composite
def mutated(draw):
    cls, version = draw(st.sampled_from(EVERY_MESSAGE))
    body = bytearray(encode(random_struct(Random(draw(st.integers(0, 1 << 16))), cls, version), version))
    for _ in range(draw(st.integers(1, 4))):
        if not body:
            break
        position = draw(st.integers(0, len(body) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                body[position] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
            case 1:
                del body[position:]
            case 2:
                body[position:position] = draw(st.binary(max_size=8))
            case _:
                body[position : position + 4] = b"\x7f\xff\xff\xff"
    return cls, version, bytes(body)


@settings(max_examples=examples(250, 600))
@given(mutated())
def test_mutated_messages(case):
    reads_or_refuses(*case)


def test_many_mutations_of_every_message():
    rng = Random(714)
    started = time.perf_counter()
    for cls, version in EVERY_MESSAGE:
        body = encode(random_struct(rng, cls, version), version)
        for _ in range(40):
            broken = bytearray(body or b"\0")
            for _ in range(rng.randrange(1, 5)):
                broken[rng.randrange(len(broken))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
            reads_or_refuses(
                cls, version, bytes(broken[: rng.randrange(len(broken) + 1)] if rng.random() < 0.3 else broken)
            )
    assert time.perf_counter() - started < 60


@pytest.mark.parametrize(
    ("cls", "version", "body"),
    [
        (MetadataResponse, 0, b"\x7f\xff\xff\xff" + bytes(64)),
        (MetadataResponse, 12, bytes(4) + b"\xff\xff\xff\xff\x0f" + bytes(64)),
        (FetchResponse, 12, bytes(10) + b"\xff\xff\xff\xff\x0f" + bytes(64)),
        (FetchResponse, 12, bytes(10) + b"\x01" + b"\xff\xff\xff\xff\x0f" + bytes(64)),
        (FetchResponse, 4, bytes(4) + b"\x00\x00\x00\x04" + b"\x00\x00\x7f\xff\xff\xff" * 4),
    ],
    ids=["array", "compact array", "compact topics", "tags", "nested"],
)
def test_huge_lengths_allocate_nothing(cls, version, body):
    with pytest.raises(WireError):
        decode(cls, version, body)  # compiles, which does allocate
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode(cls, version, body)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(0, 1))
def test_headers(raw, version):
    for read in (lambda: decode_request_header(raw), lambda: decode_response_header(raw, version)):
        try:
            read()
        except WireError:
            continue


@settings(max_examples=200)
@given(st.binary(max_size=80), st.lists(st.integers(1, 20), max_size=10))
def test_splitter_does_not_depend_on_how_bytes_arrive(stream, cuts):
    def feed_all(pieces):
        splitter, frames = FrameSplitter(50), []
        for piece in pieces:
            try:
                frames += splitter.feed(piece)
            except WireError:
                return frames, "refused"
        return frames, splitter.pending_bytes

    pieces, rest = [], stream
    for cut in cuts:
        pieces.append(rest[:cut])
        rest = rest[cut:]
    whole, end = feed_all([stream])
    cut_frames, cut_end = feed_all([*pieces, rest])
    if end == "refused":
        assert cut_end == "refused"  # what came before the refused length may have been given out already
    else:
        assert (cut_frames, cut_end) == (whole, end)


@settings(max_examples=examples(200, 400))
@given(st.sampled_from([BATCH, *COMPRESSED]), st.data())
def test_mutated_batches(batch, data):
    broken = bytearray(batch)
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    raw = bytes(broken[: data.draw(st.integers(0, len(broken)))]) if data.draw(st.booleans()) else bytes(broken)
    try:
        for position, header in iterate_batches(raw):
            for record in iterate_records(raw, position, header=header, max_inflated_bytes=100_000, verify=False):
                assert isinstance(record, Record)
    except WireError:
        return


@settings(max_examples=examples(100, 200))
@given(
    st.lists(
        st.builds(
            Record,
            value=st.none() | st.binary(max_size=50),
            key=st.none() | st.binary(max_size=20),
            headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=10)), max_size=3),
            timestamp_ms=st.integers(-1, 1 << 42),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 4),
    st.integers(0, 1 << 50),
)
def test_batches_round_trip(records, compression, base_offset):
    batch = build_batch(records, base_offset=base_offset, compression=compression)
    read = list(iterate_records(batch))
    assert [(r.value, r.key, list(r.headers), r.timestamp_ms) for r in read] == [
        (r.value, r.key, list(r.headers), r.timestamp_ms) for r in records
    ]
    assert [r.offset for r in read] == list(range(base_offset, base_offset + len(records)))
