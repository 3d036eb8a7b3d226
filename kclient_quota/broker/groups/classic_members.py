"""Members that speak the classic protocol in a group of KIP-848, while it is being migrated.

Follows Kafka 4's `GroupMetadataManager.classicGroup...ToConsumerGroup`. Nobody waits: what JoinGroup and SyncGroup
answer is a member's next step, and Heartbeat says when to come for another one.
"""

from collections.abc import Iterable
from dataclasses import replace

from kclient_quota.broker.groups.classic.embedded_protocol import read_subscription, write_assignment
from kclient_quota.broker.groups.classic.group import CONSUMER_PROTOCOL_TYPE, UNKNOWN_MEMBER_ID
from kclient_quota.broker.groups.classic.requests import Join, JoinResult, Leaver, Sync, SyncResult
from kclient_quota.broker.groups.consumer.coordinator import ConsumerGroupCoordinator
from kclient_quota.broker.groups.consumer.group import (
    ClassicMemberMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Topics,
)
from kclient_quota.broker.groups.in_steps import Steps
from kclient_quota.broker.groups.migration import partitions_by_id
from kclient_quota.wire.error_codes import ErrorCode


class ClassicMembers:
    """Serves them.

    Args:
        coordinator: has the groups, and the members of both protocols.
    """

    def __init__(self, coordinator: ConsumerGroupCoordinator) -> None:
        self._coordinator = coordinator

    def join(
        self, group: ConsumerGroup, request: Join, fresh_id: str, topics: Topics, now_ms: int
    ) -> Steps[JoinResult]:
        """JoinGroup; between steps no other one, and no heartbeat, of this group may begin.

        Args:
            group: which group.
            request: the request.
            fresh_id: a member id, in case the member has none.
            topics: the topics there are.
            now_ms: the time.
        """
        member_id = request.member_id or fresh_id
        is_full = len(group.members) >= self._coordinator.config.max_size
        if member_id not in group.members and is_full:
            return JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, request.member_id)
        said = read_subscription(request.protocols[0][1]) if request.protocols else None
        names = [name for name, _ in request.protocols]
        if said is None or not group.supports_classic(request.protocol_type, names):
            return JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        is_dynamic = request.group_instance_id is None
        if request.member_id == UNKNOWN_MEMBER_ID and is_dynamic and request.requires_known_member_id:
            return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        is_replaced = request.group_instance_id in group.static_members and request.member_id == UNKNOWN_MEMBER_ID
        member = self._joining(group, request, member_id)
        if isinstance(member, ErrorCode):
            return JoinResult(member, request.member_id)
        updated = replace(
            member,
            instance_id=request.group_instance_id or member.instance_id,
            rack_id=said.rack_id or member.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=said.topics,
            # what only the other protocol can say goes with the member whose place this one takes
            regex=None,
            assignor=None,
            classic=ClassicMemberMetadata(request.session_timeout_ms, request.protocols, said.version),
        )
        owned = partitions_by_id(said.owned, topics)
        advanced = yield from self._coordinator.advance(group, member, updated, owned, topics)
        if advanced is None:
            return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        if is_replaced and self._coordinator.may_turn_classic(group, ()):
            self._coordinator.turn_classic(group, ())
        else:
            self._coordinator.cancel(group, member_id, ("join", "sync"))
            self._coordinator.schedule(group, advanced, now_ms)
            self._coordinator.expect("sync", group, advanced, now_ms)
        return JoinResult(ErrorCode.NONE, member_id, advanced.member_epoch, CONSUMER_PROTOCOL_TYPE, names[0])

    def _joining(self, group: ConsumerGroup, request: Join, member_id: str) -> ConsumerMember | ErrorCode:
        if request.group_instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        former_id = group.static_members.get(request.group_instance_id)
        if request.member_id != UNKNOWN_MEMBER_ID:
            if former_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return group.members[member_id] if former_id == member_id else ErrorCode.FENCED_INSTANCE_ID
        if former_id is None:
            return ConsumerMember(member_id)
        # the classic protocol knows no static member that is away: whoever comes takes its place
        return self._coordinator.replace_static(group, group.members[former_id], member_id)

    def sync(self, group: ConsumerGroup, request: Sync, now_ms: int) -> SyncResult:
        """SyncGroup: what the member may read now."""
        member = _asking(group, request.member_id, request.group_instance_id, request.generation_id)
        if isinstance(member, ErrorCode):
            return SyncResult(member)
        assert member.classic is not None
        name, _ = member.classic.protocols[0]
        if request.protocol_type not in {None, CONSUMER_PROTOCOL_TYPE} or request.protocol_name not in {None, name}:
            return SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._coordinator.expect("join", group, member, now_ms)
            return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
        self._coordinator.cancel(group, member.member_id, ("sync",))
        self._coordinator.schedule(group, member, now_ms)
        assignment = write_assignment(member.classic.version, group.partitions_named(member.assigned))
        return SyncResult(ErrorCode.NONE, request.protocol_type, request.protocol_name, assignment)

    def heartbeat(
        self, group: ConsumerGroup, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: int
    ) -> ErrorCode:
        """Heartbeat: NONE, REBALANCE_IN_PROGRESS when another step is due, or why the member is not one."""
        member = _asking(group, member_id, group_instance_id, generation_id)
        if isinstance(member, ErrorCode):
            return member
        self._coordinator.schedule(group, member, now_ms)
        has_step = (
            member.member_epoch < group.epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and group.may_go_on(member))
        )
        if not has_step:
            return ErrorCode.NONE
        self._coordinator.expect("join", group, member, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def leave(self, group: ConsumerGroup, leavers: Iterable[Leaver]) -> list[ErrorCode]:
        """LeaveGroup: one error per leaver."""
        found = [_leaving(group, leaver) for leaver in leavers]
        # each once, and all together: without the last of the others the group is not this one any more
        self._coordinator.remove(group, *{one.member_id: one for one in found if not isinstance(one, ErrorCode)})
        return [one if isinstance(one, ErrorCode) else ErrorCode.NONE for one in found]


def _leaving(group: ConsumerGroup, leaver: Leaver) -> ConsumerMember | ErrorCode:
    member_id = leaver.member_id
    if member_id == UNKNOWN_MEMBER_ID:
        # an administrator removes a static member by its instance id alone
        member_id = group.static_members.get(leaver.group_instance_id or "", UNKNOWN_MEMBER_ID)
    return _identified(group, member_id, leaver.group_instance_id)


def _identified(group: ConsumerGroup, member_id: str, group_instance_id: str | None) -> ConsumerMember | ErrorCode:
    if group_instance_id is not None:
        current_id = group.static_members.get(group_instance_id)
        if current_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return group.members.get(member_id) or ErrorCode.UNKNOWN_MEMBER_ID


def _asking(
    group: ConsumerGroup, member_id: str, group_instance_id: str | None, generation_id: int
) -> ConsumerMember | ErrorCode:
    """The classic member that asks, if it is in the generation that it says."""
    member = _identified(group, member_id, group_instance_id)
    if isinstance(member, ErrorCode):
        return member
    if member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return member if generation_id == member.member_epoch else ErrorCode.ILLEGAL_GENERATION
