"""What was acknowledged survives the end of the process, torn writes, a full disk and one damaged bit.

A cluster lives on a directory through several runs. The disk fails at any write: it takes a part of it and is full, or
it takes a part of it and the process is dead. Between two runs one bit of any file may flip.
"""

import logging
import os
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kclient_quota.broker.cluster_state import TOPIC, BrokerInfo, ClusterState
from kclient_quota.broker.groups.committed_offsets import CommittedOffset
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.segments import SegmentPool
from kclient_quota.broker.shares.share_service import ShareService
from kclient_quota.broker.storage.cluster_storage import ClusterStorage
from kclient_quota.broker.storage.disk import Disk
from kclient_quota.broker.transactions.transaction_coordinator import TransactionState
from kclient_quota.broker.transactions.transaction_service import TransactionService
from kclient_quota.errors import ConfigError
from kclient_quota.wire.batches import TRANSACTIONAL, parse_header
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.records import Record, build_batch, iterate_records
from tests.property.examples import examples
from tests.unit.broker.handler_node import ManualScheduler

TOPICS = ("t", "u")


class Dead(BaseException):
    """The process has ended in the middle of a call."""


class FailingDisk(Disk):
    """Fails at its `fails_at`-th write and, when it kills, ever after; otherwise it is full for `lasts` writes."""

    def __init__(self, fails_at, lasts, taken, *, kills):
        self.fails_at, self.lasts, self.taken, self.kills = fails_at, lasts, taken, kills
        self.writes = 0
        self.is_dead = False

    def _alive(self):
        if self.is_dead:
            raise Dead

    def write(self, fd, parts):
        self._alive()
        self.writes += 1
        if self.fails_at <= self.writes < self.fails_at + self.lasts:
            data = b"".join(parts)
            super().write(fd, [data[: int(len(data) * self.taken)]])
            if self.kills:
                self.is_dead = True
                raise Dead
            raise OSError(28, "No space left on device")
        return super().write(fd, parts)

    def truncate(self, fd, size):
        self._alive()
        super().truncate(fd, size)

    def unlink(self, path):
        self._alive()
        super().unlink(path)

    def remove_tree(self, path):
        self._alive()
        super().remove_tree(path)

    def replace(self, source, target):
        self._alive()
        super().replace(source, target)


@dataclass
class Truth:
    """What clients have been told."""

    topics: dict[str, UUID] = field(default_factory=dict)
    records: dict[str, dict[int, bytes]] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    committed: dict[str, list[int | None]] = field(default_factory=dict)
    retention: dict[str, list[str | None]] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    producers: dict[str, "Producer"] = field(default_factory=dict)
    fates: dict[str, dict[int, bool]] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def ended(self, topic, *, is_commit):
        """A client knows now how a transaction has ended."""
        producer = self.producers[topic]
        for offset in producer.offsets:
            self.fates.setdefault(topic, {})[offset] = is_commit
        if is_commit and producer.position is not None:
            self.positions[topic] = producer.position
        producer.told()

    def forget_transactions(self, topic):
        """The topic is another one, or there is none; its producer begins anew."""
        for kept in (self.producers, self.fates, self.positions):
            kept.pop(topic, None)


@dataclass
class Producer:
    """A transactional producer that outlives its brokers, and what it was told of its open transaction.

    Attributes:
        offsets: where its batches are.
        position: what it was told is about to be committed.
        asked: the end it has asked for, whose answer it never got; else None.
    """

    id: int
    epoch: int
    sequence: int = 0
    offsets: list[int] = field(default_factory=list)
    position: int | None = None
    asked: bool | None = None

    def told(self):
        """The end that was asked for has been answered."""
        self.offsets, self.position, self.asked = [], None, None


