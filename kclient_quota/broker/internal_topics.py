"""Topics that brokers write about themselves: `__consumer_offsets`, `__transaction_state` and `__share_group_state`.

They hold Apache Kafka's records, so that what reads Kafka's topics reads these. They are told, not read back: a restart
restores groups and transactions from where `broker.storage` keeps them.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from kclient_telemetry.java import java_hash

from kclient_quota.broker.cluster_state import TOPIC, ClusterState, Partition, Topic
from kclient_quota.broker.request.context import Scheduler
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.records import Record, build_batch

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
COORDINATOR_PARTITIONS = 50
"""How many shares groups and transactional ids are divided into (Kafka: `offsets.topic.num.partitions` and
`transaction.state.log.num.partitions`)."""
_MOST_REPLICAS = 3
_SEGMENT_BYTES = "104857600"
_BATCH_BYTES = 500_000
"""Of several records together: well below the `max.message.bytes` that consumers expect."""
_CONFIGS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        CONSUMER_OFFSETS: {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": _SEGMENT_BYTES,
        },
        TRANSACTION_STATE: {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": _SEGMENT_BYTES,
            "unclean.leader.election.enable": "false",
        },
        SHARE_GROUP_STATE: {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "retention.ms": "-1",
            "segment.bytes": _SEGMENT_BYTES,
        },
    }
)
INTERNAL_TOPICS = frozenset(_CONFIGS)


def internal_topic(cluster: ClusterState, name: str) -> Topic:
    """The topic, made if need be; each of its partitions is led by the broker that coordinates its share."""
    found = cluster.topics.get(name)
    if found is not None:
        return found
    for key, value in _CONFIGS[name].items():
        cluster.set_config(TOPIC, name, key, value)
    ids = sorted(cluster.brokers)
    replicas = min(_MOST_REPLICAS, len(ids))
    assignment = {
        share: [ids[(share + step) % len(ids)] for step in range(replicas)] for share in range(COORDINATOR_PARTITIONS)
    }
    return cluster.create_topic(name, COORDINATOR_PARTITIONS, replication_factor=replicas, assignment=assignment)


class InternalTopic:
    """Writes one of them; it is made when the first coordinator is looked for.

    Args:
        name: one of `INTERNAL_TOPICS`.
        cluster: has the topic.
        scheduler: the time of records.

    Attributes:
        is_told: whether anything is written; not while what is kept on a disk is read back.
    """

    def __init__(self, name: str, cluster: ClusterState, scheduler: Scheduler) -> None:
        self._name = name
        self._cluster = cluster
        self._scheduler = scheduler
        self.is_told = False

    def prepare(self) -> None:
        """Let the topic be there."""
        if self.is_told:
            internal_topic(self._cluster, self._name)

    def append(self, about: str, key: bytes, value: bytes | None) -> None:
        """Write a record into the share of a group or transactional id.

        Raises:
            OSError: it could not be kept.
        """
        self.append_all(about, [(key, value)])

    def append_all(self, about: str, records: Sequence[tuple[bytes, bytes | None]]) -> tuple[int, int]:
        """Write records, keys and values, into the share of what they are about, in as few batches as may be.

        Returns:
            The partition, and the offset of the first record of the last batch.

        Raises:
            OSError: they could not be kept, or not all of them.
        """
        partition, now_ms = self._share(about), self._scheduler.now_ms()
        offset = -1
        for together in _batches(records):
            self._check(partition, about, sum(len(value or b"") for _, value in together))
            batch = build_batch([Record(value, key, timestamp_ms=now_ms) for key, value in together])
            appended = partition.log.append(batch, leader_epoch=partition.leader_epoch, now_ms=now_ms)
            if appended.error:
                reason = appended.error_message or ErrorCode(appended.error).name
                raise OSError(f"{self._name}-{partition.index} does not take what has changed of {about}: {reason}")
            offset = appended.base_offset
        return partition.index, offset

    def check(self, about: str, size: int) -> None:
        """Nothing, if so many bytes about a group or transactional id may be one batch: none is made of more.

        Raises:
            OSError: they are too large.
        """
        self._check(self._share(about), about, size)

    def _check(self, partition: Partition, about: str, size: int) -> None:
        if size > partition.log.config.max_message_bytes:
            raise OSError(f"{self._name}-{partition.index} does not take what has changed of {about}: it is too large")

    def _share(self, about: str) -> Partition:
        partitions = internal_topic(self._cluster, self._name).partitions
        return partitions[share_of(about) % len(partitions)]

    def delete_before(self, index: int, offset: int) -> None:
        """Take away the records of a partition that are before this one."""
        internal_topic(self._cluster, self._name).partitions[index].log.delete_before(offset)


def _batches(records: Sequence[tuple[bytes, bytes | None]]) -> Iterator[list[tuple[bytes, bytes | None]]]:
    together: list[tuple[bytes, bytes | None]] = []
    size = 0
    for key, value in records:
        size += len(key) + len(value or b"")
        if together and size > _BATCH_BYTES:
            yield together
            together, size = [], len(key) + len(value or b"")
        together.append((key, value))
    if together:
        yield together


def share_of(key: str, partitions: int = COORDINATOR_PARTITIONS) -> int:
    """The share that a group or a transactional id falls into, of so many.

    Kafka: `Utils.abs(key.hashCode()) % partitions`.
    """
    code = java_hash(key)
    # the absolute value as a signed int, 0 for the smallest of all
    return (min(code, (1 << 32) - code) & 0x7FFFFFFF) % partitions


def wire_string(text: str | None) -> bytes:
    """A nullable string before flexible versions."""
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
