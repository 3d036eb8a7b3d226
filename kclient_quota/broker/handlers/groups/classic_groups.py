"""Classic consumer groups.

FindCoordinator (10) v0-6 · JoinGroup (11) v0-9 · Heartbeat (12) v0-4 · LeaveGroup (13) v0-5 · SyncGroup (14) v0-5 ·
DescribeGroups (15) v0-6 · ListGroups (16) v0-5 · DeleteGroups (42) v0-2.
KIP-62, KIP-134 (initial delay, here 0 by default), KIP-345 (static members), KIP-394 (member id required), KIP-699
(batched FindCoordinator), KIP-814 (static leader skips its assignment).

Behaviour: groups are spread over the brokers by Kafka's hash of the group id; any other broker answers NOT_COORDINATOR.
In a group with members of the consumer protocol (KIP-848) JoinGroup, SyncGroup and Heartbeat give classic members the
steps of that protocol, and nobody leads; LeaveGroup takes members of either protocol out.
Versions: throttle time since 1 and KIP-219 since 2 in all but JoinGroup (2, 3) and DeleteGroups (0, 1).
FindCoordinator 1 transactions; 3 flexible; 4 several keys; 5 TRANSACTION_ABORTABLE; 6 share groups. JoinGroup 1
rebalance time-out; 4 KIP-394; 5 instance id; 6 flexible; 7 protocol type in answers (KIP-559); 8 reason (KIP-800); 9
KIP-814. SyncGroup 3 instance id; 4 flexible; 5 protocol (KIP-559). Heartbeat 3 instance id; 4 flexible. LeaveGroup 3
several members; 4 flexible; 5 reason. DescribeGroups 3 operations; 4 instance id; 5 flexible; 6 GROUP_ID_NOT_FOUND
(KIP-1043). ListGroups 3 flexible; 4 by state (KIP-518); 5 by type (KIP-848). DeleteGroups 2 flexible.
Gaps: coordinator type 2 (for brokers, share groups' state) is INVALID_REQUEST; members are not kept across restarts;
ListGroups shows the groups of the broker that is asked, as Kafka does.
"""

from collections.abc import Iterator
from uuid import uuid4

from kclient_quota.broker.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kclient_quota.broker.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, GroupState, Member
from kclient_quota.broker.groups.classic.requests import Join, JoinResult, Leaver, Sync, SyncResult
from kclient_quota.broker.groups.consumer.group import ConsumerGroup
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.request.authorization import DENIED, operations
from kclient_quota.broker.request.context import Context
from kclient_quota.broker.request.registry import handler
from kclient_quota.broker.shares.share_group import SHARE_PROTOCOL_TYPE, ShareGroup
from kclient_quota.broker.shares.share_service import ShareService
from kclient_quota.broker.transactions.transaction_service import TransactionService
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

GROUP_KEY, TRANSACTION_KEY = 0, 1
BATCHED_SINCE = 4
MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9
LEAVE_BATCHED_SINCE = 3
UNKNOWN_GROUP_IS_AN_ERROR_SINCE = 6
_DELETED = 5
"""To delete a group is as much to do as to look at so many other things."""


def is_coordinator(context: Context, key: str) -> bool:
    """Whether the broker that was asked coordinates this group or transactional id."""
    return context.services.get(GroupService).coordinator_id(key) == context.broker.id


