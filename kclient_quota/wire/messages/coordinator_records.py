"""What coordinators write into `__consumer_offsets` and `__share_group_state`: the values of their records.

The key of a class is its record type, which stands first in the record's key; its version stands before the value.
"""

# ruff: noqa: D101, D106
# The classes are tables and carry Apache Kafka's own names; `kclient_quota.wire.schema` explains the columns.

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient_quota.wire.schema import Message, Struct, field

if TYPE_CHECKING:
    from kclient_quota.wire.schema import Bytes, Int8, Int16, Int32, Int64, String, Uuid


class ConsumerGroupMetadataValue(Message, key=3, versions="0", flexible="0+"):
    epoch: Int32 = field("0+")
    metadata_hash: Int64 = field("0+", tag=0)


class ConsumerGroupMemberMetadataValue(Message, key=5, versions="0", flexible="0+"):
    instance_id: String | None = field("0+", null="0+", default=None)
    rack_id: String | None = field("0+", null="0+", default=None)
    client_id: String = field("0+")
    client_host: String = field("0+")
    subscribed_topic_names: list[String] = field("0+")
    subscribed_topic_regex: String | None = field("0+", null="0+")
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    server_assignor: String | None = field("0+", null="0+", default=None)
    # Kafka's reader takes no field for a classic member without protocols: None, too, is written
    classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = field(
        "0+", null="0+", tag=0, default=""
    )

    class ClassicMemberMetadata(Struct):
        session_timeout_ms: Int32 = field("0+")
        supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol] = field("0+")

    class ClassicProtocol(Struct):
        name: String = field("0+")
        metadata: Bytes = field("0+")


class ConsumerGroupTargetAssignmentMetadataValue(Message, key=6, versions="0", flexible="0+"):
    assignment_epoch: Int32 = field("0+")
    assignment_timestamp: Int64 = field("0+", tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberValue(Message, key=7, versions="0", flexible="0+"):
    topic_partitions: list[ConsumerGroupTargetAssignmentMemberValue.TopicPartition] = field("0+")

    class TopicPartition(Struct):
        topic_id: Uuid = field("0+")
        partitions: list[Int32] = field("0+")


class ConsumerGroupCurrentMemberAssignmentValue(Message, key=8, versions="0", flexible="0+"):
    member_epoch: Int32 = field("0+")
    previous_member_epoch: Int32 = field("0+")
    state: Int8 = field("0+")
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = field("0+")
    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = field("0+")

    class TopicPartitions(Struct):
        topic_id: Uuid = field("0+")
        partitions: list[Int32] = field("0+")
        assignment_epochs: list[Int32] | None = field("0+", null="0+", tag=0, default=None)


class ConsumerGroupRegularExpressionValue(Message, key=16, versions="0", flexible="0+"):
    topics: list[String] = field("0+")
    version: Int64 = field("0+")
    timestamp: Int64 = field("0+")


class ShareGroupMemberMetadataValue(Message, key=10, versions="0", flexible="0+"):
    rack_id: String | None = field("0+", null="0+", default=None)
    client_id: String = field("0+")
    client_host: String = field("0+")
    subscribed_topic_names: list[String] = field("0+")


class ShareGroupMetadataValue(Message, key=11, versions="0", flexible="0+"):
    epoch: Int32 = field("0+")
    metadata_hash: Int64 = field("0+")


class ShareGroupTargetAssignmentMetadataValue(Message, key=12, versions="0", flexible="0+"):
    assignment_epoch: Int32 = field("0+")
    assignment_timestamp: Int64 = field("0+", tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberValue(Message, key=13, versions="0", flexible="0+"):
    topic_partitions: list[ShareGroupTargetAssignmentMemberValue.TopicPartition] = field("0+")

    class TopicPartition(Struct):
        topic_id: Uuid = field("0+")
        partitions: list[Int32] = field("0+")


class ShareGroupCurrentMemberAssignmentValue(Message, key=14, versions="0", flexible="0+"):
    member_epoch: Int32 = field("0+")
    previous_member_epoch: Int32 = field("0+")
    state: Int8 = field("0+")
    assigned_partitions: list[ShareGroupCurrentMemberAssignmentValue.TopicPartitions] = field("0+")

    class TopicPartitions(Struct):
        topic_id: Uuid = field("0+")
        partitions: list[Int32] = field("0+")


class ShareGroupStatePartitionMetadataValue(Message, key=15, versions="0", flexible="0+"):
    initializing_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo] = field("0+")
    initialized_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo] = field("0+")
    deleting_topics: list[ShareGroupStatePartitionMetadataValue.TopicInfo] = field("0+")

    class TopicPartitionsInfo(Struct):
        topic_id: Uuid = field("0+")
        topic_name: String = field("0+")
        partitions: list[Int32] = field("0+")

    class TopicInfo(Struct):
        topic_id: Uuid = field("0+")
        topic_name: String = field("0+")


class ShareSnapshotValue(Message, key=0, versions="0", flexible="0+"):
    snapshot_epoch: Int32 = field("0+")
    state_epoch: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    start_offset: Int64 = field("0+")
    delivery_complete_count: Int32 = field("0+", tag=0, default=-1)
    create_timestamp: Int64 = field("0+")
    write_timestamp: Int64 = field("0+")
    state_batches: list[ShareSnapshotValue.StateBatch] = field("0+")

    class StateBatch(Struct):
        first_offset: Int64 = field("0+")
        last_offset: Int64 = field("0+")
        delivery_state: Int8 = field("0+")
        delivery_count: Int16 = field("0+")


class ShareUpdateValue(Message, key=1, versions="0", flexible="0+"):
    snapshot_epoch: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    start_offset: Int64 = field("0+")
    delivery_complete_count: Int32 = field("0+", tag=0, default=-1)
    state_batches: list[ShareUpdateValue.StateBatch] = field("0+")

    class StateBatch(Struct):
        first_offset: Int64 = field("0+")
        last_offset: Int64 = field("0+")
        delivery_state: Int8 = field("0+")
        delivery_count: Int16 = field("0+")
