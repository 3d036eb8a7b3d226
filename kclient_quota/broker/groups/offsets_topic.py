"""`__consumer_offsets`: what groups commit and who is in them, as records that can be read as a topic.

The records are those of Apache Kafka 4.3.1 (`OffsetCommitKey` 1 and `OffsetCommitValue` 4, `GroupMetadataKey` 2 and
`GroupMetadataValue` 3), so that what reads Kafka's topic reads this one. They are told, not read back: a restart
restores offsets from where `broker.storage` keeps them.
"""

import struct
from uuid import UUID

from kclient_telemetry.java import java_hash

from kclient_quota.broker.cluster_state import TOPIC, ClusterState, Topic
from kclient_quota.broker.groups.classic_group import ClassicGroup, GroupState
from kclient_quota.broker.groups.committed_offsets import CommittedOffset
from kclient_quota.broker.request.context import Scheduler
from kclient_quota.wire.records import Record, build_batch
from kclient_quota.wire.schema import ZERO_UUID
from kclient_quota.wire.writing import uvarint

CONSUMER_OFFSETS = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS})
COORDINATOR_PARTITIONS = 50
"""How many shares the groups are divided into (Kafka: `offsets.topic.num.partitions`)."""
_MOST_REPLICAS = 3
_CONFIGS = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}


class OffsetsTopic:
    """Writes the topic; it is made when the first group is looked for.

    Args:
        cluster: has the topic.
        scheduler: the time of commits.

    Attributes:
        is_told: whether anything is written; not while what is kept on a disk is read back.
    """

    def __init__(self, cluster: ClusterState, scheduler: Scheduler) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self.is_told = False

    def topic(self) -> Topic:
        """The topic; each of its partitions is led by the broker that coordinates its share of the groups."""
        found = self._cluster.topics.get(CONSUMER_OFFSETS)
        if found is not None:
            return found
        for key, value in _CONFIGS.items():
            self._cluster.set_config(TOPIC, CONSUMER_OFFSETS, key, value)
        ids = sorted(self._cluster.brokers)
        replicas = min(_MOST_REPLICAS, len(ids))
        assignment = {
            share: [ids[(share + step) % len(ids)] for step in range(replicas)]
            for share in range(COORDINATOR_PARTITIONS)
        }
        return self._cluster.create_topic(
            CONSUMER_OFFSETS, COORDINATOR_PARTITIONS, replication_factor=replicas, assignment=assignment
        )

    def committed(self, group_id: str, topic: str, partition: int, committed: CommittedOffset | None) -> None:
        """Tell of a position, or with None that it is gone.

        Raises:
            OSError: it could not be kept.
        """
        if not self.is_told:
            return
        key = struct.pack(">h", 1) + _string(group_id) + _string(topic) + struct.pack(">i", partition)
        value = None
        if committed is not None:
            known = self._cluster.topics.get(topic)
            value = _offset_value(committed, ZERO_UUID if known is None else known.topic_id, self._scheduler.now_ms())
        self._append(group_id, key, value)

    def group(self, group_id: str, group: ClassicGroup | None) -> None:
        """Tell who is in a group now, if that has been settled, or with None that it is gone.

        Raises:
            OSError: it could not be kept.
        """
        if not self.is_told:
            return
        if group is None:
            self._append(group_id, _group_key(group_id), None)
        elif group.state in {GroupState.EMPTY, GroupState.STABLE}:
            self._append(group_id, _group_key(group_id), _group_value(group, self._scheduler.now_ms()))

    def _append(self, group_id: str, key: bytes, value: bytes | None) -> None:
        partitions, now_ms = self.topic().partitions, self._scheduler.now_ms()
        partition = partitions[share_of(group_id) % len(partitions)]
        batch = build_batch([Record(value, key, timestamp_ms=now_ms)])
        appended = partition.log.append(batch, leader_epoch=partition.leader_epoch, now_ms=now_ms)
        if appended.error:
            raise OSError(f"{CONSUMER_OFFSETS}-{partition.index} does not take what group {group_id} has changed")


def share_of(key: str) -> int:
    """The share of the groups that a group, or of the transactional ids that an id falls into.

    Kafka: `Utils.abs(key.hashCode()) % partitions`.
    """
    code = java_hash(key)
    # the absolute value as a signed int, 0 for the smallest of all
    return (min(code, (1 << 32) - code) & 0x7FFFFFFF) % COORDINATOR_PARTITIONS


def _group_key(group_id: str) -> bytes:
    return struct.pack(">h", 2) + _string(group_id)


def _group_value(group: ClassicGroup, now_ms: int) -> bytes:
    members = [
        b"".join(
            (
                _string(member.member_id),
                _string(member.group_instance_id),
                _string(member.client_id),
                _string(member.client_host),
                struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
                _bytes(member.metadata(group.protocol_name)),
                _bytes(member.assignment),
            )
        )
        for member in group.members.values()
    ]
    head = (
        struct.pack(">h", 3) + _string(group.protocol_type or ""),
        struct.pack(">i", group.generation_id) + _string(group.protocol_name) + _string(group.leader_id),
        struct.pack(">qi", now_ms, len(members)),
    )
    return b"".join((*head, *members))


def _offset_value(committed: CommittedOffset, topic_id: UUID, now_ms: int) -> bytes:
    metadata = committed.metadata.encode()
    head = struct.pack(">hqi", 4, committed.offset, committed.leader_epoch) + uvarint(len(metadata) + 1)
    # the topic's id is tagged field 0, of 16 bytes
    tail = struct.pack(">q", now_ms) + (b"\x00" if topic_id == ZERO_UUID else b"\x01\x00\x10" + topic_id.bytes)
    return head + metadata + tail


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + bytes(data)