@handler(FindCoordinatorRequest, min_version=0, max_version=6)
async def find_coordinator(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Name the coordinator of one key (before v4) or of several."""
    batched = context.api_version >= BATCHED_SINCE
    keys = request.coordinator_keys if batched else [request.key]
    found = await context.in_turns(keys, lambda key: _coordinator(context, request.key_type, key))
    if batched:
        return FindCoordinatorResponse(coordinators=found)
    one = found[0]
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _coordinator(context: Context, key_type: int, key: str) -> FindCoordinatorResponse.Coordinator:
    error, message, broker_id = ErrorCode.NONE, None, -1
    resource_type = ResourceType.TRANSACTIONAL_ID if key_type == TRANSACTION_KEY else ResourceType.GROUP
    if not context.may(AclOperation.DESCRIBE, resource_type, key):
        return FindCoordinatorResponse.Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=DENIED[resource_type], error_message=None
        )
    if key_type in {GROUP_KEY, TRANSACTION_KEY}:
        service = context.services.get(GroupService)
        told = service.topic if key_type == GROUP_KEY else context.services.get(TransactionService)
        told.records.prepare()
        broker_id = service.coordinator_id(key)
    else:
        error, message = ErrorCode.INVALID_REQUEST, f"coordinator type {key_type} is not supported"
    broker = context.cluster.brokers.get(broker_id)
    port = -1 if broker is None else broker.ports.get(context.connection.listener, -1)
    if broker is None and not message:
        return FindCoordinatorResponse.Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=None
        )
    return FindCoordinatorResponse.Coordinator(
        key=key,
        node_id=broker_id,
        host="" if broker is None else broker.host,
        port=port,
        error_code=error,
        error_message=message,
    )


@handler(JoinGroupRequest, min_version=0, max_version=9)
async def join_group(context: Context, request: JoinGroupRequest) -> JoinGroupResponse:
    """Join, waiting for the join phase to end."""
    service = context.services.get(GroupService)
    if not is_coordinator(context, request.group_id):
        return _join_response(JoinResult(ErrorCode.NOT_COORDINATOR, request.member_id), context.api_version)
    join = Join(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        context.client_id or "",
        f"/{context.client_address}",
        request.session_timeout_ms,
        request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms,
        request.protocol_type,
        tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        requires_known_member_id=context.api_version >= MEMBER_ID_REQUIRED_SINCE,
        supports_skipping_assignment=context.api_version >= SKIP_ASSIGNMENT_SINCE,
    )
    return _join_response(await service.join(join, str(uuid4()), context.now_ms), context.api_version)


def _join_response(result: JoinResult, version: int) -> JoinGroupResponse:
    response = JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name or ("" if version < 7 else None),  # noqa: PLR2004 - nullable since v7
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
    )
    response.members = [
        JoinGroupResponse.JoinGroupResponseMember(
            member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
        )
        for member in result.members
    ]
    return response


@handler(SyncGroupRequest, min_version=0, max_version=5)
async def sync_group(context: Context, request: SyncGroupRequest) -> SyncGroupResponse:
    """Give (the leader) or await (anybody else) the assignment."""
    service = context.services.get(GroupService)
    if not is_coordinator(context, request.group_id):
        return _sync_response(SyncResult(ErrorCode.NOT_COORDINATOR))
    sync = Sync(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        tuple((assignment.member_id, bytes(assignment.assignment)) for assignment in request.assignments),
    )
    return _sync_response(await service.sync(sync, context.now_ms))


def _sync_response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


@handler(HeartbeatRequest, min_version=0, max_version=4)
async def heartbeat(context: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    """Take a sign of life."""
    if not is_coordinator(context, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    error = context.services.get(GroupService).heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id, context.now_ms
    )
    return HeartbeatResponse(error_code=error)


@handler(LeaveGroupRequest, min_version=0, max_version=5)
async def leave_group(context: Context, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Let one member go (before v3) or several."""
    if not is_coordinator(context, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
    batched = context.api_version >= LEAVE_BATCHED_SINCE
    leavers = [Leaver(m.member_id, m.group_instance_id) for m in request.members] if batched else []
    service = context.services.get(GroupService)
    errors = service.leave(request.group_id, leavers or [Leaver(request.member_id)], context.now_ms)
    if isinstance(errors, ErrorCode):
        return LeaveGroupResponse(error_code=errors)
    if not batched:
        return LeaveGroupResponse(error_code=errors[0])
    response = LeaveGroupResponse(error_code=ErrorCode.NONE)
    response.members = [
        LeaveGroupResponse.MemberResponse(
            member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=error
        )
        for leaver, error in zip(leavers, errors, strict=False)
    ]
    return response


@handler(DescribeGroupsRequest, min_version=0, max_version=6)
async def describe_groups(context: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Show members and their assignments."""
    response = DescribeGroupsResponse()
    response.groups = await context.in_turns(request.groups, lambda group_id: _described(context, group_id))
    if request.include_authorized_operations:
        for group in response.groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = operations(context, ResourceType.GROUP, group.group_id)
    return response


def _described(context: Context, group_id: str) -> DescribeGroupsResponse.DescribedGroup:
    group = context.services.get(GroupService).coordinator.groups.get(group_id)
    if not is_coordinator(context, group_id):
        return DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=ErrorCode.NOT_COORDINATOR)
    if group is None:
        described = DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state=GroupState.DEAD)
        if context.api_version >= UNKNOWN_GROUP_IS_AN_ERROR_SINCE:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"Group {group_id} not found."
        return described
    described = DescribeGroupsResponse.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if group.state is GroupState.STABLE else "",
    )
    described.members = [_described_member(group, member) for member in group.members.values()]
    return described


def _described_member(group: ClassicGroup, member: Member) -> DescribeGroupsResponse.DescribedGroupMember:
    return DescribeGroupsResponse.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol_name) if group.state is GroupState.STABLE else b"",
        member_assignment=member.assignment,
    )


@handler(ListGroupsRequest, min_version=0, max_version=5)
async def list_groups(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    """List the groups this broker coordinates."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    response = ListGroupsResponse(error_code=ErrorCode.NONE)
    may_see_all = context.may(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    for kind, group in list(_all_groups(context)):
        await context.turn_after()
        if (
            is_coordinator(context, group.group_id)
            and (may_see_all or context.may(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id))
            and (not states or group.state.lower() in states)
            and (not types or kind in types)
        ):
            response.groups.append(
                ListGroupsResponse.ListedGroup(
                    group_id=group.group_id,
                    protocol_type=_protocol_type(group),
                    group_state=group.state,
                    group_type=kind,
                )
            )
    return response


def _protocol_type(group: ClassicGroup | ConsumerGroup | ShareGroup) -> str:
    if isinstance(group, ClassicGroup):
        return group.protocol_type or ""
    return SHARE_PROTOCOL_TYPE if isinstance(group, ShareGroup) else CONSUMER_PROTOCOL_TYPE


def _all_groups(context: Context) -> Iterator[tuple[str, ClassicGroup | ConsumerGroup | ShareGroup]]:
    service = context.services.get(GroupService)
    for classic in service.coordinator.groups.values():
        yield "classic", classic
    for consumer_group in service.consumer_groups.groups.values():
        yield "consumer", consumer_group
    for share_group in context.services.get(ShareService).coordinator.groups.values():
        yield "share", share_group


@handler(DeleteGroupsRequest, min_version=0, max_version=2)
async def delete_groups(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete groups without members, with their offsets."""
    response = DeleteGroupsResponse()
    service = context.services.get(GroupService)
    for group_id in request.groups_names:
        await context.turn_after(_DELETED)
        error = ErrorCode.NOT_COORDINATOR
        if is_coordinator(context, group_id):
            deleted = await context.by_and_by(context.services.get(ShareService).delete_group(group_id))
            error = service.delete_group(group_id) if deleted is None else deleted
        response.results.append(DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error))
    return response
