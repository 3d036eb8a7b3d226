"""Batches in memory, segment by segment, found by offset, size and time. What they mean is `partition_log`'s affair."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from kclient_quota.broker.log.segments import Segment, SegmentPool
from kclient_quota.wire.batches import BatchHeader, Buffer


class StoredBatches:
    """Batches of one partition, by rising offsets; compaction leaves gaps.

    Args:
        pool: where segments come from and go to.

    Attributes:
        segments: oldest first; the last one is written to.
        pool: as given.
        removals: how often segments have gone.
    """

    def __init__(self, pool: SegmentPool) -> None:
        self.segments: list[Segment] = []
        self.pool = pool
        self.removals = 0

    @property
    def size_bytes(self) -> int:
        """Bytes held."""
        return sum(segment.size for segment in self.segments)

    # -- writing

    def copy_in(
        self, batch: Buffer, header: BatchHeader, base_offset: int, segment_bytes: int, *, begins_segment: bool = False
    ) -> tuple[Segment, int]:
        """Put a batch behind the others; its segment, and where in it the batch begins."""
        size = len(batch)
        if begins_segment or not self.segments or self.segments[-1].room(segment_bytes) < size:
            if self.segments:
                self.segments[-1] = self.pool.trimmed(self.segments[-1])
            self.segments.append(self.pool.take(base_offset, size))
        segment = self.segments[-1]
        return segment, segment.add(batch, header, base_offset)

    def drop_before(self, offset: int) -> None:
        """Let go of the segments that lie before `offset`; the last one stays."""
        while len(self.segments) > 1 and self.segments[1].base_offset <= offset:
            self.pool.give_back(self.segments.pop(0))
            self.removals += 1

    def drop_last(self) -> None:
        """Let go of the last segment."""
        self.pool.give_back(self.segments.pop())
        self.removals += 1

    def clear(self) -> None:
        """Let go of everything."""
        for segment in self.segments:
            self.pool.give_back(segment)
        self.segments.clear()
        self.removals += 1

    def replace(self, old: list[Segment], new: list[Segment]) -> list[Segment]:
        """Put `new` in the place of the oldest segments, if these are still `old`; what is to be given back then."""
        if self.segments[: len(old)] != old:
            return new
        self.segments[: len(old)] = new
        self.removals += 1
        return old

    # -- reading

    def find(self, offset: int) -> tuple[Segment, int] | None:
        """Segment and index of the first batch that ends behind `offset`, or None."""
        segments = self.segments
        at = len(segments) - 1
        if at > 0 and offset < segments[at].base_offset:
            at = max(0, bisect_right(segments, offset, key=_base_offset) - 1)
        for segment in segments[at:]:
            index = bisect_right(segment.ends, offset)
            if index < len(segment.ends):
                return segment, index
        return None

    def end_of_offsets(self, segment: Segment, first: int, size_bytes: int) -> int:
        """The offset behind the batches that a read of `size_bytes` from the batch `first` on touches."""
        return segment.ends[bisect_left(segment.positions, segment.positions[first] + size_bytes) - 1]

    def available_bytes(self, offset: int) -> int:
        """How many bytes there are from the batch that holds `offset` on."""
        found = self.find(offset)
        if found is None:
            return 0
        segment, batch = found
        later = self.segments[self.segments.index(segment) + 1 :]
        return segment.size - segment.positions[batch] + sum(other.size for other in later)

    def batch_at(self, timestamp_ms: int, start_offset: int) -> memoryview | None:
        """The first batch that ends behind `start_offset` with a record at `timestamp_ms` or later, or None."""
        for segment in self.segments:
            index = segment.first_at(timestamp_ms, bisect_right(segment.ends, start_offset))
            if index is not None:
                return segment.batch(index)
        return None

    @property
    def newest_ms(self) -> int | None:
        """The largest timestamp, None when there are no batches."""
        return max((segment.newest_ms for segment in self.segments if segment.size), default=None)

    def __iter__(self) -> Iterator[memoryview]:
        for segment in self.segments:
            yield from segment


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
