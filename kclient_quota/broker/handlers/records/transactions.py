"""Transactions.

AddPartitionsToTxn (24) v0-3 · AddOffsetsToTxn (25) v0-4 · EndTxn (26) v0-4 · TxnOffsetCommit (28) v0-4 ·
DescribeTransactions (65) v0 · ListTransactions (66) v0-1. InitProducerId (22) stands in `produce`.
KIP-98, KIP-360 (epoch bump by the producer itself), KIP-447 (fencing by the group's generation), KIP-588 (time-outs).

Behaviour: transaction protocol version 1, which clients use unless `transaction.version` 2 is finalized. Ending a
transaction writes all markers before the answer, so CONCURRENT_TRANSACTIONS never has to be waited out. A transaction
older than its time-out is aborted at once (Kafka: within ten seconds).
Versions: AddPartitionsToTxn and AddOffsetsToTxn 1 KIP-219; 2 PRODUCER_FENCED; 3 flexible. EndTxn the same; 4
TRANSACTION_ABORTABLE (KIP-890), as AddOffsetsToTxn 4. TxnOffsetCommit 1 KIP-219; 2 leader epochs; 3 flexible, the
group's generation (KIP-447); 4 TRANSACTION_ABORTABLE. ListTransactions 1 by duration (KIP-994).
Gaps: no protocol version 2 (KIP-890 part 2: AddPartitionsToTxn v4+, EndTxn v5, TxnOffsetCommit v5);
transactional ids are not kept across restarts: what was open is aborted, the producer has to initialize again.
"""

from kclient_quota.broker.authorizer import AclOperation, ResourceType
from kclient_quota.broker.groups.committed_offsets import MAX_METADATA_LENGTH, CommittedOffset
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.handlers.groups.classic_groups import is_coordinator
from kclient_quota.broker.handlers.groups.group_offsets import unknown_partition
from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.registry import handler
from kclient_quota.broker.transactions.transaction_coordinator import Ending, Initialized, Transaction
from kclient_quota.broker.transactions.transaction_service import TransactionService
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

FENCED_IS_KNOWN_SINCE = {22: 4, 24: 2, 25: 2, 26: 2}
"""Since which version of an API clients understand PRODUCER_FENCED; older ones get INVALID_PRODUCER_EPOCH."""
ABORTABLE_IS_KNOWN_SINCE = 4
"""Since which version of TxnOffsetCommit clients understand TRANSACTION_ABORTABLE."""


def transactions(context: Context) -> TransactionService:
    """The cluster's transactions, settling offsets where groups keep them."""
    service = context.services.get(TransactionService)
    service.offsets = context.services.get(GroupService).offsets
    return service


def _code(context: Context, error: ErrorCode) -> ErrorCode:
    old = context.api_version < FENCED_IS_KNOWN_SINCE.get(context.api_key, 0)
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED and old else error


def initialize(context: Context, request: InitProducerIdRequest) -> Initialized:
    """InitProducerId with a transactional id; what a former producer left open is aborted first."""
    transactional_id = request.transactional_id or ""
    if not is_coordinator(context, transactional_id):
        return Initialized(ErrorCode.NOT_COORDINATOR)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return Initialized(ErrorCode.INVALID_REQUEST)
    service = transactions(context)
    ending = service.coordinator.fence(transactional_id)
    if ending is not None:
        service.finish(ending)
    expected = (request.producer_id, request.producer_epoch) if request.producer_id >= 0 else None
    answer = service.coordinator.initialize(transactional_id, request.transaction_timeout_ms, expected)
    service.after_call()
    return Initialized(_code(context, answer.error), answer.producer_id, answer.producer_epoch)


