"""What was acknowledged survives the end of the process, torn writes, a full disk and one damaged bit.

A cluster lives on a directory through several runs. The disk fails at any write: it takes a part of it and is full, or
it takes a part of it and the process is dead. Between two runs one bit of any file may flip.
"""

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

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
from kclient_quota.errors import ConfigError
from kclient_quota.wire.batches import parse_header
from kclient_quota.wire.records import Record, build_batch, iterate_records

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
    count: int = 0


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
        self.storage.restore(self.cluster, self.groups, self.shares)

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
        else:
            assert topic not in self.cluster.topics, "what was not acknowledged is not there"

    def _delete(self, topic):
        if topic not in self.cluster.topics:
            return
        self.cluster.delete_topic(topic)
        was = self.truth.topics.pop(topic, None)
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
        for topic in self.cluster.topics:
            assert topic in truth.topics or topic in truth.doubtful


actions = st.lists(
    st.tuples(
        st.sampled_from(["make", "append", "append", "append", "append", "commit", "trim", "configure", "delete"]),
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
        disk.fails_at, is_dead, disk.is_dead = 1 << 60, disk.is_dead, False
        if hasattr(run, "storage"):
            # the dead let go of their lock, and say nothing more
            os.close(run.storage._lock_fd) if is_dead else run.storage.close()


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
