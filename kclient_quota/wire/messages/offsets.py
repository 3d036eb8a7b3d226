"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete."""

# ruff: noqa: D101, D106
# The classes are tables and carry Apache Kafka's own names; `kclient_quota.wire.schema` explains the columns.

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient_quota.wire.schema import Request, Response, Struct, field

if TYPE_CHECKING:
    from kclient_quota.wire.schema import Bool, Int16, Int32, Int64, String, Uuid


class OffsetCommitRequest(Request, key=8, versions="2-10", flexible="8+"):
    group_id: String = field("0+")
    generation_id_or_member_epoch: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String = field("1+", ignorable=True)
    group_instance_id: String | None = field("7+", null="7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequest.OffsetCommitRequestTopic] = field("0+")

    class OffsetCommitRequestTopic(Struct):
        name: String = field("0-9", ignorable=True)
        topic_id: Uuid = field("10+", ignorable=True)
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = field("0+")

    class OffsetCommitRequestPartition(Struct):
        partition_index: Int32 = field("0+")
        committed_offset: Int64 = field("0+")
        committed_leader_epoch: Int32 = field("6+", default=-1, ignorable=True)
        committed_metadata: String | None = field("0+", null="0+")


class OffsetCommitResponse(Response, key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: Int32 = field("3+", ignorable=True)
    topics: list[OffsetCommitResponse.OffsetCommitResponseTopic] = field("0+")

    class OffsetCommitResponseTopic(Struct):
        name: String = field("0-9", ignorable=True)
        topic_id: Uuid = field("10+", ignorable=True)
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = field("0+")

    class OffsetCommitResponsePartition(Struct):
        partition_index: Int32 = field("0+")
        error_code: Int16 = field("0+")


class OffsetFetchRequest(Request, key=9, versions="1-10", flexible="6+"):
    group_id: String = field("0-7")
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None = field("0-7", null="2-7")
    groups: list[OffsetFetchRequest.OffsetFetchRequestGroup] = field("8+")
    require_stable: Bool = field("7+")

    class OffsetFetchRequestTopic(Struct):
        name: String = field("0-7")
        partition_indexes: list[Int32] = field("0-7")

    class OffsetFetchRequestGroup(Struct):
        group_id: String = field("8+")
        member_id: String | None = field("9+", null="9+", default=None, ignorable=True)
        member_epoch: Int32 = field("9+", default=-1, ignorable=True)
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = field("8+", null="8+")

    class OffsetFetchRequestTopics(Struct):
        name: String = field("8-9", ignorable=True)
        topic_id: Uuid = field("10+", ignorable=True)
        partition_indexes: list[Int32] = field("8+")


class OffsetFetchResponse(Response, key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: Int32 = field("3+", ignorable=True)
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopic] = field("0-7")
    error_code: Int16 = field("2-7", ignorable=True)
    groups: list[OffsetFetchResponse.OffsetFetchResponseGroup] = field("8+")

    class OffsetFetchResponseTopic(Struct):
        name: String = field("0-7")
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = field("0-7")

    class OffsetFetchResponsePartition(Struct):
        partition_index: Int32 = field("0-7")
        committed_offset: Int64 = field("0-7")
        committed_leader_epoch: Int32 = field("5-7", default=-1, ignorable=True)
        metadata: String | None = field("0-7", null="0-7")
        error_code: Int16 = field("0-7")

    class OffsetFetchResponseGroup(Struct):
        group_id: String = field("8+")
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = field("8+")
        error_code: Int16 = field("8+")

    class OffsetFetchResponseTopics(Struct):
        name: String = field("8-9", ignorable=True)
        topic_id: Uuid = field("10+", ignorable=True)
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = field("8+")

    class OffsetFetchResponsePartitions(Struct):
        partition_index: Int32 = field("8+")
        committed_offset: Int64 = field("8+")
        committed_leader_epoch: Int32 = field("8+", default=-1, ignorable=True)
        metadata: String | None = field("8+", null="8+")
        error_code: Int16 = field("8+")


class OffsetDeleteRequest(Request, key=47, versions="0"):
    group_id: String = field("0+")
    topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic] = field("0+")

    class OffsetDeleteRequestTopic(Struct):
        name: String = field("0+")
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = field("0+")

    class OffsetDeleteRequestPartition(Struct):
        partition_index: Int32 = field("0+")


class OffsetDeleteResponse(Response, key=47, versions="0"):
    error_code: Int16 = field("0+")
    throttle_time_ms: Int32 = field("0+", ignorable=True)
    topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic] = field("0+")

    class OffsetDeleteResponseTopic(Struct):
        name: String = field("0+")
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = field("0+")

    class OffsetDeleteResponsePartition(Struct):
        partition_index: Int32 = field("0+")
        error_code: Int16 = field("0+")
