"""Writing batches, idempotently if the producer wants it.

Produce (0) v3-13 · InitProducerId (22) v0-5. KIP-98, KIP-360, KIP-467, KIP-516, KIP-890, KIP-951.

Behaviour: acks 0, 1 and all differ only in whether there is an answer: replicas share one log. acks=all needs
`min.insync.replicas` of a partition's replicas up, or all where it has fewer. A batch is checked (CRC, size, sequence)
before it is stored; repeated batches of idempotent producers are answered with the offset they have. What belongs to a
transaction is only taken once its partition has been added to it (KIP-890, else TRANSACTION_ABORTABLE); since version
12 the batch itself adds it.
Versions: Produce 3 record batches of magic 2, transactional id; 4 KAFKA_STORAGE_ERROR; 5 log start offset; 6 answered
before it is throttled (KIP-219); 7 zstd; 8 error messages (KIP-467); 9 flexible; 10 current leader (KIP-951); 11
TRANSACTION_ABORTABLE; 12 transactions' second protocol; 13 topic ids (KIP-516). InitProducerId 1 KIP-219; 2 flexible; 3
the producer's own id and epoch (KIP-360); 4 PRODUCER_FENCED (KIP-588); 5 TRANSACTION_ABORTABLE.
Records are checked as Kafka's `LogValidator` does it (count, lengths, fields; timestamps against
`message.timestamp.before.max.ms` and `.after.max.ms`; keys where `cleanup.policy` is `compact`), and the largest
timestamp is put right. So that no batch stalls others, the first 100 records are read whole and 30,000 by length and
timestamp, and compressed ones that inflate to 1 MiB at most. What Kafka answers with UNKNOWN_SERVER_ERROR (a number
without end, an unknown codec) is INVALID_RECORD here. A clock that is moved by hand from 0 on sets no upper limit of
timestamps unless it is configured.
Topics whose `cleanup.policy` is `compact` are compacted as Kafka's `LogCleaner` does it: every `log.cleaner.backoff.ms`
those that `min.cleanable.dirty.ratio` or `max.compaction.lag.ms` make due, up to the segment that is written to
(`segment.ms`, `segment.bytes`), the first open transaction and `min.compaction.lag.ms`; tombstones stay for
`delete.retention.ms`.
Internal topics (`__consumer_offsets`, `__transaction_state`, `__share_group_state`) take nothing but from
administrators' tools.
Gaps: no conversion of compression. Compaction leaves batches alone that inflate to more than 1 MiB, and transaction
markers; on a disk it leaves the files of a log alone in which a batch is damaged.
"""

from collections.abc import Callable
from functools import partial

from kclient_quota.broker.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kclient_quota.broker.cluster_state import BROKER, TOPIC, Partition, Topic
from kclient_quota.broker.handlers.records.transactions import initialize, transactions
from kclient_quota.broker.internal_topics import INTERNAL_TOPICS
from kclient_quota.broker.log.log_config import Appended
from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.registry import handler
from kclient_quota.errors import WireError
from kclient_quota.wire.batches import Buffer, parse_header
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)

_ALL = -1
_ADMIN_CLIENT = "__admin_client"
_INTERNAL = ErrorCode.INVALID_TOPIC_EXCEPTION
_LEADERS_SINCE = 10
_VALID_ACKS = (-1, 0, 1)
_TOPIC_IDS_SINCE = 13
_ABORTABLE_IS_KNOWN_SINCE, _ADDS_PARTITIONS_SINCE = 11, 12

TopicResponse = ProduceResponse.TopicProduceResponse
PartitionResponse = ProduceResponse.PartitionProduceResponse


