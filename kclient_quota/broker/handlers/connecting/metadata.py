"""Brokers, topics, partitions and who leads them.

Metadata (3) v0-13 · DescribeCluster (60) v0-2 · DescribeTopicPartitions (75) v0. KIP-4, KIP-516, KIP-700, KIP-966.

Behaviour: topics asked for by name are created when the request and the broker allow it (`auto.create.topics.enable`),
with `num.partitions`; as in Kafka the answer still says UNKNOWN_TOPIC_OR_PARTITION, and the next has them. Topic ids
(KIP-516) are answered and accepted. What is told of a topic is encoded once and kept until it changes; long answers are
made some hundred partitions at a time, so that nobody else waits for them.
Versions: Metadata 1 controller, racks, null for all topics; 2 cluster id; 3 throttle time; 4 whether to create topics;
5 offline replicas; 6 KIP-219; 7 leader epochs; 8 authorised operations (KIP-430); 9 flexible; 10 topic ids in answers;
11 no operations on the cluster (KIP-700); 12 topic ids in requests; 13 an error of the whole (KIP-1102).
DescribeCluster 1 kind of endpoint (KIP-919); 2 fenced brokers (KIP-1073).
Gaps: no racks.
"""

from collections.abc import Iterator
from functools import partial
from heapq import merge
from itertools import groupby
from typing import Any
from uuid import UUID

from kclient_quota.broker.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kclient_quota.broker.cluster_state import NO_LEADER, ClusterState, Partition, Topic
from kclient_quota.broker.configs.topic_names import is_valid_topic_name
from kclient_quota.broker.internal_topics import INTERNAL_TOPICS, internal_topic
from kclient_quota.broker.request.authorization import operations
from kclient_quota.broker.request.context import AT_ONCE, Context
from kclient_quota.broker.request.registry import handler
from kclient_quota.wire.codec import encode_element
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kclient_quota.wire.schema import ZERO_UUID

Described = Any
"""A topic's row: a struct, or what it is encoded."""

_BROKERS = 1
_AT_ONCE, _COST_OF_A_TOPIC = 1_000, 2
"""How many partitions are encoded before others get their turn; a topic of none costs as much as two."""
_MOST_PARTITIONS = 2_000
"""Of one page of DescribeTopicPartitions (`max.request.partition.size.limit`)."""
_NAMELESS_SINCE = 12
_NOT_ASKED = -1 << 31
_DESCRIBE_CLUSTER = (AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
_UNSUPPORTED_ENDPOINT_TYPE = 115


@handler(MetadataRequest, min_version=0, max_version=13)
async def metadata(context: Context, request: MetadataRequest) -> MetadataResponse:
    """Describe the cluster as seen through the listener the client came in by."""
    cluster = context.cluster
    response = MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=broker_id, host=host, port=port)
            for broker_id, host, port in _endpoints(context)
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=await _topics(context, request),
    )
    if request.include_cluster_authorized_operations and context.may(*_DESCRIBE_CLUSTER):
        response.cluster_authorized_operations = operations(context, ResourceType.CLUSTER, CLUSTER_NAME)
    return response


@handler(DescribeClusterRequest, min_version=0, max_version=2)
async def describe_cluster(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describe the brokers; controllers are not to be had here."""
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=_UNSUPPORTED_ENDPOINT_TYPE,
            error_message="Only broker endpoints are described here; ask for endpoint type 1.",
            endpoint_type=request.endpoint_type,
        )
    has_operations = request.include_cluster_authorized_operations and context.may(*_DESCRIBE_CLUSTER)
    may = operations(context, ResourceType.CLUSTER, CLUSTER_NAME) if has_operations else _NOT_ASKED
    return DescribeClusterResponse(
        cluster_authorized_operations=may,
        cluster_id=context.cluster.cluster_id,
        controller_id=context.cluster.controller_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(broker_id=broker_id, host=host, port=port)
            for broker_id, host, port in _endpoints(context)
        ],
    )


@handler(DescribeTopicPartitionsRequest, min_version=0, max_version=0)
async def describe_topic_partitions(
    context: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Topics by name, a page of so many partitions at a time; the cursor says where the next page begins."""
    cursor = request.cursor
    left = min(max(request.response_partition_limit, 1), _MOST_PARTITIONS)
    found: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic] = []
    for name in await _names(context, request):
        if not request.topics and name not in context.cluster.topics:
            continue  # others have had their turn
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if left <= 0:
            following = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=first)
            return DescribeTopicPartitionsResponse(topics=found, next_cursor=following)
        page, rest = _page(context.cluster, name, first, left)
        found.append(page)
        left -= len(page.partitions)
        if rest is not None:
            following = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=rest)
            return DescribeTopicPartitionsResponse(topics=found, next_cursor=following)
        await context.turn_after(max(1, len(page.partitions)))
    return DescribeTopicPartitionsResponse(topics=found, next_cursor=None)


async def _names(context: Context, request: DescribeTopicPartitionsRequest) -> Iterator[str]:
    """What is asked for from the cursor on, each once, in order; sorted in parts, as it may be very many."""
    begin = "" if request.cursor is None else request.cursor.topic_name
    asked = [wanted.name for wanted in request.topics] or list(context.cluster.topics)
    parts = []
    for start in range(0, len(asked), AT_ONCE):
        part = asked[start : start + AT_ONCE]
        await context.turn_after(len(part))
        names = (name for name in part if name >= begin)
        parts.append(sorted(name for name in names if request.topics or _may_see(context, name)))
    return (name for name, _ in groupby(merge(*parts)))