class Run:
    def __init__(self, path, disk, truth):
        self.truth = truth
        self.storage = ClusterStorage(path, disk=disk)
        pool = SegmentPool(300)
        self.cluster = ClusterState(
            cluster_id=self.storage.cluster_id("c"),
            brokers=[BrokerInfo(1, "127.0.0.1")],
            new_topic_id=self._topic_id,
            new_log=lambda config: PartitionLog(pool, config),
        )
        self.groups = GroupService(self.cluster, None)
        self.shares = ShareService(self.cluster, None)
        self.transactions = TransactionService(self.cluster, ManualScheduler())
        self.transactions.offsets = self.groups.offsets
        self.storage.restore(self.cluster, self.groups, self.shares, self.transactions)
        self.transactions.resume()

    def _topic_id(self):
        self.truth.count += 1
        return UUID(int=self.truth.count)

    def log(self, topic):
        return self.cluster.topics[topic].partitions[0].log

    def saved(self, topic):
        self.truth.doubtful.add(topic)
        try:
            self.cluster.save()
        except OSError:
            return False
        self.truth.doubtful.discard(topic)
        return True

    def do(self, action, topic):
        getattr(self, f"_{action}")(topic)

    def _make(self, topic):
        if topic in self.cluster.topics:
            return
        made = self.cluster.create_topic(topic, 1)
        if self.saved(topic):
            truth = self.truth
            truth.topics[topic] = made.topic_id
            truth.records[topic], truth.starts[topic], truth.retention[topic] = {}, 0, [None]
            truth.committed.pop(topic, None)
            truth.forget_transactions(topic)
        else:
            assert topic not in self.cluster.topics, "what was not acknowledged is not there"

    def _delete(self, topic):
        if topic not in self.cluster.topics:
            return
        self.cluster.delete_topic(topic)
        was = self.truth.topics.pop(topic, None)
        self.truth.forget_transactions(topic)
        if not self.saved(topic) and was is not None:
            return
        self.truth.doubtful.discard(topic)

    def _append(self, topic):
        if topic not in self.cluster.topics:
            return
        self.truth.count += 1
        value = b"%d" % self.truth.count
        appended = self.log(topic).append(build_batch([Record(value), Record(value)]), leader_epoch=0, now_ms=0)
        if not appended.error and topic in self.truth.topics:
            self.truth.records[topic][appended.base_offset] = value

    def _trim(self, topic):
        if topic in self.cluster.topics:
            log = self.log(topic)
            wanted = (log.start_offset + log.end_offset) // 2
            if topic in self.truth.topics:
                self.truth.starts[topic] = max(self.truth.starts[topic], wanted)
            log.delete_before(wanted)

    def _commit(self, topic):
        if topic not in self.cluster.topics:
            return
        self.truth.count += 1
        told = self.truth.committed.setdefault(topic, [None])
        told.append(self.truth.count)
        try:
            self.groups.commit("g", topic, 0, CommittedOffset(self.truth.count))
        except OSError:
            return
        del told[:-1]

    def _configure(self, topic):
        if topic not in self.truth.topics or topic not in self.cluster.topics:
            return
        self.truth.count += 1
        value = str(10**9 + self.truth.count)
        told = self.truth.retention[topic]
        told.append(value)
        self.cluster.set_config(TOPIC, topic, "retention.bytes", value)
        if self.saved(topic):
            del told[:-1]
        else:
            assert self.cluster.config(TOPIC, topic, "retention.bytes") in told[:-1]

    def _write(self, topic):
        """A batch and a position in the producer's transaction; Produce v12 and TxnOffsetCommit v5 do the same."""
        if topic not in self.cluster.topics or topic not in self.truth.topics:
            return
        try:
            producer = self.truth.producers.get(topic) or self._producer(topic)
            self._write_in_transaction(topic, producer)
        except OSError:
            return

    def _producer(self, topic):
        coordinator = self.transactions.coordinator
        ending = coordinator.fence(topic)
        if ending is not None:
            self.transactions.finish(ending)
        made = coordinator.initialize(topic, 60_000)
        self.transactions.keep()
        if made.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            raise OSError("the former transaction is still being ended")
        assert made.error is ErrorCode.NONE
        return self.truth.producers.setdefault(topic, Producer(made.producer_id, made.producer_epoch))

    def _write_in_transaction(self, topic, producer):
        place = topic, producer.id, producer.epoch, 0
        self.resolve(topic)
        added = self.transactions.add(*place, partitions=[(topic, 0)], groups=["h"])
        if added is ErrorCode.CONCURRENT_TRANSACTIONS:
            return
        assert added is ErrorCode.NONE, "the producer goes on whatever has become of the broker"
        self.truth.count += 1
        value = b"%d" % self.truth.count
        batch = build_batch(
            [Record(value), Record(value)],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            attributes=TRANSACTIONAL,
        )
        appended = self.log(topic).append(batch, leader_epoch=0, now_ms=0)
        assert appended.error in {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}, "its sequence goes on, too"
        if not appended.error:
            producer.sequence += 2
            producer.offsets.append(appended.base_offset)
            self.truth.records[topic][appended.base_offset] = value
            self.groups.commit_pending(producer.id, "h", topic, 0, CommittedOffset(self.truth.count))
            producer.position = self.truth.count

    def _end(self, topic, *, is_commit=True):
        producer = self.truth.producers.get(topic)
        if producer is None or topic not in self.cluster.topics:
            return
        self.resolve(topic)
        if not producer.offsets or self.transactions.coordinator.check(topic, producer.id, producer.epoch):
            return
        producer.asked = is_commit
        answer = self.transactions.coordinator.end(topic, producer.id, producer.epoch, is_commit=is_commit)
        try:
            self.transactions.finish(answer)
        except OSError:
            producer.asked = None
            return
        self.truth.ended(topic, is_commit=is_commit)

    def _abort(self, topic):
        self._end(topic, is_commit=False)

    def resolve(self, topic):
        """What has become of an end whose answer was lost: it is whole, or there was none."""
        producer, transaction = self.truth.producers[topic], self.transactions.coordinator.transactions[topic]
        if producer.asked is None:
            return
        if transaction.state is TransactionState.ONGOING:
            producer.asked = None
        else:
            self.truth.ended(topic, is_commit=producer.asked)

    def check_transactions(self, topic, forgiven):
        """Open ones are open, ended ones ended as they were told; how many damages are still forgiven."""
        truth, log = self.truth, self.log(topic)
        producer = truth.producers.get(topic)
        if producer is not None:
            self.resolve(topic)
            if producer.offsets:
                transaction = self.transactions.coordinator.transactions[topic]
                assert transaction.state is TransactionState.ONGOING
                assert (transaction.producer_id, transaction.producer_epoch) == (producer.id, producer.epoch)
                assert (topic, 0) in transaction.partitions
        for offset, is_commit in truth.fates.get(topic, {}).items():
            if offset < log.start_offset or log.damage_at(offset):
                continue
            assert offset < log.last_stable_offset
            is_aborted = any(one.first_offset <= offset <= one.last_offset for one in log.transactions.aborted)
            assert is_aborted != is_commit
        wanted, found = truth.positions.get(topic), self.groups.committed("h", topic, 0)
        if wanted is not None and (found is None or found.offset != wanted):
            assert forgiven, "a position that a transaction has committed is lost"
            forgiven -= 1
        return forgiven

    def check(self, flipped):
        """Everything that was acknowledged is there, but one damaged batch (or one line of the journal)."""
        truth, forgiven = self.truth, 1 if flipped else 0
        for topic, topic_id in truth.topics.items():
            if topic in truth.doubtful:
                continue
            assert self.cluster.topics[topic].topic_id == topic_id
            log = self.log(topic)
            found, last = {}, -1
            for each in log.batches():
                header = parse_header(each)
                assert header.base_offset > last
                last = header.last_offset
                found[header.base_offset] = next(iterate_records(each)).value
            wanted = {at: value for at, value in truth.records[topic].items() if at + 1 >= log.start_offset}
            lost = {at for at, value in wanted.items() if found.get(at) != value}
            named = {at for at in lost if log.damage_at(at)}
            assert len(lost) <= forgiven
            assert lost == named
            forgiven -= len(lost)
            assert log.end_offset >= max(truth.records[topic], default=-2) + 2
            assert log.start_offset <= truth.starts[topic]
            if truth.retention[topic] and topic not in truth.doubtful:
                present = self.cluster.configs.get((TOPIC, topic), {}).get("retention.bytes")
                assert present in truth.retention[topic]
            told = truth.committed.get(topic)
            if told:
                committed = self.groups.committed("g", topic, 0)
                if (committed and committed.offset) not in told:
                    assert forgiven, "a committed offset is lost"
                    forgiven -= 1
            forgiven = self.check_transactions(topic, forgiven)
        for topic in self.cluster.topics:
            assert topic in truth.topics or topic in truth.doubtful