@handler(InitProducerIdRequest, min_version=0, max_version=5)
async def init_producer_id(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Hand out a producer id; an idempotent producer that has one is given the next epoch (KIP-360)."""
    if request.transactional_id is not None:
        if not context.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_epoch=-1)
        answer = await initialize(context, request)
        return InitProducerIdResponse(
            error_code=answer.error, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
        )
    may = context.may(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
    if not may and not context.may_somewhere(AclOperation.WRITE, ResourceType.TOPIC):
        return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=context.cluster.next_producer_id(), producer_epoch=0)


@handler(ProduceRequest, min_version=3, max_version=13)
async def produce(context: Context, request: ProduceRequest) -> ProduceResponse | None:
    """Append to every partition that is led here."""
    if request.transactional_id is not None and context.api_version >= _ADDS_PARTITIONS_SINCE:
        _add_all(context, request, request.transactional_id)
    responses = [
        TopicResponse(
            name=data.name,
            topic_id=data.topic_id,
            partition_responses=await context.in_turns(
                # a topic may be gone once others have had their turn
                data.partition_data,
                partial(_append, context, request, context.asked_anew(partial(_topic, context, data))),
            ),
        )
        for data in request.topic_data
    ]
    if request.acks == 0:
        # who asked for no answer learns that something is wrong by this, and asks who leads
        failed = any(part.error_code for data in responses for part in data.partition_responses)
        context.connection.close_after_response |= failed
        return None
    response = ProduceResponse(responses=responses)
    return await _leaders(context, response) if context.api_version >= _LEADERS_SINCE else response


def _add_all(context: Context, request: ProduceRequest, transactional_id: str) -> None:
    """Take all partitions into the transaction at once, as it is kept whole; each asks for itself again."""
    wanted: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for data in request.topic_data:
        topic = _topic(context, data)
        for part in data.partition_data:
            partition = topic.partitions[part.index] if topic and 0 <= part.index < len(topic.partitions) else None
            if topic is None or part.records is None or _refusal(context, request, topic, partition):
                continue
            try:
                header = parse_header(part.records)
            except WireError:
                continue  # the log says what is wrong with it
            wanted.setdefault((header.producer_id, header.producer_epoch), []).append((topic.name, part.index))
    for producer, partitions in wanted.items():
        transactions(context).add(transactional_id, *producer, context.now_ms, partitions=partitions, bumps=True)


async def _leaders(context: Context, response: ProduceResponse) -> ProduceResponse:
    """Name the leaders of partitions that are not led here any more, and where they are (KIP-951)."""
    leaders = {}
    for data in response.responses:
        cluster = context.cluster
        topic = cluster.topics.get(data.name) or cluster.topics_by_id.get(data.topic_id)
        await context.turn_after(len(data.partition_responses))
        for part in data.partition_responses:
            if topic is not None and part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                partition = topic.partitions[part.index]
                part.current_leader = ProduceResponse.LeaderIdAndEpoch(
                    leader_id=partition.leader, leader_epoch=partition.leader_epoch
                )
                leaders[partition.leader] = cluster.brokers.get(partition.leader)
    response.node_endpoints = [
        ProduceResponse.NodeEndpoint(
            node_id=broker_id, host=broker.host, port=broker.ports.get(context.connection.listener, -1)
        )
        for broker_id, broker in leaders.items()
        if broker is not None
    ]
    return response


def _append(
    context: Context,
    request: ProduceRequest,
    find: Callable[[], Topic | None],
    part: ProduceRequest.PartitionProduceData,
) -> PartitionResponse:
    topic = find()
    partition = topic.partitions[part.index] if topic and 0 <= part.index < len(topic.partitions) else None
    error = _refusal(context, request, topic, partition)
    if error or topic is None or partition is None:
        message = f"Cannot append to internal topic {topic.name}" if error is _INTERNAL and topic else None
        return _refused(Appended(error, error_message=message), part.index)
    if part.records is None:
        return _refused(Appended(ErrorCode.INVALID_RECORD, error_message="there are no records"), part.index)
    if request.transactional_id is not None:
        error = _transaction_refusal(context, request.transactional_id, (topic.name, part.index), part.records)
        if error:
            return _refused(Appended(error), part.index)
    log = partition.log
    appended = log.append(part.records, leader_epoch=partition.leader_epoch, now_ms=context.scheduler.date_ms())
    if appended.error:
        return _refused(appended, part.index)
    return PartitionResponse(
        index=part.index,
        error_code=0,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=log.start_offset,
    )


def _topic(context: Context, data: ProduceRequest.TopicProduceData) -> Topic | None:
    if context.api_version >= _TOPIC_IDS_SINCE:
        return context.cluster.topics_by_id.get(data.topic_id)
    return context.cluster.topics.get(data.name)


def _refusal(context: Context, request: ProduceRequest, topic: Topic | None, partition: Partition | None) -> ErrorCode:
    if request.acks not in _VALID_ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if topic is None or partition is None:
        by_id = context.api_version >= _TOPIC_IDS_SINCE and topic is None
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic.name in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT:
        return _INTERNAL
    if partition.leader != context.broker.id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if request.acks == _ALL and _in_sync(context, partition) < _min_in_sync(context, topic, partition):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return ErrorCode.NONE


def _transaction_refusal(
    context: Context, transactional_id: str, partition: tuple[str, int], records: Buffer
) -> ErrorCode:
    try:
        header = parse_header(records)
    except WireError:
        return ErrorCode.NONE  # the log says what is wrong with it
    service = transactions(context)
    coordinator, producer = service.coordinator, (header.producer_id, header.producer_epoch)
    if context.api_version >= _ADDS_PARTITIONS_SINCE:
        error = service.add(transactional_id, *producer, context.now_ms, partitions=[partition], bumps=True)
        if error:
            return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error
    else:
        error = coordinator.check(transactional_id, *producer)
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error or not coordinator.has_partition(transactional_id, partition):
        known = context.api_version >= _ABORTABLE_IS_KNOWN_SINCE
        return ErrorCode.TRANSACTION_ABORTABLE if known else ErrorCode.INVALID_TXN_STATE
    return ErrorCode.NONE


def _in_sync(context: Context, partition: Partition) -> int:
    brokers = context.cluster.brokers
    return sum(brokers[replica].is_up for replica in partition.replicas)


def _min_in_sync(context: Context, topic: Topic, partition: Partition) -> int:
    key, cluster = "min.insync.replicas", context.cluster
    needed = int(cluster.config(TOPIC, topic.name, key) or cluster.config(BROKER, "", key) or 1)
    return min(needed, len(partition.replicas))


def _refused(appended: Appended, index: int) -> PartitionResponse:
    return PartitionResponse(
        index=index,
        error_code=appended.error,
        base_offset=-1,
        error_message=appended.error_message,
        record_errors=[
            ProduceResponse.BatchIndexAndErrorMessage(batch_index=record, batch_index_error_message=reason)
            for record, reason in appended.record_errors
        ],
    )
