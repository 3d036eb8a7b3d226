"""Topics: CreateTopics, DeleteTopics, CreatePartitions."""

# ruff: noqa: D101, D106
# The classes are tables and carry Apache Kafka's own names; `kclient_quota.wire.schema` explains the columns.

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient_quota.wire.schema import Request, Response, Struct, field

if TYPE_CHECKING:
    from kclient_quota.wire.schema import Bool, Int8, Int16, Int32, String, Uuid


class CreateTopicsRequest(Request, key=19, versions="2-7", flexible="5+"):
    topics: list[CreateTopicsRequest.CreatableTopic] = field("0+")
    timeout_ms: Int32 = field("0+", default=60000)
    validate_only: Bool = field("1+")

    class CreatableTopic(Struct):
        name: String = field("0+")
        num_partitions: Int32 = field("0+")
        replication_factor: Int16 = field("0+")
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = field("0+")
        configs: list[CreateTopicsRequest.CreatableTopicConfig] = field("0+")

    class CreatableReplicaAssignment(Struct):
        partition_index: Int32 = field("0+")
        broker_ids: list[Int32] = field("0+")

    class CreatableTopicConfig(Struct):
        name: String = field("0+")
        value: String | None = field("0+", null="0+")


class CreateTopicsResponse(Response, key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[CreateTopicsResponse.CreatableTopicResult] = field("0+")

    class CreatableTopicResult(Struct):
        name: String = field("0+")
        topic_id: Uuid = field("7+", ignorable=True)
        error_code: Int16 = field("0+")
        error_message: String | None = field("1+", null="0+", ignorable=True)
        topic_config_error_code: Int16 = field("5+", tag=0, ignorable=True)
        num_partitions: Int32 = field("5+", default=-1, ignorable=True)
        replication_factor: Int16 = field("5+", default=-1, ignorable=True)
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = field("5+", null="5+", ignorable=True)

    class CreatableTopicConfigs(Struct):
        name: String = field("5+")
        value: String | None = field("5+", null="5+")
        read_only: Bool = field("5+")
        config_source: Int8 = field("5+", default=-1, ignorable=True)
        is_sensitive: Bool = field("5+")


class DeleteTopicsRequest(Request, key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicsRequest.DeleteTopicState] = field("6+")
    topic_names: list[String] = field("0-5", ignorable=True)
    timeout_ms: Int32 = field("0+")

    class DeleteTopicState(Struct):
        name: String | None = field("6+", null="6+", default=None)
        topic_id: Uuid = field("6+")


class DeleteTopicsResponse(Response, key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    responses: list[DeleteTopicsResponse.DeletableTopicResult] = field("0+")

    class DeletableTopicResult(Struct):
        name: String | None = field("0+", null="6+")
        topic_id: Uuid = field("6+", ignorable=True)
        error_code: Int16 = field("0+")
        error_message: String | None = field("5+", null="5+", default=None, ignorable=True)


class CreatePartitionsRequest(Request, key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsRequest.CreatePartitionsTopic] = field("0+")
    timeout_ms: Int32 = field("0+")
    validate_only: Bool = field("0+")

    class CreatePartitionsTopic(Struct):
        name: String = field("0+")
        count: Int32 = field("0+")
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = field("0+", null="0+")

    class CreatePartitionsAssignment(Struct):
        broker_ids: list[Int32] = field("0+")


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    results: list[CreatePartitionsResponse.CreatePartitionsTopicResult] = field("0+")

    class CreatePartitionsTopicResult(Struct):
        name: String = field("0+")
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+", default=None)