ACTIONS = [
    *("make", "append", "append", "append", "commit", "trim", "configure", "delete"),
    *("write", "write", "write", "end", "end", "abort"),
]
actions = st.lists(
    st.tuples(
        st.sampled_from(ACTIONS),
        st.sampled_from(TOPICS),
    ),
    max_size=25,
)
runs = st.lists(
    st.tuples(
        actions,
        st.integers(1, 40),
        st.integers(1, 6),
        st.sampled_from([0, 0.3, 0.6, 0.9]),
        st.booleans(),
        st.none() | st.tuples(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True), st.integers(0, 7)),
    ),
    min_size=1,
    max_size=4,
)


def flip(path, where):
    """Flip one bit of one file; whether there was any."""
    if where is None:
        return False
    files = sorted(each for each in path.rglob("*") if each.is_file() and each.name != "lock" and each.stat().st_size)
    if not files:
        return False
    which, position, bit = where
    file = files[int(which * len(files))]
    data = bytearray(file.read_bytes())
    data[int(position * len(data))] ^= 1 << bit
    file.write_bytes(data)
    return True


def live(path, disk, truth, todo):
    """One run, up to its end or its death."""
    run = Run.__new__(Run)
    try:
        run.__init__(path, disk, truth)
        for action, topic in todo:
            run.do(action, topic)
    except (Dead, ConfigError, OSError):
        # an OSError only while reading back: the disk was full before the cluster began
        assert disk.writes >= disk.fails_at
    finally:
        # it has room again from here on
        disk.lasts, is_dead, disk.is_dead = 0, disk.is_dead, False
        if hasattr(run, "storage"):
            # the dead let go of their lock, and say nothing more
            os.close(run.storage._lock_fd) if is_dead else run.storage.close()


