"""Share groups of KIP-932: membership, fetching and acknowledging, start offsets."""

# ruff: noqa: D101, D106
# The classes are tables and carry Apache Kafka's own names; `kclient_quota.wire.schema` explains the columns.

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient_quota.wire.schema import Request, Response, Struct, field

if TYPE_CHECKING:
    from kclient_quota.wire.schema import Bool, Int8, Int16, Int32, Int64, Records, String, Uuid


class ShareGroupHeartbeatRequest(Request, key=76, versions="1", flexible="0+"):
    group_id: String = field("0+")
    member_id: String = field("0+")
    member_epoch: Int32 = field("0+")
    rack_id: String | None = field("0+", null="0+", default=None)
    subscribed_topic_names: list[String] | None = field("0+", null="0+", default=None)


class ShareGroupHeartbeatResponse(Response, key=76, versions="1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: String | None = field("0+", null="0+", default=None)
    member_id: String | None = field("0+", null="0+", default=None)
    member_epoch: Int32 = field("0+")
    heartbeat_interval_ms: Int32 = field("0+")
    assignment: ShareGroupHeartbeatResponse.Assignment | None = field("0+", null="0+", default=None)

    class TopicPartitions(Struct):
        topic_id: Uuid = field("0+")
        partitions: list[Int32] = field("0+")

    class Assignment(Struct):
        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions] = field("0+")


class ShareGroupDescribeRequest(Request, key=77, versions="1", flexible="0+"):
    group_ids: list[String] = field("0+")
    include_authorized_operations: Bool = field("0+")


class ShareGroupDescribeResponse(Response, key=77, versions="1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    groups: list[ShareGroupDescribeResponse.DescribedGroup] = field("0+")

    class TopicPartitions(Struct):
        topic_id: Uuid = field("0+")
        topic_name: String = field("0+")
        partitions: list[Int32] = field("0+")

    class Assignment(Struct):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions] = field("0+")

    class DescribedGroup(Struct):
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+", default=None)
        group_id: String = field("0+")
        group_state: String = field("0+")
        group_epoch: Int32 = field("0+")
        assignment_epoch: Int32 = field("0+")
        assignor_name: String = field("0+")
        members: list[ShareGroupDescribeResponse.Member] = field("0+")
        authorized_operations: Int32 = field("0+", default=-2147483648)

    class Member(Struct):
        member_id: String = field("0+")
        rack_id: String | None = field("0+", null="0+", default=None)
        member_epoch: Int32 = field("0+")
        client_id: String = field("0+")
        client_host: String = field("0+")
        subscribed_topic_names: list[String] = field("0+")
        assignment: ShareGroupDescribeResponse.Assignment = field("0+")


class ShareFetchRequest(Request, key=78, versions="1-2", flexible="0+"):
    group_id: String | None = field("0+", null="0+", default=None)
    member_id: String | None = field("0+", null="0+")
    share_session_epoch: Int32 = field("0+")
    max_wait_ms: Int32 = field("0+")
    min_bytes: Int32 = field("0+")
    max_bytes: Int32 = field("0+", default=2147483647)
    max_records: Int32 = field("1+")
    batch_size: Int32 = field("1+")
    share_acquire_mode: Int8 = field("2+", ignorable=True)
    is_renew_ack: Bool = field("2+")
    topics: list[ShareFetchRequest.FetchTopic] = field("0+")
    forgotten_topics_data: list[ShareFetchRequest.ForgottenTopic] = field("0+")

    class FetchTopic(Struct):
        topic_id: Uuid = field("0+")
        partitions: list[ShareFetchRequest.FetchPartition] = field("0+")

    class ForgottenTopic(Struct):
        topic_id: Uuid = field("0+")
        partitions: list[Int32] = field("0+")

    class FetchPartition(Struct):
        partition_index: Int32 = field("0+")
        acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch] = field("0+")

    class AcknowledgementBatch(Struct):
        first_offset: Int64 = field("0+")
        last_offset: Int64 = field("0+")
        acknowledge_types: list[Int8] = field("0+")


