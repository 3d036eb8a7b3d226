"""Consumer groups of KIP-848, `group.protocol=consumer`.

ConsumerGroupHeartbeat (68) v0-1 · ConsumerGroupDescribe (69) v0-1. KIP-848, KIP-1082, KIP-1099.

Behaviour: assignors `uniform` (the default) and `range`; session time-out and heartbeat interval are the broker's
(`group.consumer.session.timeout.ms`, `group.consumer.heartbeat.interval.ms`) or the group's own. New topics and
partitions are found with the next heartbeat (Kafka: within ten minutes, or at once with the change of metadata).
Assignments of very many partitions are worked out in steps; meanwhile other heartbeats of the group wait.
Versions: ConsumerGroupHeartbeat 1 regular expressions are resolved here, member ids are the client's (KIP-1082).
ConsumerGroupDescribe 1 type of member (KIP-1099).
A classic group becomes one of these when a member of this protocol joins it, its members go on with the requests they
know (`groups.classic_members`), and it is a classic group again when only they are left
(`group.consumer.migration.policy`).
Gaps: no rack awareness; regular expressions are matched as by RE2, in linear time, in Python's syntax; members are not
kept across a restart of the whole cluster from its data directory, their group is: they join anew.
"""

from functools import partial
from operator import itemgetter
from uuid import UUID, uuid4

from kclient_quota.broker.authorizer import AclOperation, ResourceType
from kclient_quota.broker.groups.assignors import Assignment, by_topic_in_steps
from kclient_quota.broker.groups.consumer.group import JOIN_EPOCH, NOTHING, ConsumerMember
from kclient_quota.broker.groups.consumer.requests import Beat, BeatResult
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.groups.in_steps import Steps, mapping, ordered, union
from kclient_quota.broker.handlers.groups.classic_groups import is_coordinator
from kclient_quota.broker.request.authorization import operations
from kclient_quota.broker.request.context import AT_ONCE, Context
from kclient_quota.broker.request.long.letting_go import let_go, made_of_each
from kclient_quota.broker.request.registry import handler
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

MEMBER_TYPE_CLASSIC, MEMBER_TYPE_CONSUMER = 0, 1


@handler(ConsumerGroupHeartbeatRequest, min_version=0, max_version=1)
async def consumer_group_heartbeat(
    context: Context, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Join, stay, take the next step of a rebalance, or leave."""
    service = context.services.get(GroupService)
    named = request.subscribed_topic_names or ()
    if not all(await context.in_turns(named, partial(context.may, AclOperation.DESCRIBE, ResourceType.TOPIC))):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    beat = await _beat(context, request)
    result = await service.one_at_a_time.done(request.group_id, _heartbeat(context, service, beat))
    held = [beat.owned]
    del beat
    await context.by_and_by(let_go(held))
    response = _response(service.consumer_groups.config_of(request.group_id).heartbeat_interval_ms, result)
    if result.assigned is not None:
        await context.turn_for(len(result.assigned))
        response.assignment = ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=await made_of_each(context, by_topic_in_steps(result.assigned), _topic_partitions)
        )
    return response


def _heartbeat(context: Context, service: GroupService, beat: Beat) -> Steps[BeatResult]:
    if not is_coordinator(context, beat.group_id):
        return BeatResult(ErrorCode.NOT_COORDINATOR)
    is_room = service.has_room_for_consumer_group(beat.group_id)
    if not is_room and (beat.member_epoch != JOIN_EPOCH or service.upgraded(beat.group_id) is None):
        return BeatResult(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {beat.group_id} is not a consumer group.")
    topics, now_ms = context.cluster.directory, context.scheduler.now_ms()
    result = yield from service.consumer_groups.heartbeat(beat, str(uuid4()), topics, now_ms)
    service.after_call()
    return result


def _topic_partitions(found: tuple[UUID, list[int]]) -> ConsumerGroupHeartbeatResponse.TopicPartitions:
    return ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=found[0], partitions=found[1])


async def _beat(context: Context, request: ConsumerGroupHeartbeatRequest) -> Beat:
    owned: Assignment | None = None
    if request.topic_partitions is not None:
        said = ((topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions)
        owned = await context.by_and_by(union(NOTHING, said))
    names = request.subscribed_topic_names
    topics = None if names is None else await context.by_and_by(union(frozenset(), names))
    return Beat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        context.client_id or "",
        f"/{context.client_address}",
        topics,
        request.subscribed_topic_regex,
        request.server_assignor,
        owned,
    )


def _response(heartbeat_interval_ms: int, result: BeatResult) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=0 if result.error else heartbeat_interval_ms,
    )


@handler(ConsumerGroupDescribeRequest, min_version=0, max_version=1)
async def consumer_group_describe(
    context: Context, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Show epochs, members and both their assignments."""
    response = ConsumerGroupDescribeResponse()
    for group_id in request.group_ids:
        await context.turn_after()
        response.groups.append(await _described(context, group_id))
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = operations(context, ResourceType.GROUP, group.group_id)
    return response


async def _described(context: Context, group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
    group = context.services.get(GroupService).consumer_groups.groups.get(group_id)
    if not is_coordinator(context, group_id):
        return ConsumerGroupDescribeResponse.DescribedGroup(group_id=group_id, error_code=ErrorCode.NOT_COORDINATOR)
    if group is None:
        return ConsumerGroupDescribeResponse.DescribedGroup(
            group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=f"Group {group_id} not found."
        )
    described = ConsumerGroupDescribeResponse.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
    )
    # a number is quicker to look up than an id
    names = await context.by_and_by(mapping((topic_id.int, name) for name, (topic_id, _) in group.metadata.items()))
    # as they are now, whatever becomes of the group while others have their turn
    target = dict(group.target)
    for member in list(group.members.values()):
        await context.turn_after()
        described.members.append(await _described_member(context, names, member, target.get(member.member_id, NOTHING)))
    return described


async def _described_member(
    context: Context, names: dict[int, str], member: ConsumerMember, target: Assignment
) -> ConsumerGroupDescribeResponse.Member:
    return ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=await context.by_and_by(ordered(member.topics, str)),
        subscribed_topic_regex=member.regex,
        assignment=await _assignment(context, names, member.assigned),
        target_assignment=await _assignment(context, names, target),
        member_type=MEMBER_TYPE_CONSUMER if member.classic is None else MEMBER_TYPE_CLASSIC,
    )


async def _assignment(
    context: Context, names: dict[int, str], assigned: Assignment
) -> ConsumerGroupDescribeResponse.Assignment:
    await context.turn_after(min(len(assigned), AT_ONCE))
    return ConsumerGroupDescribeResponse.Assignment(
        topic_partitions=await made_of_each(context, _named(names, assigned), _described_topic)
    )


def _named(names: dict[int, str], assigned: Assignment) -> Steps[list[tuple[str, UUID, list[int]]]]:
    """Topics by name with their partitions, those left out that are no more."""
    found = yield from by_topic_in_steps(assigned)
    rows = ((names[topic_id.int], topic_id, indexes) for topic_id, indexes in found if topic_id.int in names)
    return (yield from ordered(rows, itemgetter(0)))


def _described_topic(found: tuple[str, UUID, list[int]]) -> ConsumerGroupDescribeResponse.TopicPartitions:
    return ConsumerGroupDescribeResponse.TopicPartitions(topic_name=found[0], topic_id=found[1], partitions=found[2])