@settings(max_examples=examples(250, 400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(runs)
def test_nothing_acknowledged_is_lost(lives):
    logging.disable(logging.CRITICAL)
    try:
        with TemporaryDirectory() as directory:
            path, truth = Path(directory) / "data", Truth()
            for todo, fails_at, lasts, taken, kills, _ in lives:
                live(path, FailingDisk(fails_at, lasts, taken, kills=kills), truth, todo)
                after = Run(path, Disk(), truth)
                after.check(flipped=False)
                after.storage.close()
            if flip(path, lives[-1][-1]):
                damaged = Run(path, Disk(), truth)
                damaged.check(flipped=True)
                damaged.storage.close()
    finally:
        logging.disable(logging.NOTSET)


IN_TRANSACTIONS = [(action, "t") for action in ("make", "write", "write", "end", "write", "abort", "write", "write")]


@pytest.mark.parametrize("kills", [True, False])
@pytest.mark.parametrize("taken", [0, 0.6])
def test_a_transaction_goes_on_whichever_write_fails(tmp_path, taken, kills):
    logging.disable(logging.CRITICAL)
    try:
        for fails_at in count(1):
            path, truth = tmp_path / str(fails_at), Truth()
            disk = FailingDisk(fails_at, 1, taken, kills=kills)
            live(path, disk, truth, IN_TRANSACTIONS)
            live(
                path,
                FailingDisk(1 << 60, 0, 0, kills=False),
                truth,
                [("write", "t"), ("end", "t"), ("write", "t"), ("abort", "t")],
            )
            after = Run(path, Disk(), truth)
            after.check(flipped=False)
            after.storage.close()
            assert truth.doubtful or not truth.topics or truth.fates["t"], "it went on"
            if disk.writes < fails_at:
                break
        assert fails_at > 25
    finally:
        logging.disable(logging.NOTSET)
