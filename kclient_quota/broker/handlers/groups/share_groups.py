"""Share groups (KIP-932): who is in them, and where they begin.

ShareGroupHeartbeat (76) v1 · ShareGroupDescribe (77) v1 · DescribeShareGroupOffsets (90) v0-1 ·
AlterShareGroupOffsets (91) v0 · DeleteShareGroupOffsets (92) v0. KIP-932, KIP-1226 (lag).

Behaviour: assignor `simple`: every partition has a reader, partitions are shared when there are more members than
partitions. Session time-out and heartbeat interval are the broker's (`group.share.*`) or the group's own (`share.*`).
Offsets may be altered and deleted while nobody is in the group.
Versions: DescribeShareGroupOffsets 1 lag (KIP-1226).
Gaps: no rack awareness; members are not kept across a restart of the whole cluster from its data directory, their
group is: they join anew.
"""

from functools import partial
from itertools import groupby
from operator import itemgetter
from uuid import UUID

from kclient_quota.broker.authorizer import AclOperation, ResourceType
from kclient_quota.broker.cluster_state import Topic
from kclient_quota.broker.groups.assignors import Assignment, by_topic_in_steps
from kclient_quota.broker.groups.consumer.group import NOTHING
from kclient_quota.broker.groups.consumer.requests import BeatResult
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.groups.in_steps import AT_ONCE, Steps, gathered, mapping, ordered, parts, union
from kclient_quota.broker.handlers.groups.classic_groups import is_coordinator
from kclient_quota.broker.request.authorization import operations
from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.long.letting_go import emptied, made_of_each
from kclient_quota.broker.request.registry import handler
from kclient_quota.broker.shares.share_group import ASSIGNOR, ShareBeat, ShareGroup
from kclient_quota.broker.shares.share_service import ShareService
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

_UNKNOWN_TOPIC = "This server does not host this topic-partition."
_NOT_READ = "There is no offset information to delete."
_NOT_BEGUN = -1
_BEGUN = 5
"""To tell where a group begins in a partition costs as much as to look at some."""
DescribedTopic = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic
DescribedPartition = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition
AlteringPartition = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition
AlteredPartition = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition


@handler(ShareGroupHeartbeatRequest, min_version=1, max_version=1)
async def share_group_heartbeat(context: Context, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    """Join, stay or leave."""
    service = context.services.get(ShareService)
    if not is_coordinator(context, request.group_id):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    names = request.subscribed_topic_names
    if not all(await context.in_turns(names or (), partial(context.may, AclOperation.DESCRIBE, ResourceType.TOPIC))):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    beat = ShareBeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.rack_id,
        context.client_id or "",
        f"/{context.client_address}",
        None if names is None else await context.by_and_by(union(frozenset(), names)),
    )
    result = await service.one_at_a_time.done(request.group_id, _heartbeat(context, service, beat))
    response = ShareGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=0
        if result.error
        else service.coordinator.config_of(request.group_id).heartbeat_interval_ms,
    )
    if result.assigned is not None:
        await context.turn_for(len(result.assigned))
        response.assignment = ShareGroupHeartbeatResponse.Assignment(
            topic_partitions=await made_of_each(context, by_topic_in_steps(result.assigned), _topic_partitions)
        )
    return response


def _heartbeat(context: Context, service: ShareService, beat: ShareBeat) -> Steps[BeatResult]:
    if not is_coordinator(context, beat.group_id):
        return BeatResult(ErrorCode.NOT_COORDINATOR)
    if service.is_leaving(beat.group_id):
        return BeatResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    is_taken = service.is_taken(beat.group_id, context.services.get(GroupService))
    topics, now_ms = context.cluster.directory, context.scheduler.now_ms()
    result = yield from service.coordinator.heartbeat(beat, topics, now_ms, is_taken=is_taken)
    service.after_call()
    return result


def _topic_partitions(found: tuple[UUID, list[int]]) -> ShareGroupHeartbeatResponse.TopicPartitions:
    return ShareGroupHeartbeatResponse.TopicPartitions(topic_id=found[0], partitions=found[1])


