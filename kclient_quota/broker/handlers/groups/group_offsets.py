"""Committed offsets.

OffsetCommit (8) v2-10 · OffsetFetch (9) v1-10 · OffsetDelete (47) v0.
KIP-447 (require_stable), KIP-496 (OffsetDelete), KIP-709 (several groups), KIP-848 (topic ids since v10).

Behaviour: a commit is checked against the group's members and generation; consumers without a group (generation -1)
commit to empty groups only. Offsets of topics that do not exist are refused as Kafka does. What is committed, and who
is in classic, consumer and share groups, can be read in `__consumer_offsets` (`groups.offsets_topic`,
`groups.telling`), which is made when the first coordinator is looked for. Of a large group it is told now and
then (500 kB a second), what it has become by then; hashes of its topics are not Kafka's numbers.
Versions: OffsetCommit 3 throttle time; 4 KIP-219; 5 no retention time; 6 leader epochs; 7 instance id; 8 flexible; 9
the errors of KIP-848; 10 topic ids. OffsetFetch 2 all topics, an error of the whole; 3 throttle time; 4 KIP-219; 5
leader epochs; 6 flexible; 7 require_stable; 8 several groups; 9 member id and epoch (KIP-848); 10 topic ids.
Gaps: members who were in consumer and share groups when a broker was stopped stay in `__consumer_offsets`, and so do
positions of which a broker that is killed had still to tell that they are gone; no expiry (`retention_time_ms` and
`offsets.retention.minutes` have no effect).
"""

from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from kclient_quota.broker.authorizer import AclOperation, ResourceType
from kclient_quota.broker.groups.committed_offsets import MAX_METADATA_LENGTH, NO_LEADER_EPOCH, CommittedOffset
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.handlers.groups.classic_groups import is_coordinator
from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.registry import handler
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kclient_quota.wire.schema import ZERO_UUID

TOPIC_IDS_SINCE = 10
MEMBER_EPOCH_SINCE = 9
SEVERAL_GROUPS_SINCE = 8
GROUP_ERROR_SINCE = 2
NO_OFFSET = -1

CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
CommitPartition = OffsetCommitRequest.OffsetCommitRequestPartition
CommittedPartition = OffsetCommitResponse.OffsetCommitResponsePartition
FetchedPartition = OffsetFetchResponse.OffsetFetchResponsePartitions
FetchedTopic = OffsetFetchResponse.OffsetFetchResponseTopics


@handler(OffsetCommitRequest, min_version=2, max_version=10)
async def offset_commit(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit positions."""
    # a group may go on without the member while others have their turn
    refusal = context.asked_anew(partial(_commit_refusal, context, request))
    response = OffsetCommitResponse()
    response.topics = [await _commit_topic(context, request.group_id, topic, refusal) for topic in request.topics]
    return response


def _commit_refusal(context: Context, request: OffsetCommitRequest) -> ErrorCode:
    if not is_coordinator(context, request.group_id):
        return ErrorCode.NOT_COORDINATOR
    service = context.services.get(GroupService)
    generation = request.generation_id_or_member_epoch
    group = service.consumer_group(request.group_id)
    member = None if group is None else group.members.get(request.member_id)
    if member is not None and member.classic is None and context.api_version < MEMBER_EPOCH_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    known = group is not None or request.group_id in service.coordinator.groups
    error = service.validate_offset_commit(
        request.group_id, request.member_id, request.group_instance_id, generation, context.now_ms
    )
    if not known and generation >= 0 and context.api_version >= MEMBER_EPOCH_SINCE:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return error


async def _commit_topic(
    context: Context, group_id: str, topic: CommitTopic, refusal: Callable[[], ErrorCode]
) -> OffsetCommitResponse.OffsetCommitResponseTopic:
    name = topic_name(context, topic.name, topic.topic_id)

    def commit(partition: CommitPartition) -> CommittedPartition:
        code: int = refusal()
        if code == ErrorCode.NONE:
            code = unknown_partition(context, name, partition.partition_index)
        if code == ErrorCode.NONE and len(partition.committed_metadata or "") > MAX_METADATA_LENGTH:
            code = ErrorCode.OFFSET_METADATA_TOO_LARGE
        if code == ErrorCode.NONE and name is not None:
            committed = CommittedOffset(
                partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata or ""
            )
            context.services.get(GroupService).commit(group_id, name, partition.partition_index, committed)
        return CommittedPartition(partition_index=partition.partition_index, error_code=code)

    return OffsetCommitResponse.OffsetCommitResponseTopic(
        name=topic.name, topic_id=topic.topic_id, partitions=await context.in_turns(topic.partitions, commit)
    )


def topic_name(context: Context, name: str, topic_id: UUID) -> str | None:
    """The topic a request means, by name or (newer versions) by id; None when no topic has that id."""
    if context.api_version < TOPIC_IDS_SINCE:
        return name
    topic = context.cluster.topics_by_id.get(topic_id)
    return None if topic is None else topic.name


def unknown_partition(context: Context, name: str | None, partition: int) -> int:
    """The error for a partition that does not exist, or 0."""
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    topic = context.cluster.topics.get(name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


@handler(OffsetFetchRequest, min_version=1, max_version=10)
async def offset_fetch(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Tell a group's positions, or all positions of several groups."""
    if context.api_version >= SEVERAL_GROUPS_SINCE:
        response = OffsetFetchResponse()
        response.groups = [
            await _fetch_group(context, group, stable=request.require_stable) for group in request.groups
        ]
        return response
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=request.group_id, topics=None)
    if request.topics is not None:
        group.topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    fetched = await _fetch_group(context, group, stable=request.require_stable)
    return await _single(context, fetched, group)


