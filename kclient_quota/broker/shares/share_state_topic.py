"""`__share_group_state`: what share groups have of partitions, as the records of Apache Kafka 4.3.1.

A snapshot says everything of one partition, updates what has changed since; after 500 of them comes another snapshot.
What no partition's last snapshot needs any more is deleted, as Kafka does.
"""

import struct
from base64 import urlsafe_b64encode
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kclient_telemetry import logger_of

from kclient_quota.broker.cluster_state import ClusterState
from kclient_quota.broker.internal_topics import SHARE_GROUP_STATE, InternalTopic, wire_string
from kclient_quota.broker.request.context import Alarm, Scheduler
from kclient_quota.broker.shares.share_records import Run
from kclient_quota.wire.codec import encode
from kclient_quota.wire.messages.coordinator_records import ShareSnapshotValue, ShareUpdateValue

_LOG = logger_of(__name__)
_NOT_BEGUN, _NOTHING_YET = -1, -1
_GONE_AT_ONCE = 100
"""Of so many partitions it is told in one turn that a group has nothing of them any more: some 20 ms."""
_UPDATES_PER_SNAPSHOT = 500
"""Kafka: `share.coordinator.snapshot.update.records.per.snapshot`."""
_VERSION = b"\x00\x00"

TopicPart = tuple[UUID, int]


@dataclass(slots=True)
class _Told:
    """What was told of a partition: which snapshot, in which share, how many updates after it."""

    epoch: int
    state_epoch: int
    share: int
    updates: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """A state as it is written: `complete` of the records from `start_offset` on are settled, these have changed."""

    start_offset: int
    complete: int
    leader_epoch: int
    changed: Sequence[Run]


class ShareStateTopic:
    """Writes the topic.

    Args:
        cluster: has the topic.
        scheduler: the time of snapshots.

    Attributes:
        records: where they go.
    """

    def __init__(self, cluster: ClusterState, scheduler: Scheduler) -> None:
        self.records = InternalTopic(SHARE_GROUP_STATE, cluster, scheduler)
        self._cluster = cluster
        self._scheduler = scheduler
        self._told: dict[str, dict[TopicPart, _Told]] = {}
        # by share, the oldest snapshot first
        self._offsets: dict[int, OrderedDict[tuple[str, TopicPart], int]] = {}
        self._leaving: deque[tuple[str, TopicPart]] = deque()
        self._alarm = Alarm(scheduler, self._tell_gone)

    def parts(self, group_id: str) -> Collection[TopicPart]:
        """Of which partitions something was told."""
        return self._told.get(group_id, {}).keys()

    def initialize(self, group_id: str, part: TopicPart, state_epoch: int) -> None:
        """A group is to read a partition, and has not begun to."""
        self._snapshot(group_id, part, Written(_NOT_BEGUN, _NOTHING_YET, 0, ()), state_epoch)

    def begin(self, group_id: str, part: TopicPart, offset: int, state_epoch: int) -> None:
        """A group begins anew at an offset."""
        self._snapshot(group_id, part, Written(offset, 0, 0, ()), state_epoch)

    def write(self, group_id: str, part: TopicPart, written: Written, everything: Callable[[], Written]) -> None:
        """Something has changed; `everything` tells what there is after that, for a snapshot."""
        told = self._told.get(group_id, {}).get(part)
        if told is None or told.updates >= _UPDATES_PER_SNAPSHOT:
            state_epoch = 0 if told is None else told.state_epoch
            self._snapshot(group_id, part, everything(), state_epoch)
            return
        value = ShareUpdateValue(
            snapshot_epoch=told.epoch,
            leader_epoch=written.leader_epoch,
            start_offset=written.start_offset,
            delivery_complete_count=written.complete,
            state_batches=[ShareUpdateValue.StateBatch(**_batch(run)) for run in written.changed],
        )
        told.updates += 1
        if self._append(group_id, part, ShareUpdateValue.__schema__.api_key, _VERSION + encode(value, 0)) is None:
            self.mistold(group_id, part)

    def mistold(self, group_id: str, part: TopicPart) -> None:
        """What was told of a partition is not what there is: of the next change it is told with everything."""
        told = self._told.get(group_id, {}).get(part)
        if told is not None:
            told.updates = _UPDATES_PER_SNAPSHOT

    def forget(self, group_id: str, part: TopicPart) -> None:
        """A group has nothing of a partition any more: it is told of in the next turns, of many some in each."""
        parts = self._told.get(group_id, {})
        told = parts.pop(part, None)
        if told is not None:
            self._offsets[told.share].pop((group_id, part), None)
            self._leaving.append((group_id, part))
            self._alarm.set(self._scheduler.now_ms())
            if not parts:
                del self._told[group_id]

    def _tell_gone(self) -> None:
        for _ in range(min(len(self._leaving), _GONE_AT_ONCE)):
            group_id, part = self._leaving.popleft()
            if part not in self._told.get(group_id, {}):  # else it has come back meanwhile, and its snapshot says so
                self._append(group_id, part, ShareSnapshotValue.__schema__.api_key, None)
        if self._leaving:
            self._alarm.set(self._scheduler.now_ms())

    def _snapshot(self, group_id: str, part: TopicPart, written: Written, state_epoch: int) -> None:
        parts = self._told.setdefault(group_id, {})
        former, now_ms = parts.get(part), self._scheduler.now_ms()
        epoch = 0 if former is None else former.epoch + 1
        value = ShareSnapshotValue(
            snapshot_epoch=epoch,
            state_epoch=state_epoch,
            leader_epoch=written.leader_epoch,
            start_offset=written.start_offset,
            delivery_complete_count=written.complete,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
            state_batches=[ShareSnapshotValue.StateBatch(**_batch(run)) for run in written.changed],
        )
        place = self._append(group_id, part, ShareSnapshotValue.__schema__.api_key, _VERSION + encode(value, 0))
        if place is None:
            return
        share, offset = place
        parts[part] = _Told(epoch, state_epoch, share)
        offsets = self._offsets.setdefault(share, OrderedDict())
        offsets[group_id, part] = offset
        offsets.move_to_end((group_id, part))
        if former is not None:
            self._delete_before(share)

    def forget_former(self) -> None:
        """Everything has been told anew: take away what was told before a restart."""
        topic = self._cluster.topics.get(SHARE_GROUP_STATE)
        for partition in () if topic is None else topic.partitions:
            if self._offsets.get(partition.index):
                self._delete_before(partition.index)
            elif partition.log.start_offset < partition.log.end_offset:
                # nothing of it is there still, and that it is gone was perhaps not told to its end
                self.records.delete_before(partition.index, partition.log.end_offset)

    def _delete_before(self, share: int) -> None:
        """Take away what is older than every partition's last snapshot."""
        self.records.delete_before(share, next(iter(self._offsets[share].values())))

    def _append(self, group_id: str, part: TopicPart, kind: int, value: bytes | None) -> tuple[int, int] | None:
        if not self.records.is_told:
            return None
        topic_id, index = part
        key = struct.pack(">h", kind) + wire_string(group_id) + topic_id.bytes + struct.pack(">i", index)
        about = f"{group_id}:{urlsafe_b64encode(topic_id.bytes).rstrip(b'=').decode()}:{index}"
        try:
            return self.records.append_all(about, [(key, value)])
        except OSError as error:
            # it is kept in the data directory; this is told, not read back
            _LOG.error("what share group %s has of a partition is not told: %s", group_id, error)
            return None


def _batch(run: Run) -> dict[str, Any]:
    first, last, state, count = run
    return {"first_offset": first, "last_offset": last, "delivery_state": state, "delivery_count": count}