class ShareFetchResponse(Response, key=78, versions="1-2", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: String | None = field("0+", null="0+", default=None)
    acquisition_lock_timeout_ms: Int32 = field("1+")
    responses: list[ShareFetchResponse.ShareFetchableTopicResponse] = field("0+")
    node_endpoints: list[ShareFetchResponse.NodeEndpoint] = field("0+")

    class ShareFetchableTopicResponse(Struct):
        topic_id: Uuid = field("0+")
        partitions: list[ShareFetchResponse.PartitionData] = field("0+")

    class NodeEndpoint(Struct):
        node_id: Int32 = field("0+")
        host: String = field("0+")
        port: Int32 = field("0+")
        rack: String | None = field("0+", null="0+", default=None)

    class PartitionData(Struct):
        partition_index: Int32 = field("0+")
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+", default=None)
        acknowledge_error_code: Int16 = field("0+")
        acknowledge_error_message: String | None = field("0+", null="0+", default=None)
        current_leader: ShareFetchResponse.LeaderIdAndEpoch = field("0+")
        records: Records | None = field("0+", null="0")
        acquired_records: list[ShareFetchResponse.AcquiredRecords] = field("0+")

    class LeaderIdAndEpoch(Struct):
        leader_id: Int32 = field("0+")
        leader_epoch: Int32 = field("0+")

    class AcquiredRecords(Struct):
        first_offset: Int64 = field("0+")
        last_offset: Int64 = field("0+")
        delivery_count: Int16 = field("0+")


class ShareAcknowledgeRequest(Request, key=79, versions="1-2", flexible="0+"):
    group_id: String | None = field("0+", null="0+", default=None)
    member_id: String | None = field("0+", null="0+")
    share_session_epoch: Int32 = field("0+")
    is_renew_ack: Bool = field("2+")
    topics: list[ShareAcknowledgeRequest.AcknowledgeTopic] = field("0+")

    class AcknowledgeTopic(Struct):
        topic_id: Uuid = field("0+")
        partitions: list[ShareAcknowledgeRequest.AcknowledgePartition] = field("0+")

    class AcknowledgePartition(Struct):
        partition_index: Int32 = field("0+")
        acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch] = field("0+")

    class AcknowledgementBatch(Struct):
        first_offset: Int64 = field("0+")
        last_offset: Int64 = field("0+")
        acknowledge_types: list[Int8] = field("0+")


class ShareAcknowledgeResponse(Response, key=79, versions="1-2", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: String | None = field("0+", null="0+", default=None)
    acquisition_lock_timeout_ms: Int32 = field("2+", ignorable=True)
    responses: list[ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = field("0+")
    node_endpoints: list[ShareAcknowledgeResponse.NodeEndpoint] = field("0+")

    class ShareAcknowledgeTopicResponse(Struct):
        topic_id: Uuid = field("0+")
        partitions: list[ShareAcknowledgeResponse.PartitionData] = field("0+")

    class NodeEndpoint(Struct):
        node_id: Int32 = field("0+")
        host: String = field("0+")
        port: Int32 = field("0+")
        rack: String | None = field("0+", null="0+", default=None)

    class PartitionData(Struct):
        partition_index: Int32 = field("0+")
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+", default=None)
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch = field("0+")

    class LeaderIdAndEpoch(Struct):
        leader_id: Int32 = field("0+")
        leader_epoch: Int32 = field("0+")


class DescribeShareGroupOffsetsRequest(Request, key=90, versions="0-1", flexible="0+"):
    groups: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup] = field("0+")

    class DescribeShareGroupOffsetsRequestGroup(Struct):
        group_id: String = field("0+")
        topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None = field(
            "0+", null="0+"
        )

    class DescribeShareGroupOffsetsRequestTopic(Struct):
        topic_name: String = field("0+")
        partitions: list[Int32] = field("0+")


class DescribeShareGroupOffsetsResponse(Response, key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    groups: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup] = field("0+")

    class DescribeShareGroupOffsetsResponseGroup(Struct):
        group_id: String = field("0+")
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = field("0+")
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+", default=None)

    class DescribeShareGroupOffsetsResponseTopic(Struct):
        topic_name: String = field("0+")
        topic_id: Uuid = field("0+")
        partitions: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition] = field("0+")

    class DescribeShareGroupOffsetsResponsePartition(Struct):
        partition_index: Int32 = field("0+")
        start_offset: Int64 = field("0+")
        leader_epoch: Int32 = field("0+")
        lag: Int64 = field("1+", default=-1, ignorable=True)
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+", default=None)


class AlterShareGroupOffsetsRequest(Request, key=91, versions="0", flexible="0+"):
    group_id: String = field("0+")
    topics: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic] = field("0+")

    class AlterShareGroupOffsetsRequestTopic(Struct):
        topic_name: String = field("0+")
        partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition] = field("0+")

    class AlterShareGroupOffsetsRequestPartition(Struct):
        partition_index: Int32 = field("0+")
        start_offset: Int64 = field("0+")


class AlterShareGroupOffsetsResponse(Response, key=91, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: String | None = field("0+", null="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic] = field("0+")

    class AlterShareGroupOffsetsResponseTopic(Struct):
        topic_name: String = field("0+")
        topic_id: Uuid = field("0+")
        partitions: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition] = field("0+")

    class AlterShareGroupOffsetsResponsePartition(Struct):
        partition_index: Int32 = field("0+")
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+", default=None)


class DeleteShareGroupOffsetsRequest(Request, key=92, versions="0", flexible="0+"):
    group_id: String = field("0+")
    topics: list[DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic] = field("0+")

    class DeleteShareGroupOffsetsRequestTopic(Struct):
        topic_name: String = field("0+")


class DeleteShareGroupOffsetsResponse(Response, key=92, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: String | None = field("0+", null="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic] = field("0+")

    class DeleteShareGroupOffsetsResponseTopic(Struct):
        topic_name: String = field("0+")
        topic_id: Uuid = field("0+")
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+", default=None)
