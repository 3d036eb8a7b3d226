"""Transactions.

AddPartitionsToTxn (24) v0-5 · AddOffsetsToTxn (25) v0-4 · EndTxn (26) v0-5 · TxnOffsetCommit (28) v0-5.
InitProducerId (22) stands in `produce`. KIP-98, KIP-360 (epoch bump by the producer itself), KIP-447 (fencing by the
group's generation), KIP-588 (time-outs), KIP-890 (verification; epochs that end with the transaction).

Behaviour: both protocols; a client says which by the version it asks with. In the second (KIP-890,
`transaction.version` 2) Produce v12 and TxnOffsetCommit v5 add what they write to the transaction, and EndTxn v5 gives
the next epoch, so that nothing late can get into a later transaction; aborting an empty transaction is no error. Ending
a transaction writes all markers before the answer, so CONCURRENT_TRANSACTIONS never has to be waited out. A transaction
older than its time-out is aborted at once (Kafka: within ten seconds).
Versions: AddPartitionsToTxn and AddOffsetsToTxn 1 KIP-219; 2 PRODUCER_FENCED; 3 flexible. EndTxn the same; 4
TRANSACTION_ABORTABLE (KIP-890), as AddOffsetsToTxn 4; 5 the next epoch. AddPartitionsToTxn 4 several transactions and
verification, for brokers; 5 TRANSACTION_ABORTABLE. TxnOffsetCommit 1 KIP-219; 2 leader epochs; 3 flexible, the group's
generation (KIP-447); 4 TRANSACTION_ABORTABLE; 5 needs no AddOffsetsToTxn.
What happens to transactions can be read in `__transaction_state`, which is made when the first coordinator of one is
looked for. With a data directory a restart keeps transactional ids, epochs and open transactions: their producers go
on, and what was being ended is ended.
A transactional id of which nothing was heard for `transactional.id.expiration.ms` is forgotten, as Kafka does it.
The end of a transaction over very many partitions is written fifty at a time, others having their turns; who asks
for it again meanwhile is told CONCURRENT_TRANSACTIONS, as in Kafka.
Gaps: no two-phase commit (KIP-939: InitProducerId v6, not in 4.3.1 either).
"""

from collections.abc import Mapping
from functools import partial

from kclient_quota.broker.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kclient_quota.broker.groups.committed_offsets import MAX_METADATA_LENGTH, CommittedOffset
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.handlers.groups.classic_groups import is_coordinator
from kclient_quota.broker.handlers.groups.group_offsets import unknown_partition
from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.registry import handler
from kclient_quota.broker.transactions.transaction_coordinator import Ending, Initialized
from kclient_quota.broker.transactions.transaction_service import TransactionService
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

FENCED_IS_KNOWN_SINCE = {22: 4, 24: 2, 25: 2, 26: 2}
"""Since which version of an API clients understand PRODUCER_FENCED; older ones get INVALID_PRODUCER_EPOCH."""
_BATCHED_SINCE, _ABORTABLE_IN_BATCHES_SINCE = 4, 5
_BUMPS_SINCE = 5
"""EndTxn and TxnOffsetCommit: the first version of the second protocol."""
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


async def initialize(context: Context, request: InitProducerIdRequest) -> Initialized:
    """InitProducerId with a transactional id; what a former producer left open is aborted first."""
    transactional_id = request.transactional_id or ""
    if not is_coordinator(context, transactional_id):
        return Initialized(ErrorCode.NOT_COORDINATOR)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return Initialized(ErrorCode.INVALID_REQUEST)
    service = transactions(context)
    ending = service.coordinator.fence(transactional_id)
    if ending is not None:
        await service.finish(ending)
    expected = (request.producer_id, request.producer_epoch) if request.producer_id >= 0 else None
    answer = service.coordinator.initialize(transactional_id, request.transaction_timeout_ms, expected)
    service.keep()
    return Initialized(_code(context, answer.error), answer.producer_id, answer.producer_epoch)


