"""Running a cluster: log directories, leaders, reassignments, the controllers' quorum, features."""

# ruff: noqa: D101, D106
# The classes are tables and carry Apache Kafka's own names; `kclient_quota.wire.schema` explains the columns.

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient_quota.wire.schema import Request, Response, Struct, field

if TYPE_CHECKING:
    from kclient_quota.wire.schema import Bool, Int8, Int16, Int32, Int64, String, Uint16, Uuid


class DescribeLogDirsRequest(Request, key=35, versions="1-5", flexible="2+"):
    topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None = field("0+", null="0+")

    class DescribableLogDirTopic(Struct):
        topic: String = field("0+")
        partitions: list[Int32] = field("0+")


class DescribeLogDirsResponse(Response, key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("3+", ignorable=True)
    results: list[DescribeLogDirsResponse.DescribeLogDirsResult] = field("0+")

    class DescribeLogDirsResult(Struct):
        error_code: Int16 = field("0+")
        log_dir: String = field("0+")
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = field("0+")
        total_bytes: Int64 = field("4+", default=-1, ignorable=True)
        usable_bytes: Int64 = field("4+", default=-1, ignorable=True)
        is_cordoned: Bool = field("5+", default=False, ignorable=True)

    class DescribeLogDirsTopic(Struct):
        name: String = field("0+")
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = field("0+")

    class DescribeLogDirsPartition(Struct):
        partition_index: Int32 = field("0+")
        partition_size: Int64 = field("0+")
        offset_lag: Int64 = field("0+")
        is_future_key: Bool = field("0+")


class AlterReplicaLogDirsRequest(Request, key=34, versions="1-2", flexible="2+"):
    dirs: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir] = field("0+")

    class AlterReplicaLogDir(Struct):
        path: String = field("0+")
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = field("0+")

    class AlterReplicaLogDirTopic(Struct):
        name: String = field("0+")
        partitions: list[Int32] = field("0+")


class AlterReplicaLogDirsResponse(Response, key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    results: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = field("0+")

    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: String = field("0+")
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = field("0+")

    class AlterReplicaLogDirPartitionResult(Struct):
        partition_index: Int32 = field("0+")
        error_code: Int16 = field("0+")


class ElectLeadersRequest(Request, key=43, versions="0-2", flexible="2+"):
    election_type: Int8 = field("1+")
    topic_partitions: list[ElectLeadersRequest.TopicPartitions] | None = field("0+", null="0+")
    timeout_ms: Int32 = field("0+", default=60000)

    class TopicPartitions(Struct):
        topic: String = field("0+")
        partitions: list[Int32] = field("0+")


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("1+")
    replica_election_results: list[ElectLeadersResponse.ReplicaElectionResult] = field("0+")

    class ReplicaElectionResult(Struct):
        topic: String = field("0+")
        partition_result: list[ElectLeadersResponse.PartitionResult] = field("0+")

    class PartitionResult(Struct):
        partition_id: Int32 = field("0+")
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+")


class AlterPartitionReassignmentsRequest(Request, key=45, versions="0-1", flexible="0+"):
    timeout_ms: Int32 = field("0+", default=60000)
    allow_replication_factor_change: Bool = field("1+", default=True)
    topics: list[AlterPartitionReassignmentsRequest.ReassignableTopic] = field("0+")

    class ReassignableTopic(Struct):
        name: String = field("0+")
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = field("0+")

    class ReassignablePartition(Struct):
        partition_index: Int32 = field("0+")
        replicas: list[Int32] | None = field("0+", null="0+", default=None)


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    allow_replication_factor_change: Bool = field("1+", default=True, ignorable=True)
    error_code: Int16 = field("0+")
    error_message: String | None = field("0+", null="0+")
    responses: list[AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = field("0+")

    class ReassignableTopicResponse(Struct):
        name: String = field("0+")
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = field("0+")

    class ReassignablePartitionResponse(Struct):
        partition_index: Int32 = field("0+")
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+")


class ListPartitionReassignmentsRequest(Request, key=46, versions="0", flexible="0+"):
    timeout_ms: Int32 = field("0+", default=60000)
    topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None = field(
        "0+", null="0+", default=None
    )

    class ListPartitionReassignmentsTopics(Struct):
        name: String = field("0+")
        partition_indexes: list[Int32] = field("0+")


class ListPartitionReassignmentsResponse(Response, key=46, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: String | None = field("0+", null="0+")
    topics: list[ListPartitionReassignmentsResponse.OngoingTopicReassignment] = field("0+")

    class OngoingTopicReassignment(Struct):
        name: String = field("0+")
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = field("0+")

    class OngoingPartitionReassignment(Struct):
        partition_index: Int32 = field("0+")
        replicas: list[Int32] = field("0+")
        adding_replicas: list[Int32] = field("0+")
        removing_replicas: list[Int32] = field("0+")


class DescribeQuorumRequest(Request, key=55, versions="0-2", flexible="0+"):
    topics: list[DescribeQuorumRequest.TopicData] = field("0+")

    class TopicData(Struct):
        topic_name: String = field("0+")
        partitions: list[DescribeQuorumRequest.PartitionData] = field("0+")

    class PartitionData(Struct):
        partition_index: Int32 = field("0+")


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    error_code: Int16 = field("0+")
    error_message: String | None = field("2+", null="2+", default="", ignorable=True)
    topics: list[DescribeQuorumResponse.TopicData] = field("0+")
    nodes: list[DescribeQuorumResponse.Node] = field("2+")

    class TopicData(Struct):
        topic_name: String = field("0+")
        partitions: list[DescribeQuorumResponse.PartitionData] = field("0+")

    class ReplicaState(Struct):
        replica_id: Int32 = field("0+")
        replica_directory_id: Uuid = field("2+")
        log_end_offset: Int64 = field("0+")
        last_fetch_timestamp: Int64 = field("1+", default=-1, ignorable=True)
        last_caught_up_timestamp: Int64 = field("1+", default=-1, ignorable=True)

    class PartitionData(Struct):
        partition_index: Int32 = field("0+")
        error_code: Int16 = field("0+")
        error_message: String | None = field("2+", null="2+", default="", ignorable=True)
        leader_id: Int32 = field("0+")
        leader_epoch: Int32 = field("0+")
        high_watermark: Int64 = field("0+")
        current_voters: list[DescribeQuorumResponse.ReplicaState] = field("0+")
        observers: list[DescribeQuorumResponse.ReplicaState] = field("0+")

    class Node(Struct):
        node_id: Int32 = field("2+")
        listeners: list[DescribeQuorumResponse.Listener] = field("2+")

    class Listener(Struct):
        name: String = field("2+")
        host: String = field("2+")
        port: Uint16 = field("2+")


class UpdateFeaturesRequest(Request, key=57, versions="0-2", flexible="0+"):
    timeout_ms: Int32 = field("0+", default=60000)
    feature_updates: list[UpdateFeaturesRequest.FeatureUpdateKey] = field("0+")
    validate_only: Bool = field("1+", default=False)

    class FeatureUpdateKey(Struct):
        feature: String = field("0+")
        max_version_level: Int16 = field("0+")
        allow_downgrade: Bool = field("0")
        upgrade_type: Int8 = field("1+", default=1)


class UpdateFeaturesResponse(Response, key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: String | None = field("0+", null="0+")
    results: list[UpdateFeaturesResponse.UpdatableFeatureResult] = field("0-1", ignorable=True)

    class UpdatableFeatureResult(Struct):
        feature: String = field("0+")
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+")
