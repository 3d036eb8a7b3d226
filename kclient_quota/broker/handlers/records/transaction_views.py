"""Looking at transactions and at who writes.

DescribeProducers (61) v0 · DescribeTransactions (65) v0 · ListTransactions (66) v0-2. KIP-664, KIP-994, KIP-1152.

Behaviour: as Kafka's. Producers are told by every replica of a partition, transactions by their coordinator.
Versions: ListTransactions 1 by duration (KIP-994); 2 by a regular expression of the id (KIP-1152), in linear time.
Gaps: the coordinator's epoch is always 0.
"""

from functools import partial

from kclient_quota.broker.authorizer import AclOperation, ResourceType
from kclient_quota.broker.groups.consumer.topic_pattern import topic_pattern
from kclient_quota.broker.handlers.groups.classic_groups import is_coordinator
from kclient_quota.broker.handlers.records.offsets_in_log import find_partition
from kclient_quota.broker.handlers.records.transactions import transactions
from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.registry import handler
from kclient_quota.broker.transactions.kept_transactions import by_topic
from kclient_quota.broker.transactions.transaction_coordinator import Transaction, TransactionState
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

_NONE_OPEN = -1


@handler(DescribeProducersRequest, min_version=0, max_version=0)
async def describe_producers(context: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Who writes to partitions, and since where a transaction is open."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=await context.in_turns(topic.partition_indexes, partial(_producers, context, topic.name)),
            )
            for topic in request.topics
        ]
    )


def _producers(context: Context, topic: str, index: int) -> DescribeProducersResponse.PartitionResponse:
    partition, error = find_partition(context, topic, index)
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        # followers know as well as the leader who writes
        held = context.cluster.topics[topic].partitions[index]
        partition = held if context.broker.id in held.replicas else None
    if partition is None:
        return DescribeProducersResponse.PartitionResponse(partition_index=index, error_code=error)
    log = partition.log
    return DescribeProducersResponse.PartitionResponse(
        partition_index=index,
        error_code=0,
        active_producers=[
            DescribeProducersResponse.ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.batches[-1].last_sequence if entry.batches else -1,
                last_timestamp=entry.batches[-1].timestamp_ms if entry.batches else entry.seen_ms,
                coordinator_epoch=0,
                current_txn_start_offset=log.transactions.ongoing.get(producer_id, _NONE_OPEN),
            )
            for producer_id, entry in log.producers.entries.items()
        ],
    )


@handler(DescribeTransactionsRequest, min_version=0, max_version=0)
async def describe_transactions(context: Context, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    """Show state, producer and partitions of transactional ids."""
    response = DescribeTransactionsResponse()
    response.transaction_states = await context.in_turns(request.transactional_ids, partial(_described, context))
    return response


def _described(context: Context, transactional_id: str) -> DescribeTransactionsResponse.TransactionState:
    transaction = transactions(context).coordinator.transactions.get(transactional_id)
    if not is_coordinator(context, transactional_id):
        error = ErrorCode.NOT_COORDINATOR
    else:
        error = ErrorCode.NONE if transaction else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    if error or transaction is None:
        return DescribeTransactionsResponse.TransactionState(error_code=error, transactional_id=transactional_id)
    state = DescribeTransactionsResponse.TransactionState(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state=transaction.state,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
    )
    for name, indexes in by_topic(transaction.partitions):
        state.topics.append(DescribeTransactionsResponse.TopicData(topic=name, partitions=indexes))
    return state


@handler(ListTransactionsRequest, min_version=0, max_version=2)
async def list_transactions(context: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """List the transactional ids this broker coordinates."""
    try:
        named = topic_pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except ValueError:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    response = ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[name for name in request.state_filters if name not in set(TransactionState)],
    )
    response.transaction_states = [
        ListTransactionsResponse.TransactionState(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state,
        )
        for transaction in transactions(context).coordinator.transactions.values()
        if _is_listed(context, request, transaction) and (named is None or named.matches(transaction.transactional_id))
    ]
    return response


def _is_listed(context: Context, request: ListTransactionsRequest, transaction: Transaction) -> bool:
    age_ms = context.now_ms - transaction.started_ms if transaction.started_ms >= 0 else -1
    return (
        is_coordinator(context, transaction.transactional_id)
        and context.may(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
        and (not request.state_filters or transaction.state in request.state_filters)
        and (not request.producer_id_filters or transaction.producer_id in request.producer_id_filters)
        and (request.duration_filter < 0 or age_ms > request.duration_filter)
    )