def _page(
    cluster: ClusterState, name: str, first: int, most: int
) -> tuple[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic, int | None]:
    """At most so many partitions of a topic, and where the rest begins if there is one."""
    topic = cluster.topics.get(name)
    if topic is None:
        is_valid = is_valid_topic_name(name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION
        missing = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(error_code=error, name=name)
        return missing, None
    described = [_describe_partition(cluster, partition) for partition in topic.partitions[first : first + most]]
    page = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[
            DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition(
                error_code=row.error_code,
                partition_index=row.partition_index,
                leader_id=row.leader_id,
                leader_epoch=row.leader_epoch,
                replica_nodes=row.replica_nodes,
                isr_nodes=row.isr_nodes,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=row.offline_replicas,
            )
            for row in described
        ],
    )
    end = first + most
    return page, end if end < len(topic.partitions) else None


def _endpoints(context: Context) -> list[tuple[int, str, int]]:
    listener = context.connection.listener
    return [
        (broker.id, broker.host, broker.ports[listener])
        for broker in context.cluster.brokers.values()
        if broker.is_up and listener in broker.ports
    ]


async def _topics(context: Context, request: MetadataRequest) -> list[Described]:
    cluster = context.cluster
    wants_all = request.topics is None or (context.api_version == 0 and not request.topics)
    if wants_all:
        return await _all(context, with_operations=request.include_topic_authorized_operations)
    may_create = request.allow_auto_topic_creation and cluster.is_auto_create_enabled

    def describe(wanted: MetadataRequest.MetadataRequestTopic) -> Described:
        if wanted.name is None:
            return _describe_by_id(context, wanted.topic_id)
        return _describe_by_name(context, wanted.name, may_create=may_create)

    found = await context.in_turns(request.topics or (), describe)
    for row in found:
        await _fill(context, row)
    if request.include_topic_authorized_operations:
        for topic in found:
            _with_operations(context, topic)
    return found


async def _all(context: Context, *, with_operations: bool) -> list[Described]:
    """Every topic that the client may see, encoded in turns with whatever else there is to do."""
    cluster, version = context.cluster, context.api_version
    found: list[Described] = []
    made = 0
    for topic in list(cluster.topics.values()):
        if not _may_see(context, topic.name) or topic.name not in cluster.topics:
            continue
        kept = cluster.told.setdefault(topic.name, {})
        if with_operations:
            row = await _encoded(context, topic)
            _with_operations(context, row)
            found.append(encode_element(row, version))
        else:
            if version not in kept:
                kept[version] = encode_element(await _encoded(context, topic), version)
                made += _COST_OF_A_TOPIC
            found.append(kept[version])
        made += _COST_OF_A_TOPIC if with_operations else 1
        if made >= _AT_ONCE:
            made = 0
            await context.others_turn()
    return found


async def _encoded(context: Context, topic: Topic) -> MetadataResponse.MetadataResponseTopic:
    """A topic with its partitions, encoded already."""
    cluster, version = context.cluster, context.api_version
    row = _describe(topic)
    rows: list[Any] = await context.in_turns(
        topic.partitions, lambda partition: encode_element(_describe_partition(cluster, partition), version)
    )
    row.partitions = rows
    return row


async def _fill(context: Context, row: Described) -> None:
    """Describe a topic's partitions, which may be many."""
    if not isinstance(row, MetadataResponse.MetadataResponseTopic) or row.error_code:
        return
    topic = context.cluster.topics_by_id.get(row.topic_id)
    if topic is None:
        row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return
    row.partitions = await context.in_turns(topic.partitions, partial(_describe_partition, context.cluster))


def _with_operations(context: Context, topic: Described) -> None:
    if isinstance(topic, MetadataResponse.MetadataResponseTopic) and not topic.error_code:
        topic.topic_authorized_operations = operations(context, ResourceType.TOPIC, topic.name or "")


def _describe_by_id(context: Context, topic_id: UUID) -> MetadataResponse.MetadataResponseTopic:
    topic = context.cluster.topics_by_id.get(topic_id)
    if topic is None or topic_id == ZERO_UUID:
        name = None if context.api_version >= _NAMELESS_SINCE else ""
        return MetadataResponse.MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=name, topic_id=topic_id
        )
    if not _may_see(context, topic.name):
        # ids are no secret, names are
        return MetadataResponse.MetadataResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id
        )
    return _describe(topic)


def _may_see(context: Context, name: str) -> bool:
    return context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name)


def _may_create(context: Context, name: str) -> bool:
    may_any = context.may(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    return may_any or context.may(AclOperation.CREATE, ResourceType.TOPIC, name)


def _describe_by_name(context: Context, name: str, *, may_create: bool) -> MetadataResponse.MetadataResponseTopic:
    cluster = context.cluster
    topic = cluster.topics.get(name)
    if not _may_see(context, name) or (topic is None and may_create and not _may_create(context, name)):
        return MetadataResponse.MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
    if topic is None and not is_valid_topic_name(name):
        return MetadataResponse.MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=name)
    if topic is None and may_create:
        context.mutations.record(cluster.default_partitions, context.now_ms)
        if name in INTERNAL_TOPICS:
            internal_topic(cluster, name)
        else:
            cluster.create_topic(name, cluster.default_partitions)
    if topic is None:
        return MetadataResponse.MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
    return _describe(topic)


def _describe(topic: Topic) -> MetadataResponse.MetadataResponseTopic:
    return MetadataResponse.MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
    )


def _describe_partition(cluster: ClusterState, partition: Partition) -> MetadataResponse.MetadataResponsePartition:
    up = [replica for replica in partition.replicas if cluster.brokers[replica].is_up]
    has_leader = partition.leader != NO_LEADER
    return MetadataResponse.MetadataResponsePartition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=up,
        offline_replicas=[replica for replica in partition.replicas if replica not in up],
    )