@handler(AddPartitionsToTxnRequest, min_version=0, max_version=3)
async def add_partitions_to_txn(context: Context, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Take partitions into the transaction: all of them, or none if one does not exist."""
    topics = request.v3_and_below_topics
    wanted = [(topic.name, index) for topic in topics for index in topic.partitions]
    errors = {tp: _partition_refusal(context, *tp) for tp in wanted}
    if any(errors.values()):
        errors = {tp: error or ErrorCode.OPERATION_NOT_ATTEMPTED for tp, error in errors.items()}
    else:
        error = _add_partitions(context, request, wanted)
        errors = dict.fromkeys(wanted, error)
    response = AddPartitionsToTxnResponse()
    for topic in topics:
        result = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(name=topic.name)
        result.results_by_partition = [
            AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                partition_index=index, partition_error_code=errors[topic.name, index]
            )
            for index in topic.partitions
        ]
        response.results_by_topic_v3_and_below.append(result)
    return response


def _partition_refusal(context: Context, topic: str, index: int) -> int:
    if not context.may(AclOperation.WRITE, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return unknown_partition(context, topic, index)


def _add_partitions(context: Context, request: AddPartitionsToTxnRequest, wanted: list[tuple[str, int]]) -> ErrorCode:
    if not is_coordinator(context, request.v3_and_below_transactional_id):
        return ErrorCode.NOT_COORDINATOR
    service = transactions(context)
    error = service.coordinator.add(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        context.now_ms,
        partitions=wanted,
    )
    service.after_call()
    return _code(context, error)


@handler(AddOffsetsToTxnRequest, min_version=0, max_version=4)
async def add_offsets_to_txn(context: Context, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Take the offsets of a group into the transaction."""
    if not is_coordinator(context, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)
    service = transactions(context)
    error = service.coordinator.add(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        context.now_ms,
        groups=[request.group_id],
    )
    service.after_call()
    return AddOffsetsToTxnResponse(error_code=_code(context, error))


@handler(TxnOffsetCommitRequest, min_version=0, max_version=4)
async def txn_offset_commit(context: Context, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Commit positions that count once the transaction commits."""
    error = _commit_refusal(context, request)
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        result = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic.name)
        result.partitions = [
            TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                partition_index=part.partition_index,
                error_code=error or _commit_pending(context, request, topic.name, part),
            )
            for part in topic.partitions
        ]
        response.topics.append(result)
    return response


def _commit_refusal(context: Context, request: TxnOffsetCommitRequest) -> ErrorCode:
    if not is_coordinator(context, request.group_id):
        return ErrorCode.NOT_COORDINATOR
    service = context.services.get(GroupService)
    error = service.validate_offset_commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        context.now_ms,
        transactional=True,
    )
    if error is ErrorCode.NONE:
        coordinator = transactions(context).coordinator
        error = coordinator.check(request.transactional_id, request.producer_id, request.producer_epoch)
        if error is ErrorCode.PRODUCER_FENCED:
            # Kafka finds out when it appends to the group's own log, which knows only this error.
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        elif error is ErrorCode.NONE and not coordinator.has_group(request.transactional_id, request.group_id):
            known = context.api_version >= ABORTABLE_IS_KNOWN_SINCE
            error = ErrorCode.TRANSACTION_ABORTABLE if known else ErrorCode.INVALID_TXN_STATE
    return error


def _commit_pending(
    context: Context,
    request: TxnOffsetCommitRequest,
    topic: str,
    part: TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition,
) -> int:
    error = unknown_partition(context, topic, part.partition_index)
    if error:
        return error
    if len(part.committed_metadata or "") > MAX_METADATA_LENGTH:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    committed = CommittedOffset(part.committed_offset, part.committed_leader_epoch, part.committed_metadata or "")
    context.services.get(GroupService).commit_pending(
        request.producer_id, request.group_id, topic, part.partition_index, committed
    )
    return ErrorCode.NONE


@handler(EndTxnRequest, min_version=0, max_version=4)
async def end_txn(context: Context, request: EndTxnRequest) -> EndTxnResponse:
    """Commit or abort."""
    if not is_coordinator(context, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)
    service = transactions(context)
    answer = service.coordinator.end(
        request.transactional_id, request.producer_id, request.producer_epoch, is_commit=request.committed
    )
    if not isinstance(answer, Ending):
        return EndTxnResponse(error_code=_code(context, answer))
    service.finish(answer)
    service.after_call()
    return EndTxnResponse(error_code=ErrorCode.NONE)


# -- looking on


@handler(DescribeTransactionsRequest, min_version=0, max_version=0)
async def describe_transactions(context: Context, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    """Show state, producer and partitions of transactional ids."""
    response = DescribeTransactionsResponse()
    response.transaction_states = [_described(context, name) for name in request.transactional_ids]
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
    for name in sorted({topic for topic, _ in transaction.partitions}):
        indexes = sorted(index for topic, index in transaction.partitions if topic == name)
        state.topics.append(DescribeTransactionsResponse.TopicData(topic=name, partitions=indexes))
    return state


@handler(ListTransactionsRequest, min_version=0, max_version=1)
async def list_transactions(context: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """List the transactional ids this broker coordinates."""
    response = ListTransactionsResponse(error_code=ErrorCode.NONE)
    response.transaction_states = [
        ListTransactionsResponse.TransactionState(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state,
        )
        for transaction in transactions(context).coordinator.transactions.values()
        if _is_listed(context, request, transaction)
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
