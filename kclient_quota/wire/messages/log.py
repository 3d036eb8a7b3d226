"""Asking about the log: ListOffsets, DeleteRecords, OffsetForLeaderEpoch, DescribeProducers."""

# ruff: noqa: D101, D106
# The classes are tables and carry Apache Kafka's own names; `kclient_quota.wire.schema` explains the columns.

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient_quota.wire.schema import Request, Response, Struct, field

if TYPE_CHECKING:
    from kclient_quota.wire.schema import Int8, Int16, Int32, Int64, String


class ListOffsetsRequest(Request, key=2, versions="1-11", flexible="6+"):
    replica_id: Int32 = field("0+")
    isolation_level: Int8 = field("2+")
    topics: list[ListOffsetsRequest.ListOffsetsTopic] = field("0+")
    timeout_ms: Int32 = field("10+", ignorable=True)

    class ListOffsetsTopic(Struct):
        name: String = field("0+")
        partitions: list[ListOffsetsRequest.ListOffsetsPartition] = field("0+")

    class ListOffsetsPartition(Struct):
        partition_index: Int32 = field("0+")
        current_leader_epoch: Int32 = field("4+", default=-1, ignorable=True)
        timestamp: Int64 = field("0+")


class ListOffsetsResponse(Response, key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[ListOffsetsResponse.ListOffsetsTopicResponse] = field("0+")

    class ListOffsetsTopicResponse(Struct):
        name: String = field("0+")
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = field("0+")

    class ListOffsetsPartitionResponse(Struct):
        partition_index: Int32 = field("0+")
        error_code: Int16 = field("0+")
        timestamp: Int64 = field("1+", default=-1)
        offset: Int64 = field("1+", default=-1)
        leader_epoch: Int32 = field("4+", default=-1)


class DeleteRecordsRequest(Request, key=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsRequest.DeleteRecordsTopic] = field("0+")
    timeout_ms: Int32 = field("0+")

    class DeleteRecordsTopic(Struct):
        name: String = field("0+")
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = field("0+")

    class DeleteRecordsPartition(Struct):
        partition_index: Int32 = field("0+")
        offset: Int64 = field("0+")


class DeleteRecordsResponse(Response, key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult] = field("0+")

    class DeleteRecordsTopicResult(Struct):
        name: String = field("0+")
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = field("0+")

    class DeleteRecordsPartitionResult(Struct):
        partition_index: Int32 = field("0+")
        low_watermark: Int64 = field("0+")
        error_code: Int16 = field("0+")


class OffsetForLeaderEpochRequest(Request, key=23, versions="2-4", flexible="4+"):
    replica_id: Int32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = field("0+")

    class OffsetForLeaderTopic(Struct):
        topic: String = field("0+")
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = field("0+")

    class OffsetForLeaderPartition(Struct):
        partition: Int32 = field("0+")
        current_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
        leader_epoch: Int32 = field("0+")


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult] = field("0+")

    class OffsetForLeaderTopicResult(Struct):
        topic: String = field("0+")
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = field("0+")

    class EpochEndOffset(Struct):
        error_code: Int16 = field("0+")
        partition: Int32 = field("0+")
        leader_epoch: Int32 = field("1+", default=-1, ignorable=True)
        end_offset: Int64 = field("0+", default=-1)


class DescribeProducersRequest(Request, key=61, versions="0", flexible="0+"):
    topics: list[DescribeProducersRequest.TopicRequest] = field("0+")

    class TopicRequest(Struct):
        name: String = field("0+")
        partition_indexes: list[Int32] = field("0+")


class DescribeProducersResponse(Response, key=61, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    topics: list[DescribeProducersResponse.TopicResponse] = field("0+")

    class TopicResponse(Struct):
        name: String = field("0+")
        partitions: list[DescribeProducersResponse.PartitionResponse] = field("0+")

    class PartitionResponse(Struct):
        partition_index: Int32 = field("0+")
        error_code: Int16 = field("0+")
        error_message: String | None = field("0+", null="0+", default=None)
        active_producers: list[DescribeProducersResponse.ProducerState] = field("0+")

    class ProducerState(Struct):
        producer_id: Int64 = field("0+")
        producer_epoch: Int32 = field("0+")
        last_sequence: Int32 = field("0+", default=-1)
        last_timestamp: Int64 = field("0+", default=-1)
        coordinator_epoch: Int32 = field("0+")
        current_txn_start_offset: Int64 = field("0+", default=-1)
