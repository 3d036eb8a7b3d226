"""Memory for logs: large buffers that are touched once and used again, since page faults cost more than copying."""

import mmap
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress

from kclient_quota.wire.batches import BatchHeader, Buffer, parse_header

SEGMENT_BYTES = 32 * 1024 * 1024
_KEPT_FREE = 4
_POPULATE_WRITE = 23
"""Linux' MADV_POPULATE_WRITE (5.14), which `mmap` has no name for: touch all of this at once."""
_WORTH_POPULATING_BYTES = 16 * 1024
_PAGE_MASK = mmap.PAGESIZE - 1


class Segment:
    """A stretch of a log: batches one behind the other, and where each begins.

    Args:
        buffer: memory of its own.
        base_offset: offset of the first record it will hold.
        is_new: whether nobody has written to the buffer.

    Attributes:
        view: the whole buffer.
        size: bytes in use.
        offsets: base offset of each batch.
        ends: the offset behind the last one of each batch.
        positions: where each batch begins.
        max_timestamps: the largest record timestamp of each batch.
    """

    __slots__ = (
        "_is_new",
        "_newest",
        "base_offset",
        "buffer",
        "ends",
        "max_timestamps",
        "offsets",
        "positions",
        "size",
        "view",
    )

    def __init__(self, buffer: mmap.mmap, base_offset: int, *, is_new: bool = True) -> None:
        self._is_new = is_new and sys.platform == "linux"
        self.buffer = buffer
        self.base_offset = base_offset
        self.view = memoryview(buffer)
        self.size = 0
        self.offsets = array("q")
        self.ends = array("q")
        self.positions = array("q")
        self.max_timestamps = array("q")
        self._newest = array("q")

    def add(self, batch: Buffer, header: BatchHeader, base_offset: int) -> int:
        """Put a batch, for which there is room, behind the others; where it begins."""
        at, size = self.size, len(batch)
        if self._is_new and size >= _WORTH_POPULATING_BYTES:
            first = at & ~_PAGE_MASK
            # page faults, one for every 4 KiB, cost more than the copying; a system that cannot is only slower
            with suppress(OSError):
                self.buffer.madvise(_POPULATE_WRITE, first, at + size - first)
        self.view[at : at + size] = batch
        self.offsets.append(base_offset)
        self.ends.append(base_offset + header.last_offset_delta + 1)
        self.positions.append(at)
        self.note_time(header.max_timestamp)
        self.size = at + size
        return at

    def take_back(self) -> None:
        """Undo the last `add`."""
        self.size = self.positions.pop()
        self.offsets.pop()
        self.ends.pop()
        self.forget_time()

    def batch(self, index: int) -> memoryview:
        """A batch."""
        return self.view[self.positions[index] : self.end_of(index)]

    def __iter__(self) -> Iterator[memoryview]:
        for index in range(len(self.positions)):
            yield self.batch(index)

    def room(self, segment_bytes: int) -> int:
        """Bytes not in use yet, if it may have so many."""
        return min(len(self.view), segment_bytes) - self.size

    @property
    def newest_ms(self) -> int:
        """The largest timestamp of all."""
        return self._newest[-1]

    def note_time(self, max_timestamp: int) -> None:
        """Of the batch that comes next."""
        self.max_timestamps.append(max_timestamp)
        self._newest.append(max(max_timestamp, self._newest[-1]) if self._newest else max_timestamp)

    def forget_time(self) -> None:
        """Undo the last `note_time`."""
        self.max_timestamps.pop()
        self._newest.pop()

    def take_over(self, other: "Segment") -> None:
        """Be what `other` was, whose bytes have been copied."""
        self.size, self.offsets, self.ends, self.positions = other.size, other.offsets, other.ends, other.positions
        self.max_timestamps, self._newest = other.max_timestamps, other._newest  # noqa: SLF001 - of the same class

    def first_at(self, timestamp_ms: int, first: int) -> int | None:
        """Index of the first batch from `first` on with a record at `timestamp_ms` or later, or None.

        What compaction has left empty has no record.
        """
        if not first:
            # the largest timestamp up to each batch rises: where it reaches the time is the first batch that does
            first = bisect_left(self._newest, timestamp_ms)
        times = self.max_timestamps
        late = (index for index in range(first, len(times)) if times[index] >= timestamp_ms)
        return next((index for index in late if parse_header(self.batch(index)).record_count), None)

    def end_of(self, batch: int) -> int:
        """Position behind the batch with this index."""
        return self.positions[batch + 1] if batch + 1 < len(self.positions) else self.size


class SegmentPool:
    """Hands out segments and takes them back.

    Args:
        segment_bytes: size of a segment; a larger batch gets a segment of its own size.
    """

    def __init__(self, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.segment_bytes = segment_bytes
        self._free: list[mmap.mmap] = []

    def take(self, base_offset: int, needed_bytes: int) -> Segment:
        """An empty segment with room for `needed_bytes`."""
        if needed_bytes <= self.segment_bytes and self._free:
            return Segment(self._free.pop(), base_offset, is_new=False)
        return Segment(_allocate(max(self.segment_bytes, needed_bytes)), base_offset)

    def trimmed(self, segment: Segment) -> Segment:
        """A segment that nothing will be added to; most of its memory is given back if it is not used."""
        if segment.size > len(segment.view) // 2:
            return segment
        trimmed = Segment(_allocate(max(segment.size, 1)), segment.base_offset)
        trimmed.view[: segment.size] = segment.view[: segment.size]
        trimmed.take_over(segment)
        self.give_back(segment)
        return trimmed

    def give_back(self, segment: Segment) -> None:
        """Use the memory again, unless a response that is still being written refers to it."""
        segment.view.release()
        is_reusable = len(segment.buffer) == self.segment_bytes and len(self._free) < _KEPT_FREE
        if is_reusable and not _is_referred_to(segment.buffer):
            self._free.append(segment.buffer)


def _allocate(size: int) -> mmap.mmap:
    """Private anonymous memory: costs nothing until it is touched, unlike a bytearray, which is zeroed."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _is_referred_to(buffer: mmap.mmap) -> bool:
    """Whether a memoryview of it is alive: only then, or where the system cannot tell, is a resize refused."""
    try:
        buffer.resize(len(buffer))
    except (BufferError, SystemError):
        return True
    return False