async def _single(
    context: Context,
    fetched: OffsetFetchResponse.OffsetFetchResponseGroup,
    asked: OffsetFetchRequest.OffsetFetchRequestGroup,
) -> OffsetFetchResponse:
    """The shape of a response before version 8; version 1 has no place for an error but the partitions."""
    if fetched.error_code and context.api_version < GROUP_ERROR_SINCE:
        fetched.topics = [
            FetchedTopic(
                name=topic.name,
                partitions=[_no_offset(index, fetched.error_code) for index in topic.partition_indexes],
            )
            for topic in asked.topics or []
        ]
    response = OffsetFetchResponse(error_code=fetched.error_code)
    response.topics = [
        OffsetFetchResponse.OffsetFetchResponseTopic(
            name=topic.name, partitions=await context.in_turns(topic.partitions, _single_partition)
        )
        for topic in fetched.topics
    ]
    return response


def _single_partition(partition: FetchedPartition) -> OffsetFetchResponse.OffsetFetchResponsePartition:
    return OffsetFetchResponse.OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )


async def _fetch_group(
    context: Context, group: OffsetFetchRequest.OffsetFetchRequestGroup, *, stable: bool
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    answer = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id, error_code=ErrorCode.NONE)
    answer.error_code = _fetch_refusal(context, group)
    if answer.error_code:
        return answer
    if group.topics is None:
        answer.topics = await _fetch_all(context, group.group_id, stable=stable)
    else:
        answer.topics = [
            FetchedTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=await _fetch_partitions(
                    context,
                    group.group_id,
                    topic_name(context, topic.name, topic.topic_id),
                    topic.partition_indexes,
                    stable=stable,
                ),
            )
            for topic in group.topics
        ]
    return answer


def _fetch_refusal(context: Context, asked: OffsetFetchRequest.OffsetFetchRequestGroup) -> ErrorCode:
    if not is_coordinator(context, asked.group_id):
        return ErrorCode.NOT_COORDINATOR
    service = context.services.get(GroupService)
    group = service.consumer_group(asked.group_id)
    if group is None or (asked.member_id is None and asked.member_epoch < 0):
        return ErrorCode.NONE
    return service.consumer_groups.validate_epoch(group, asked.member_id or "", asked.member_epoch)


async def _fetch_all(context: Context, group_id: str, *, stable: bool) -> list[FetchedTopic]:
    partitions: dict[str, list[int]] = {}
    service = context.services.get(GroupService)
    for topic, partition, _ in service.offsets.fetch_all(group_id):
        await context.turn_after()
        is_there = service.committed(group_id, topic, partition) is not None
        if is_there and context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
            partitions.setdefault(topic, []).append(partition)
    answers = []
    for name, indexes in partitions.items():
        known = context.cluster.topics.get(name)
        if known is None:
            # deleted while others had their turn
            continue
        found = await _fetch_partitions(context, group_id, name, indexes, stable=stable)
        topic_id = known.topic_id if context.api_version >= TOPIC_IDS_SINCE else ZERO_UUID
        answers.append(FetchedTopic(name=name, topic_id=topic_id, partitions=found))
    return answers


async def _fetch_partitions(
    context: Context, group_id: str, name: str | None, indexes: Sequence[int], *, stable: bool
) -> list[FetchedPartition]:
    service = context.services.get(GroupService)
    if name is None:
        return [_no_offset(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in indexes]
    if not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        return [_no_offset(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for index in indexes]

    def fetched(index: int) -> FetchedPartition:
        committed = service.committed(group_id, name, index)
        if stable and service.offsets.has_pending(group_id, name, index):
            return _no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        if committed is None:
            return _no_offset(index, ErrorCode.NONE)
        return FetchedPartition(
            partition_index=index,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            error_code=ErrorCode.NONE,
        )

    return await context.in_turns(indexes, fetched)


def _no_offset(index: int, error_code: int) -> FetchedPartition:
    return FetchedPartition(
        partition_index=index,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=NO_LEADER_EPOCH,
        metadata="",
        error_code=error_code,
    )


@handler(OffsetDeleteRequest, min_version=0, max_version=0)
async def offset_delete(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete positions in topics that the group does not read."""
    service = context.services.get(GroupService)
    consumer_group = service.consumer_group(request.group_id)
    error = ErrorCode.NOT_COORDINATOR
    if is_coordinator(context, request.group_id):
        error = ErrorCode.NONE if consumer_group else service.coordinator.validate_offset_delete(request.group_id)
    response = OffsetDeleteResponse(error_code=error)
    if error is not ErrorCode.NONE:
        return response
    group = consumer_group or service.coordinator.groups[request.group_id]
    for topic in request.topics:
        answer = OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name)
        subscribed = group.is_subscribed_to(topic.name)
        for partition in topic.partitions:
            await context.turn_after()
            index = partition.partition_index
            code = unknown_partition(context, topic.name, index)
            if code == ErrorCode.NONE and subscribed:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif code == ErrorCode.NONE:
                service.offsets.delete(request.group_id, topic.name, index)
            answer.partitions.append(
                OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=index, error_code=code)
            )
        response.topics.append(answer)
    return response
