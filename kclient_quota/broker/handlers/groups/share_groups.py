"""Share groups (KIP-932): who is in them, and where they begin.

ShareGroupHeartbeat (76) v1 · ShareGroupDescribe (77) v1 · DescribeShareGroupOffsets (90) v0-1 ·
AlterShareGroupOffsets (91) v0 · DeleteShareGroupOffsets (92) v0. KIP-932, KIP-1226 (lag).

Behaviour: assignor `simple`: every partition has a reader, partitions are shared when there are more members than
partitions. Session time-out and heartbeat interval are the broker's (`group.share.*`) or the group's own (`share.*`).
Offsets may be altered and deleted while nobody is in the group.
Versions: DescribeShareGroupOffsets 1 lag (KIP-1226).
Gaps: no rack awareness; members are not kept across a restart of the whole cluster from its data directory.
"""

from kclient_quota.broker.authorizer import AclOperation, ResourceType
from kclient_quota.broker.cluster_state import Topic
from kclient_quota.broker.groups.assignors import by_topic
from kclient_quota.broker.groups.consumer_group import NOTHING
from kclient_quota.broker.groups.consumer_requests import BeatResult
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.handlers.groups.classic_groups import is_coordinator
from kclient_quota.broker.request.authorization import operations
from kclient_quota.broker.request.context import Context
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
DescribedTopic = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic
DescribedPartition = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition
AlteredPartition = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition


@handler(ShareGroupHeartbeatRequest, min_version=1, max_version=1)
async def share_group_heartbeat(context: Context, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    """Join, stay or leave."""
    service = context.services.get(ShareService)
    if not is_coordinator(context, request.group_id):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    named = request.subscribed_topic_names or ()
    if not all(context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in named):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    beat = ShareBeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.rack_id,
        context.client_id or "",
        f"/{context.client_address}",
        None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
    )
    is_taken = service.is_taken(request.group_id, context.services.get(GroupService))
    result = service.coordinator.heartbeat(beat, context.cluster.directory, context.now_ms, is_taken=is_taken)
    service.after_call()
    await context.turn_for(len(result.assigned or ()))
    return _response(service.coordinator.config_of(request.group_id).heartbeat_interval_ms, result)


def _response(heartbeat_interval_ms: int, result: BeatResult) -> ShareGroupHeartbeatResponse:
    response = ShareGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=0 if result.error else heartbeat_interval_ms,
    )
    if result.assigned is not None:
        response.assignment = ShareGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                ShareGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in by_topic(result.assigned)
            ]
        )
    return response


@handler(ShareGroupDescribeRequest, min_version=1, max_version=1)
async def share_group_describe(context: Context, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """Show epochs, members and their assignments."""
    response = ShareGroupDescribeResponse(groups=[_described(context, group_id) for group_id in request.group_ids])
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = operations(context, ResourceType.GROUP, group.group_id)
    return response


def _described(context: Context, group_id: str) -> ShareGroupDescribeResponse.DescribedGroup:
    group = context.services.get(ShareService).coordinator.groups.get(group_id)
    if not is_coordinator(context, group_id):
        return ShareGroupDescribeResponse.DescribedGroup(group_id=group_id, error_code=ErrorCode.NOT_COORDINATOR)
    if group is None:
        return ShareGroupDescribeResponse.DescribedGroup(
            group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=f"Group {group_id} not found."
        )
    names = {topic_id: name for name, (topic_id, _) in group.metadata.items()}
    return ShareGroupDescribeResponse.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.epoch,
        assignor_name=ASSIGNOR,
        members=[
            ShareGroupDescribeResponse.Member(
                member_id=member.member_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.topics),
                assignment=ShareGroupDescribeResponse.Assignment(
                    topic_partitions=[
                        ShareGroupDescribeResponse.TopicPartitions(
                            topic_id=topic_id, topic_name=names[topic_id], partitions=partitions
                        )
                        for topic_id, partitions in by_topic(group.target.get(member.member_id, NOTHING))
                    ]
                ),
            )
            for member in group.members.values()
        ],
    )


# -- where groups begin


@handler(DescribeShareGroupOffsetsRequest, min_version=0, max_version=1)
async def describe_share_group_offsets(
    context: Context, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Up to where each group has settled what it reads."""
    return DescribeShareGroupOffsetsResponse(groups=[_offsets(context, asked) for asked in request.groups])


def _offsets(
    context: Context, asked: DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup:
    answer = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
    service, cluster = context.services.get(ShareService), context.cluster
    if not is_coordinator(context, asked.group_id):
        answer.error_code = ErrorCode.NOT_COORDINATOR
        return answer
    if asked.group_id not in service.coordinator.groups:
        answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        answer.error_message = f"Group {asked.group_id} not found."
        return answer
    wanted = {topic.topic_name: list(topic.partitions) for topic in asked.topics or ()}
    if asked.topics is None:
        for group_id, topic_id, index in service.partitions:
            topic = cluster.topics_by_id.get(topic_id)
            if group_id == asked.group_id and topic is not None:
                wanted.setdefault(topic.name, []).append(index)
    for name, indexes in sorted(wanted.items()):
        if not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            continue
        topic = cluster.topics.get(name)
        rows = [_offset(service, asked.group_id, topic, index) for index in sorted(indexes)]
        described = DescribedTopic(topic_name=name, partitions=rows)
        if topic is not None:
            described.topic_id = topic.topic_id
        answer.topics.append(described)
    return answer


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
    response = AlterShareGroupOffsetsResponse()
    for asked in request.topics:
        topic = context.cluster.topics.get(asked.topic_name)
        answer = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
        if topic is not None:
            answer.topic_id = topic.topic_id
        may = context.may(AclOperation.READ, ResourceType.TOPIC, asked.topic_name)
        for part in asked.partitions:
            row = AlteredPartition(partition_index=part.partition_index)
            if not may:
                row.error_code, row.error_message = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."
            elif topic is None or not 0 <= part.partition_index < len(topic.partitions):
                row.error_code, row.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_TOPIC
            else:
                place = request.group_id, topic.topic_id, part.partition_index
                leader_epoch = topic.partitions[part.partition_index].leader_epoch
                context.services.get(ShareService).begin_at(place, part.start_offset, leader_epoch)
            answer.partitions.append(row)
        response.responses.append(answer)
    context.services.get(ShareService).after_call()
    return response


@handler(DeleteShareGroupOffsetsRequest, min_version=0, max_version=0)
async def delete_share_group_offsets(
    context: Context, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Let a group without members forget topics."""
    error, message = _refusal(context, request.group_id)
    if error:
        return DeleteShareGroupOffsetsResponse(error_code=error, error_message=message)
    response = DeleteShareGroupOffsetsResponse()
    service = context.services.get(ShareService)
    for asked in request.topics:
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
        if not any(place in service.partitions for place in places):
            row.error_code, row.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NOT_READ
            continue
        row.topic_id = topic.topic_id
        for place in places:
            service.forget(place)
    service.after_call()
    return response
