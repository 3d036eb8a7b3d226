"""With `fsync` set to `always` a power cut costs nothing that was acknowledged, nor anything that a reader has seen.

The disk has of each file what was synced, and of each directory the names that were; of what was not it has what chance
has it: the system writes back in its own time.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kclient_quota.broker.groups.committed_offsets import CommittedOffset
from kclient_quota.broker.storage.disk import Disk
from kclient_quota.broker.storage.fsync import Fsync
from kclient_quota.broker.transactions.transaction_coordinator import Ending
from kclient_quota.wire.batches import TRANSACTIONAL
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.records import Record, build_batch, iterate_records
from tests.property.examples import examples
from tests.unit.broker.storage_life import Life


class Platter(Disk):
    """Knows what a power cut would leave."""

    def __init__(self, root):
        self.root = root
        self.ids, self.open, self.synced, self.names, self.count = {}, {}, {}, {}, 0

    def open_append(self, path):
        fd = super().open_append(path)
        if path not in self.ids:
            self.count += 1
            self.ids[path] = self.count
        self.open[fd] = self.ids[path]
        return fd

    def sync(self, fd):
        self.synced[self.open[fd]] = Path(f"/proc/self/fd/{fd}").read_bytes()

    def sync_directory(self, path):
        self.names[path] = {one: self.ids.get(one) for one in path.iterdir()}

    def sync_all(self):
        for path, number in self.ids.items():
            self.synced[number] = path.read_bytes()

    def replace(self, source, target):
        super().replace(source, target)
        self.ids[target] = self.ids.pop(source)

    def unlink(self, path):
        super().unlink(path)
        self.ids.pop(path, None)

    def remove_tree(self, path):
        super().remove_tree(path)
        for one in [one for one in self.ids if path in one.parents]:
            del self.ids[one]

    def cut(self, target, chance):
        """Make in a new directory what the disk has."""
        self._leave(self.root, target, chance)

    def _leave(self, here, target, chance):
        target.mkdir()
        names = dict(self.names.get(here, {}))
        for one in sorted(here.iterdir()) if here.exists() else ():
            if chance.random() < 0.3:
                names[one] = self.ids.get(one)
        for one, number in names.items():
            if number is not None:
                (target / one.name).write_bytes(self._content(one, number, chance))
            elif one.name != "lock":
                self._leave(one, target / one.name, chance)

    def _content(self, path, number, chance):
        synced = self.synced.get(number, b"")
        if self.ids.get(path) == number and chance.random() < 0.5:
            written = path.read_bytes()
            if written.startswith(synced):
                return written[: chance.randint(len(synced), len(written))]
        return synced


class Session:
    """A broker with what its clients and readers were told."""

    def __init__(self, root):
        self.disk = Platter(root)
        self.life = Life(root / "a" / "data", disk=self.disk, fsync=Fsync.of("always"), segment_bytes=400)
        self.life.storage.begin_syncs(self.life.cluster, self.life.scheduler)
        self.topics, self.doomed, self.records, self.positions = set(), {}, {}, []
        self.count, self.producer, self.sequence, self.committed = 0, None, {}, []

    def on_disk(self, acknowledge):
        promise = self.life.cluster.on_disk()
        promise.on_resolved(lambda: acknowledge() if promise.value is None else None)

    def make(self, topic):
        if topic not in self.life.cluster.topics:
            self.life.create(topic)
            self.records[topic] = {}
            made = self.life.cluster.topics[topic]
            self.on_disk(lambda: self.topics.add(topic) if self.life.cluster.topics.get(topic) is made else None)

    def delete(self, topic):
        # one of a transaction stays, so that it can be told how that has ended
        if topic in self.life.cluster.topics and topic == "u" and "u" not in self.sequence:
            self.topics.discard(topic)
            doomed = self.life.cluster.topics[topic].topic_id
            self.doomed[doomed] = self.records[topic]
            self.life.cluster.delete_topic(topic)
            self.life.cluster.save()
            self.on_disk(lambda: self.doomed.pop(doomed))

    def append(self, topic):
        if topic in self.life.cluster.topics:
            self.count += 1
            value = b"%d" % self.count
            offset = self.life.append(value, topic=topic).base_offset
            records = self.records[topic]
            self.on_disk(lambda: records.update({offset: value}))

    def commit(self, topic):
        if topic in self.life.cluster.topics:
            self.count += 1
            offset = self.count
            self.life.groups.commit("g", "t", 0, CommittedOffset(offset))
            self.on_disk(lambda: self.positions.append(offset))

    def forget(self, topic):
        if topic in self.life.cluster.topics:
            self.life.log(topic).delete_before(self.life.log(topic).high_watermark // 2)

    def write(self, topic):
        """A transaction over both topics, as clients of the first protocol write it."""
        if not {"t", "u"} <= set(self.life.cluster.topics) or self.producer is not None:
            return
        transactions = self.life.transactions
        made = transactions.coordinator.initialize("x", 60_000)
        transactions.keep()
        if made.error:
            return
        self.producer = made.producer_id, made.producer_epoch
        added = transactions.add("x", *self.producer, 1_000, partitions=[("t", 0), ("u", 0)])
        self.go_on(topic)
        if added is not ErrorCode.NONE:
            self.producer = None
            return
        for name in ("t", "u"):
            one = build_batch(
                [Record(b"x")],
                producer_id=made.producer_id,
                producer_epoch=made.producer_epoch,
                base_sequence=0,
                attributes=TRANSACTIONAL,
            )
            appended = self.life.log(name).append(one, leader_epoch=0, now_ms=5)
            assert not appended.error
            self.sequence[name] = appended.base_offset
        self.go_on(topic)

    def end(self, _topic):
        if self.producer is None:
            return
        answer = self.life.transactions.coordinator.end("x", *self.producer, is_commit=True)
        if not isinstance(answer, Ending):
            return
        offsets = dict(self.sequence)
        self.producer = None
        ended = self.life.transactions.finish(answer)
        ended.on_resolved(lambda: self.on_disk(lambda: self.committed.append(offsets)))

    def begin_round(self, _topic):
        self.life.scheduler.pass_ms(0)
        self.life.storage.wait()

    def go_on(self, _topic):
        for _ in range(8):
            self.life.scheduler.pass_ms(0)
            self.life.storage.wait()
        self.life.scheduler.pass_ms(0)


def is_open_or(log, offset):
    """How the transaction of a batch has ended."""
    aborted = any(one.first_offset <= offset <= one.last_offset for one in log.transactions.aborted)
    return "aborted" if aborted else "committed" if offset < log.last_stable_offset else "open"


def check(session, seen, life):
    for topic in session.topics:
        log = life.log(topic)
        assert not log.damaged
        assert log.end_offset >= seen.get(topic, 0)
        stored = dict(values(log))
        for offset, value in session.records[topic].items():
            assert offset < log.start_offset or stored.get(offset) == value, (topic, offset)
    for topic_id, records in session.doomed.items():
        back = life.cluster.topics_by_id.get(topic_id)
        stored = {} if back is None else dict(values(back.partitions[0].log))
        for offset, value in records.items() if back is not None else ():
            start_offset = back.partitions[0].log.start_offset
            assert offset < start_offset or stored.get(offset) == value, "what nobody knows to be deleted is whole"
    if session.positions:
        assert life.groups.committed("g", "t", 0).offset >= session.positions[-1]
    if set(session.sequence) == {"t", "u"} and {"t", "u"} <= set(life.cluster.topics):
        for _ in range(3):
            life.scheduler.pass_ms(1_000)
        there = [
            is_open_or(life.log(name), offset)
            for name, offset in session.sequence.items()
            if life.log(name).start_offset <= offset
        ]
        assert len(set(there)) <= 1, "a transaction is whole"
        if session.sequence in session.committed:
            assert set(there) <= {"committed"}


def values(log) -> Iterator[tuple[int, bytes]]:
    for one in log.batches():
        yield from ((number, value) for number, value in records_of(one))


def records_of(one):
    return [(record.offset, bytes(record.value or b"")) for record in iterate_records(one)]


ACTIONS = ("make", "delete", "append", "append", "commit", "forget", "write", "end", "begin_round", "go_on")


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from(("t", "u"))), min_size=5, max_size=40),
    st.integers(0, 1 << 32),
)
@example([("begin_round", "t"), ("append", "u"), ("delete", "u"), ("append", "t"), ("go_on", "t")], 3)
@example([*[("append", "t")] * 3, ("write", "t"), *[("append", "t")] * 2], 0)
def test_a_power_cut_costs_nothing_that_was_told(actions, seed):
    with TemporaryDirectory() as folder:
        root = Path(folder, "root")
        root.mkdir()
        session = Session(root)
        for action, topic in [("make", "t"), ("make", "u"), *actions]:
            getattr(session, action)(topic)
        seen = {name: session.life.log(name).high_watermark for name in session.life.cluster.topics}
        session.life.storage.wait()
        left = Path(folder, "left")
        session.disk.cut(left, random.Random(seed))
        if session.topics or session.positions:
            assert (left / "a" / "data" / "metadata.jsonl").exists()
        session.life.storage.close()
        life = Life(left / "a" / "data", segment_bytes=400)
        check(session, seen, life)
        life.storage.close()
