"""The log against the simplest possible one: a list of batches."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.segments import SegmentPool
from kclient_quota.wire.batches import parse_header, patch
from kclient_quota.wire.records import Record, build_batch

SEGMENT_BYTES = 2048

appends = st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 700), st.integers(0, 50))
reads = st.tuples(st.just("read"), st.integers(0, 60), st.integers(0, 5000), st.booleans())
lookups = st.tuples(st.just("at"), st.integers(0, 60))
deletes = st.tuples(st.just("delete"), st.integers(0, 60))


class Model:
    """Batches as (base offset, records, timestamp, bytes), all of them for ever."""

    def __init__(self):
        self.batches = []
        self.end = 0
        self.start = 0
        self.segment_of = []
        self._room = 0

    def append(self, batch, count, timestamp):
        if not self.batches or self._room < len(batch):
            self._room = max(SEGMENT_BYTES, len(batch))
            self.segment_of.append(-1)
        self._room -= len(batch)
        patch(batch, 0, base_offset=self.end, leader_epoch=3)
        segment = len(self.segment_of)
        self.batches.append((self.end, count, timestamp, bytes(batch), segment))
        self.end += count

    def read(self, offset, max_bytes, min_one_batch):
        following = [b for b in self.batches if b[0] + b[1] > offset]
        if not following:
            return b""
        size = len(following[0][3])
        if size > max_bytes:
            return following[0][3] if min_one_batch else b""
        return b"".join(b[3] for b in following if b[4] == following[0][4])[:max_bytes]

    def at(self, timestamp):
        found = (b[0] for b in self.batches if b[2] >= timestamp and b[0] + b[1] > self.start)
        return next(found, None)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(appends, reads, lookups, deletes), max_size=40))
def test_the_log_says_what_a_list_of_batches_says(steps):
    log, model = PartitionLog(SegmentPool(SEGMENT_BYTES)), Model()
    for verb, *rest in steps:
        if verb == "append":
            count, size, timestamp = rest
            batch = build_batch([Record(b"x" * size, timestamp_ms=timestamp) for _ in range(count)])
            assert log.append(bytes(batch), leader_epoch=3, now_ms=0).base_offset == model.end
            model.append(batch, count, timestamp)
        elif verb == "read":
            offset, max_bytes, min_one_batch = rest
            offset = min(max(offset, model.start), model.end)
            view = log.read(offset, max_bytes, min_one_batch=min_one_batch)
            assert bytes(view) == model.read(offset, max_bytes, min_one_batch)
            whole = sum(len(b[3]) for b in model.batches if b[0] + b[1] > offset)
            assert log.available_bytes(offset) == whole
        elif verb == "at":
            found = log.batch_at(rest[0])
            assert (None if found is None else parse_header(found).base_offset) == model.at(rest[0])
        else:
            log.delete_before(rest[0])
            model.start = max(model.start, min(rest[0], model.end))
        assert (log.start_offset, log.end_offset) == (model.start, model.end)