@handler(ShareGroupDescribeRequest, min_version=1, max_version=1)
async def share_group_describe(context: Context, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """Show epochs, members and their assignments."""
    response = ShareGroupDescribeResponse()
    for group_id in request.group_ids:
        await context.turn_after()
        response.groups.append(await _described(context, group_id))
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = operations(context, ResourceType.GROUP, group.group_id)
    return response


async def _described(context: Context, group_id: str) -> ShareGroupDescribeResponse.DescribedGroup:
    group = context.services.get(ShareService).coordinator.groups.get(group_id)
    if not is_coordinator(context, group_id):
        return ShareGroupDescribeResponse.DescribedGroup(group_id=group_id, error_code=ErrorCode.NOT_COORDINATOR)
    if group is None:
        return ShareGroupDescribeResponse.DescribedGroup(
            group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=f"Group {group_id} not found."
        )
    described = ShareGroupDescribeResponse.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
    )
    # a number is quicker to look up than an id
    names = await context.by_and_by(mapping((topic_id.int, name) for name, (topic_id, _) in group.metadata.items()))
    # as they are now, whatever becomes of the group while others have their turn
    target = dict(group.target)
    for member in list(group.members.values()):
        await context.turn_after()
        described.members.append(
            ShareGroupDescribeResponse.Member(
                member_id=member.member_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=await context.by_and_by(ordered(member.topics, str)),
                assignment=await _assignment(context, names, target.get(member.member_id, NOTHING)),
            )
        )
    return described


async def _assignment(
    context: Context, names: dict[int, str], assigned: Assignment
) -> ShareGroupDescribeResponse.Assignment:
    await context.turn_for(len(assigned))

    def row(topic: tuple[UUID, list[int]]) -> ShareGroupDescribeResponse.TopicPartitions:
        topic_id, indexes = topic
        return ShareGroupDescribeResponse.TopicPartitions(
            topic_id=topic_id, topic_name=names[topic_id.int], partitions=indexes
        )

    return ShareGroupDescribeResponse.Assignment(
        topic_partitions=await made_of_each(context, _known(names, assigned), row)
    )


def _known(names: dict[int, str], assigned: Assignment) -> Steps[list[tuple[UUID, list[int]]]]:
    """Topics with their partitions, those left out that are no more."""
    found = yield from by_topic_in_steps(assigned)
    return (yield from gathered(topic for topic in found if topic[0].int in names))


# -- where groups begin


