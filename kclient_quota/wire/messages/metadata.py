"""What the cluster is: Metadata, ApiVersions, DescribeCluster, DescribeTopicPartitions."""

# ruff: noqa: D101, D106
# The classes are tables and carry Apache Kafka's own names; `kclient_quota.wire.schema` explains the columns.

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient_quota.wire.schema import Request, Response, Struct, field

if TYPE_CHECKING:
    from kclient_quota.wire.schema import Bool, Int8, Int16, Int32, Int64, String, Uuid


class MetadataRequest(Request, key=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequest.MetadataRequestTopic] | None = field("0+", null="1+")
    allow_auto_topic_creation: Bool = field("4+", default=True)
    include_cluster_authorized_operations: Bool = field("8-10")
    include_topic_authorized_operations: Bool = field("8+")

    class MetadataRequestTopic(Struct):
        topic_id: Uuid = field("10+", ignorable=True)
        name: String | None = field("0+", null="10+")


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: Int32 = field("3+", ignorable=True)
    brokers: list[MetadataResponse.MetadataResponseBroker] = field("0+")
    cluster_id: String | None = field("2+", null="2+", default=None, ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponse.MetadataResponseTopic] = field("0+")
    cluster_authorized_operations: Int32 = field("8-10", default=-2147483648)
    error_code: Int16 = field("13+", ignorable=True)

    class MetadataResponseBroker(Struct):
        node_id: Int32 = field("0+")
        host: String = field("0+")
        port: Int32 = field("0+")
        rack: String | None = field("1+", null="1+", default=None, ignorable=True)

    class MetadataResponseTopic(Struct):
        error_code: Int16 = field("0+")
        name: String | None = field("0+", null="12+")
        topic_id: Uuid = field("10+", ignorable=True)
        is_internal: Bool = field("1+", ignorable=True)
        partitions: list[MetadataResponse.MetadataResponsePartition] = field("0+")
        topic_authorized_operations: Int32 = field("8+", default=-2147483648)

    class MetadataResponsePartition(Struct):
        error_code: Int16 = field("0+")
        partition_index: Int32 = field("0+")
        leader_id: Int32 = field("0+")
        leader_epoch: Int32 = field("7+", default=-1, ignorable=True)
        replica_nodes: list[Int32] = field("0+")
        isr_nodes: list[Int32] = field("0+")
        offline_replicas: list[Int32] = field("5+", ignorable=True)


class ApiVersionsRequest(Request, key=18, versions="0-4", flexible="3+"):
    client_software_name: String = field("3+", ignorable=True)
    client_software_version: String = field("3+", ignorable=True)


class ApiVersionsResponse(Response, key=18, versions="0-4", flexible="3+"):
    error_code: Int16 = field("0+")
    api_keys: list[ApiVersionsResponse.ApiVersion] = field("0+")
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    supported_features: list[ApiVersionsResponse.SupportedFeatureKey] = field("3+", tag=0, ignorable=True)
    finalized_features_epoch: Int64 = field("3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey] = field("3+", tag=2, ignorable=True)
    zk_migration_ready: Bool = field("3+", tag=3, ignorable=True)

    class ApiVersion(Struct):
        api_key: Int16 = field("0+")
        min_version: Int16 = field("0+")
        max_version: Int16 = field("0+")

    class SupportedFeatureKey(Struct):
        name: String = field("3+")
        min_version: Int16 = field("3+")
        max_version: Int16 = field("3+")

    class FinalizedFeatureKey(Struct):
        name: String = field("3+")
        max_version_level: Int16 = field("3+")
        min_version_level: Int16 = field("3+")


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: Bool = field("0+")
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: Bool = field("2+")


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: String | None = field("0+", null="0+", default=None)
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: String = field("0+")
    controller_id: Int32 = field("0+", default=-1)
    brokers: list[DescribeClusterResponse.DescribeClusterBroker] = field("0+")
    cluster_authorized_operations: Int32 = field("0+", default=-2147483648)

    class DescribeClusterBroker(Struct):
        broker_id: Int32 = field("0+")
        host: String = field("0+")
        port: Int32 = field("0+")
        rack: String | None = field("0+", null="0+", default=None)
        is_fenced: Bool = field("2+")


class DescribeTopicPartitionsRequest(Request, key=75, versions="0", flexible="0+"):
    topics: list[DescribeTopicPartitionsRequest.TopicRequest] = field("0+")
    response_partition_limit: Int32 = field("0+", default=2000)
    cursor: DescribeTopicPartitionsRequest.Cursor | None = field("0+", null="0+", default=None)

    class TopicRequest(Struct):
        name: String = field("0+")

    class Cursor(Struct):
        topic_name: String = field("0+")
        partition_index: Int32 = field("0+")


class DescribeTopicPartitionsResponse(Response, key=75, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic] = field("0+")
    next_cursor: DescribeTopicPartitionsResponse.Cursor | None = field("0+", null="0+", default=None)

    class DescribeTopicPartitionsResponseTopic(Struct):
        error_code: Int16 = field("0+")
        name: String | None = field("0+", null="0+")
        topic_id: Uuid = field("0+", ignorable=True)
        is_internal: Bool = field("0+", ignorable=True)
        partitions: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition] = field("0+")
        topic_authorized_operations: Int32 = field("0+", default=-2147483648)

    class DescribeTopicPartitionsResponsePartition(Struct):
        error_code: Int16 = field("0+")
        partition_index: Int32 = field("0+")
        leader_id: Int32 = field("0+")
        leader_epoch: Int32 = field("0+", default=-1, ignorable=True)
        replica_nodes: list[Int32] = field("0+")
        isr_nodes: list[Int32] = field("0+")
        eligible_leader_replicas: list[Int32] | None = field("0+", null="0+", default=None)
        last_known_elr: list[Int32] | None = field("0+", null="0+", default=None)
        offline_replicas: list[Int32] = field("0+", ignorable=True)

    class Cursor(Struct):
        topic_name: String = field("0+")
        partition_index: Int32 = field("0+")
