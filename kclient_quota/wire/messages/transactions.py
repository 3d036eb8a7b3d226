"""Idempotence and transactions: InitProducerId to EndTxn, and who is in one."""

# ruff: noqa: D101, D106
# The classes are tables and carry Apache Kafka's own names; `kclient_quota.wire.schema` explains the columns.

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient_quota.wire.schema import Request, Response, Struct, field

if TYPE_CHECKING:
    from kclient_quota.wire.schema import Bool, Int16, Int32, Int64, String


class InitProducerIdRequest(Request, key=22, versions="0-6", flexible="2+", latest_unstable=True):
    transactional_id: String | None = field("0+", null="0+")
    transaction_timeout_ms: Int32 = field("0+")
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)
    enable_2pc: Bool = field("6+")
    keep_prepared_txn: Bool = field("6+")


class InitProducerIdResponse(Response, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: Int32 = field("0+", ignorable=True)
    error_code: Int16 = field("0+")
    producer_id: Int64 = field("0+", default=-1)
    producer_epoch: Int16 = field("0+")
    ongoing_txn_producer_id: Int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = field("6+", default=-1)


class AddPartitionsToTxnRequest(Request, key=24, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction] = field("4+")
    v3_and_below_transactional_id: String = field("0-3")
    v3_and_below_producer_id: Int64 = field("0-3")
    v3_and_below_producer_epoch: Int16 = field("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = field("0-3")

    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: String = field("4+")
        producer_id: Int64 = field("4+")
        producer_epoch: Int16 = field("4+")
        verify_only: Bool = field("4+")
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = field("4+")

    class AddPartitionsToTxnTopic(Struct):
        name: String = field("0+")
        partitions: list[Int32] = field("0+")


class AddPartitionsToTxnResponse(Response, key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult] = field("4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = field("0-3")

    class AddPartitionsToTxnResult(Struct):
        transactional_id: String = field("4+")
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = field("4+")

    class AddPartitionsToTxnTopicResult(Struct):
        name: String = field("0+")
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = field("0+")

    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: Int32 = field("0+")
        partition_error_code: Int16 = field("0+")


class AddOffsetsToTxnRequest(Request, key=25, versions="0-4", flexible="3+"):
    transactional_id: String = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    group_id: String = field("0+")


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")


class EndTxnRequest(Request, key=26, versions="0-5", flexible="3+"):
    transactional_id: String = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    committed: Bool = field("0+")


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    producer_id: Int64 = field("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = field("5+", default=-1, ignorable=True)


class TxnOffsetCommitRequest(Request, key=28, versions="0-5", flexible="3+"):
    transactional_id: String = field("0+")
    group_id: String = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    generation_id: Int32 = field("3+", default=-1)
    member_id: String = field("3+")
    group_instance_id: String | None = field("3+", null="3+", default=None)
    topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = field("0+")

    class TxnOffsetCommitRequestTopic(Struct):
        name: String = field("0+")
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = field("0+")

    class TxnOffsetCommitRequestPartition(Struct):
        partition_index: Int32 = field("0+")
        committed_offset: Int64 = field("0+")
        committed_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
        committed_metadata: String | None = field("0+", null="0+")


class TxnOffsetCommitResponse(Response, key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("0+")
    topics: list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic] = field("0+")

    class TxnOffsetCommitResponseTopic(Struct):
        name: String = field("0+")
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = field("0+")

    class TxnOffsetCommitResponsePartition(Struct):
        partition_index: Int32 = field("0+")
        error_code: Int16 = field("0+")


class DescribeTransactionsRequest(Request, key=65, versions="0", flexible="0+"):
    transactional_ids: list[String] = field("0+")


class DescribeTransactionsResponse(Response, key=65, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    transaction_states: list[DescribeTransactionsResponse.TransactionState] = field("0+")

    class TransactionState(Struct):
        error_code: Int16 = field("0+")
        transactional_id: String = field("0+")
        transaction_state: String = field("0+")
        transaction_timeout_ms: Int32 = field("0+")
        transaction_start_time_ms: Int64 = field("0+")
        producer_id: Int64 = field("0+")
        producer_epoch: Int16 = field("0+")
        topics: list[DescribeTransactionsResponse.TopicData] = field("0+")

    class TopicData(Struct):
        topic: String = field("0+")
        partitions: list[Int32] = field("0+")


class ListTransactionsRequest(Request, key=66, versions="0-2", flexible="0+"):
    state_filters: list[String] = field("0+")
    producer_id_filters: list[Int64] = field("0+")
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: String | None = field("2+", null="2+", default=None)


class ListTransactionsResponse(Response, key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    unknown_state_filters: list[String] = field("0+")
    transaction_states: list[ListTransactionsResponse.TransactionState] = field("0+")

    class TransactionState(Struct):
        transactional_id: String = field("0+")
        producer_id: Int64 = field("0+")
        transaction_state: String = field("0+")