@handler(DescribeShareGroupOffsetsRequest, min_version=0, max_version=1)
async def describe_share_group_offsets(
    context: Context, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Up to where each group has settled what it reads."""
    response = DescribeShareGroupOffsetsResponse()
    for asked in request.groups:
        await context.turn_after()
        response.groups.append(await context.by_and_by(_offsets(context, asked)))
    return response


def _offsets(
    context: Context, asked: DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
) -> Steps[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup]:
    answer = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
    service, cluster = context.services.get(ShareService), context.cluster
    if not is_coordinator(context, asked.group_id):
        answer.error_code = ErrorCode.NOT_COORDINATOR
        return answer
    if asked.group_id not in service.coordinator.groups:
        answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        answer.error_message = f"Group {asked.group_id} not found."
        return answer
    if asked.topics is None:
        wanted = yield from _begun(context, asked.group_id)
    else:
        wanted = {topic.topic_name: list(topic.partitions) for topic in asked.topics}
    names = yield from ordered(wanted, str)
    for part in parts((name, index) for name in names for index in sorted(wanted[name])):
        for name, indexes in groupby(part, key=itemgetter(0)):
            if not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
                continue
            topic = cluster.topics.get(name)
            if not answer.topics or answer.topics[-1].topic_name != name:
                answer.topics.append(DescribedTopic(topic_name=name))
                if topic is not None:
                    answer.topics[-1].topic_id = topic.topic_id
            answer.topics[-1].partitions += [_offset(service, asked.group_id, topic, index) for _, index in indexes]
        if len(part) == AT_ONCE:
            yield
    yield from emptied(wanted)
    return answer


def _begun(context: Context, group_id: str) -> Steps[dict[str, list[int]]]:
    """Where a group has begun to read, or was told where to begin."""
    found: dict[str, list[int]] = {}
    for part in parts(list(context.services.get(ShareService).partitions)):
        for of_group, topic_id, index in part:
            topic = context.cluster.topics_by_id.get(topic_id)
            if of_group == group_id and topic is not None:
                found.setdefault(topic.name, []).append(index)
        if len(part) == AT_ONCE:
            yield
    return found


def _offset(service: ShareService, group_id: str, topic: Topic | None, index: int) -> DescribedPartition:
    if topic is None:
        return DescribedPartition(partition_index=index, start_offset=_NOT_BEGUN)
    kept = service.partitions.get((group_id, topic.topic_id, index))
    if kept is None or kept.written is None:
        return DescribedPartition(partition_index=index, start_offset=_NOT_BEGUN)
    partition, (start_offset, settled) = topic.partitions[index], kept.written
    return DescribedPartition(
        partition_index=index,
        start_offset=start_offset,
        leader_epoch=partition.leader_epoch,
        lag=max(0, partition.log.high_watermark - start_offset - settled),
    )


def _refusal(context: Context, group_id: str, *, makes: bool = False) -> tuple[ErrorCode, str | None]:
    """Why a group's offsets cannot be changed; it is made if need be where `makes` says so."""
    if not is_coordinator(context, group_id):
        return ErrorCode.NOT_COORDINATOR, None
    service = context.services.get(ShareService)
    if service.is_leaving(group_id):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
    group = service.coordinator.groups.get(group_id)
    if group is None and makes and not service.is_taken(group_id, context.services.get(GroupService)):
        group = service.coordinator.groups[group_id] = ShareGroup(group_id)
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
    if group.members:
        return ErrorCode.NON_EMPTY_GROUP, "The group is not empty."
    return ErrorCode.NONE, None


@handler(AlterShareGroupOffsetsRequest, min_version=0, max_version=0)
async def alter_share_group_offsets(
    context: Context, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Let a group without members begin elsewhere."""
    error, message = _refusal(context, request.group_id, makes=True)
    if error:
        return AlterShareGroupOffsetsResponse(error_code=error, error_message=message)
    # while others have their turn the group may be deleted, or somebody join it
    refused = context.asked_anew(lambda: _refusal(context, request.group_id))
    response = AlterShareGroupOffsetsResponse()
    for asked in request.topics:
        topic = context.cluster.topics.get(asked.topic_name)
        answer = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
        if topic is not None:
            answer.topic_id = topic.topic_id
        for part in asked.partitions:
            await context.turn_after(_BEGUN)
            answer.partitions.append(_begun_elsewhere(context, request.group_id, asked.topic_name, part, refused()))
        response.responses.append(answer)
    context.services.get(ShareService).after_call()
    return response


def _begun_elsewhere(
    context: Context,
    group_id: str,
    name: str,
    asked: AlteringPartition,
    refused: tuple[ErrorCode, str | None],
) -> AlteredPartition:
    row, topic = AlteredPartition(partition_index=asked.partition_index), context.cluster.topics.get(name)
    service = context.services.get(ShareService)
    if not context.may(AclOperation.READ, ResourceType.TOPIC, name):
        row.error_code, row.error_message = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."
    elif topic is None or not 0 <= asked.partition_index < len(topic.partitions):
        row.error_code, row.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_TOPIC
    elif refused[0]:
        row.error_code, row.error_message = refused
    else:
        place = group_id, topic.topic_id, asked.partition_index
        service.begin_at(place, asked.start_offset, topic.partitions[asked.partition_index].leader_epoch)
    return row


@handler(DeleteShareGroupOffsetsRequest, min_version=0, max_version=0)
async def delete_share_group_offsets(
    context: Context, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Let a group without members forget topics."""
    error, message = _refusal(context, request.group_id)
    if error:
        return DeleteShareGroupOffsetsResponse(error_code=error, error_message=message)
    # as above
    refused = context.asked_anew(lambda: _refusal(context, request.group_id))
    response = DeleteShareGroupOffsetsResponse()
    service = context.services.get(ShareService)
    for asked in request.topics:
        await context.turn_after()
        topic = context.cluster.topics.get(asked.topic_name)
        row = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
        response.responses.append(row)
        if not context.may(AclOperation.READ, ResourceType.TOPIC, asked.topic_name):
            row.error_code, row.error_message = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."
            continue
        if topic is None:
            row.error_code, row.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_TOPIC
            continue
        places = [(request.group_id, topic.topic_id, partition.index) for partition in topic.partitions]
        if not any(await context.in_turns(places, service.partitions.__contains__)):
            row.error_code, row.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NOT_READ
            continue
        row.topic_id = topic.topic_id
        await context.in_turns(places, lambda place: None if refused()[0] else service.forget(place))
        row.error_code, row.error_message = refused()
    service.after_call()
    return response