@handler(AddPartitionsToTxnRequest, min_version=0, max_version=5)
async def add_partitions_to_txn(context: Context, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Take partitions into the transaction: all of them, or none if one does not exist."""
    if context.api_version >= _BATCHED_SINCE:
        if not context.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                    transactional_id=wanted.transactional_id, topic_results=await _added(context, wanted)
                )
                for wanted in request.transactions
            ]
        )
    one = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _added(context, one))


async def _added(
    context: Context, asked: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]:
    wanted = [(topic.name, index) for topic in asked.topics for index in topic.partitions]
    refusals = await context.in_turns(wanted, lambda tp: _partition_refusal(context, *tp))
    errors = dict(zip(wanted, refusals, strict=True))
    if any(errors.values()):
        errors = {tp: error or ErrorCode.OPERATION_NOT_ATTEMPTED for tp, error in errors.items()}
    elif asked.verify_only:
        errors = _verified(context, asked, wanted)
    else:
        error = _add_partitions(context, asked, wanted)
        errors = dict.fromkeys(wanted, error)
    results = []
    for topic in asked.topics:
        result = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(name=topic.name)
        result.results_by_partition = await context.in_turns(topic.partitions, partial(_told, errors, topic.name))
        results.append(result)
    return results


def _told(
    errors: Mapping[tuple[str, int], int], topic: str, index: int
) -> AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
        partition_index=index, partition_error_code=errors[topic, index]
    )


def _verified(
    context: Context,
    asked: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction,
    wanted: list[tuple[str, int]],
) -> dict[tuple[str, int], int]:
    """Whether partitions are in the transaction already."""
    coordinator = transactions(context).coordinator
    error = coordinator.check(asked.transactional_id, asked.producer_id, asked.producer_epoch)
    if error:
        return dict.fromkeys(wanted, _code(context, error))
    known = context.api_version >= _ABORTABLE_IN_BATCHES_SINCE
    missing = ErrorCode.TRANSACTION_ABORTABLE if known else ErrorCode.INVALID_TXN_STATE
    return {tp: 0 if coordinator.has_partition(asked.transactional_id, tp) else missing for tp in wanted}


def _partition_refusal(context: Context, topic: str, index: int) -> int:
    if not context.may(AclOperation.WRITE, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return unknown_partition(context, topic, index)


def _add_partitions(
    context: Context,
    asked: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction,
    wanted: list[tuple[str, int]],
) -> ErrorCode:
    if not is_coordinator(context, asked.transactional_id):
        return ErrorCode.NOT_COORDINATOR
    error = transactions(context).add(
        asked.transactional_id,
        asked.producer_id,
        asked.producer_epoch,
        context.now_ms,
        partitions=wanted,
    )
    return _code(context, error)


@handler(AddOffsetsToTxnRequest, min_version=0, max_version=4)
async def add_offsets_to_txn(context: Context, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Take the offsets of a group into the transaction."""
    if not is_coordinator(context, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)
    error = transactions(context).add(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        context.now_ms,
        groups=[request.group_id],
    )
    return AddOffsetsToTxnResponse(error_code=_code(context, error))


@handler(TxnOffsetCommitRequest, min_version=0, max_version=5)
async def txn_offset_commit(context: Context, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Commit positions that count once the transaction commits."""
    # a transaction may be over, or a group gone on, once others have had their turn
    refusal = context.asked_anew(partial(_commit_refusal, context, request))
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        result = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic.name)
        await context.turn_after(len(topic.partitions))
        result.partitions = [
            TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                partition_index=part.partition_index,
                error_code=refusal() or _commit_pending(context, request, topic.name, part),
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
        of_transactions = transactions(context)
        coordinator = of_transactions.coordinator
        producer = request.producer_id, request.producer_epoch
        if context.api_version >= _BUMPS_SINCE:
            error = of_transactions.add(
                request.transactional_id, *producer, context.now_ms, groups=[request.group_id], bumps=True
            )
        else:
            error = coordinator.check(request.transactional_id, *producer)
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


@handler(EndTxnRequest, min_version=0, max_version=5)
async def end_txn(context: Context, request: EndTxnRequest) -> EndTxnResponse:
    """Commit or abort."""
    if not is_coordinator(context, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)
    service = transactions(context)
    answer = service.coordinator.end(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        is_commit=request.committed,
        bumps=context.api_version >= _BUMPS_SINCE,
    )
    if isinstance(answer, Ending):
        await service.finish(answer)
    elif answer:
        return EndTxnResponse(error_code=_code(context, answer))
    transaction = service.coordinator.transactions[request.transactional_id]
    return EndTxnResponse(
        error_code=ErrorCode.NONE, producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch
    )
