"""How record batches stand in a file: each behind a frame of 28 bytes with a checksum of its own.

A batch's own checksum leaves out its offset, its length and its leader epoch, so a damaged bit there would move records
or lose all that follow. The frame holds the three once more. Whichever of the two is damaged, the other one tells what
is lost and where the next batch begins: one flipped bit costs one batch at most.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import crc32c

from kclient_quota.errors import WireError
from kclient_quota.wire.batches import BatchHeader, check_crc, parse_header, patch

_MAGIC = b"KqB\x01"
_FRAME = struct.Struct(">4sqiiiI")
FRAME_BYTES = _FRAME.size
_CHECKED = FRAME_BYTES - 4


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands before a batch: its first and last offset, its leader epoch and its size in bytes."""

    first_offset: int
    last_offset: int
    leader_epoch: int
    size: int


@dataclass(frozen=True, slots=True)
class Sound:
    """A whole batch: `data[start:end]`, its offsets and leader epoch as they should be."""

    start: int
    end: int
    header: BatchHeader


@dataclass(frozen=True, slots=True)
class Damaged:
    """Offsets whose batch cannot be read any more, both included."""

    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Stale:
    """A batch at an offset that lies behind, which is passed over."""

    first_offset: int


@dataclass(frozen=True, slots=True)
class Tail:
    """From here on nothing is whole: a write that was never finished."""

    start: int


def frame_of(batch: memoryview) -> bytes:
    """The frame to be written before a stored batch."""
    header = parse_header(batch)
    fields = (header.base_offset, header.last_offset_delta, header.partition_leader_epoch, header.size)
    front = _FRAME.pack(_MAGIC, *fields, 0)[:_CHECKED]
    return front + struct.pack(">I", crc32c.crc32c(front))


def scan(data: bytearray, next_offset: int) -> Iterator[Sound | Damaged | Stale | Tail]:
    """Everything in a file of batches, in order.

    Args:
        data: the file; offsets and epochs of sound batches are mended in place.
        next_offset: the offset after the last batch before this file.
    """
    at = 0
    while at < len(data):
        frame = _frame_at(data, at)
        found = _sound_behind(data, at, next_offset) if frame is None else _framed(data, at, frame)
        if found is not None:
            first, last, end = found.header.base_offset, found.header.last_offset, found.end
        elif frame is not None and at + FRAME_BYTES + frame.size <= len(data):
            first, last, end = frame.first_offset, frame.last_offset, at + FRAME_BYTES + frame.size
        else:
            following = _next_frame(data, at + 1, next_offset)
            if following is None:
                yield Tail(at)
                return
            at, frame = following
            if frame.first_offset > next_offset:
                yield Damaged(next_offset, frame.first_offset - 1)
                next_offset = frame.first_offset
            continue
        at = end
        if first < next_offset:
            yield Stale(first)
            continue
        yield Damaged(first, last) if found is None else found
        next_offset = last + 1


def _frame_at(data: bytearray, at: int) -> Frame | None:
    if len(data) - at < FRAME_BYTES:
        return None
    magic, first, delta, epoch, size, crc = _FRAME.unpack_from(data, at)
    if magic != _MAGIC or crc != crc32c.crc32c(memoryview(data)[at : at + _CHECKED]):
        return None
    return Frame(first, first + delta, epoch, size)


def _next_frame(data: bytearray, at: int, next_offset: int) -> tuple[int, Frame] | None:
    while (at := data.find(_MAGIC, at)) >= 0:
        frame = _frame_at(data, at)
        if frame is not None and frame.first_offset >= next_offset:
            return at, frame
        at += 1
    return None


def _framed(data: bytearray, at: int, frame: Frame) -> Sound | None:
    """The batch behind a good frame, its own offset, length and epoch set right by it."""
    start = at + FRAME_BYTES
    end = start + frame.size
    if end > len(data):
        return None
    struct.pack_into(">qi", data, start, frame.first_offset, frame.size - 12)
    patch(data, start, base_offset=frame.first_offset, leader_epoch=frame.leader_epoch)
    header = _header(data, start)
    return None if header is None or header.size != frame.size else Sound(start, end, header)


def _sound_behind(data: bytearray, at: int, next_offset: int) -> Sound | None:
    """The batch behind a damaged frame, or one without any frame, as the first version wrote them."""
    for start in (at + FRAME_BYTES, at):
        header = _header(data, start)
        if header is None:
            continue
        if start == at or header.base_offset < next_offset:
            patch(data, start, base_offset=next_offset, leader_epoch=max(0, header.partition_leader_epoch))
            header = parse_header(data, start)
        return Sound(start, start + header.size, header)
    return None


def _header(data: bytearray, start: int) -> BatchHeader | None:
    try:
        header = parse_header(data, start)
    except WireError:
        return None
    return header if check_crc(data, start, header) else None
