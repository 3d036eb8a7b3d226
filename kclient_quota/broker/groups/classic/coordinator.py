"""The coordinator of classic consumer groups: requests in, answers or tickets out, time handed in.

Follows Kafka 4's `GroupMetadataManager` (its classic half) branch by branch. A request that has to wait returns
`Pending`; its answer is among `take_completions()` after whichever later call brings it about: another member's
request, or `tick` when a deadline has passed. So an adapter calls `take_completions()` after every call, and `tick` at
`next_deadline_ms()`.

Kept in memory only: after a restart of the broker members are told UNKNOWN_MEMBER_ID and join again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from kclient_quota.broker.groups.classic.group import (
    CONSUMER_PROTOCOL_TYPE,
    UNKNOWN_MEMBER_ID,
    ClassicGroup,
    GroupState,
    Member,
)
from kclient_quota.broker.groups.classic.rebalance import Rebalancer, current_generation
from kclient_quota.broker.groups.classic.requests import (
    Completion,
    Join,
    JoinResult,
    Leaver,
    Pending,
    Sync,
    SyncResult,
)
from kclient_quota.broker.groups.classic.validation import validate_commit, validate_sync
from kclient_quota.wire.error_codes import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Kafka's `group.*` broker configurations, with Kafka's defaults except for the initial delay.

    Attributes:
        initial_rebalance_delay_ms: how long the first rebalance of an empty group is held open (Kafka: 3000; here 0,
            so that a test's first poll does not take three seconds).
    """

    initial_rebalance_delay_ms: int = 0
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2_147_483_647


ResultT = TypeVar("ResultT", JoinResult, SyncResult)


class GroupCoordinator:
    """All classic groups of a cluster. Not thread-safe: the adapter calls it from one place.

    Args:
        config: limits and delays.
    """

    def __init__(self, config: GroupConfig | None = None) -> None:
        self.config = config or GroupConfig()
        self.groups: dict[str, ClassicGroup] = {}
        self._settled_groups: dict[str, None] = {}
        self._rebalancer = Rebalancer(self.config.initial_rebalance_delay_ms)

    # -- what an adapter asks around every call

    def take_completions(self) -> list[Completion]:
        """Answers that became due since the last call, each once."""
        completions, self._rebalancer.completions = self._rebalancer.completions, []
        return completions

    def take_settled(self) -> list[str]:
        """Groups that have become stable or empty, or are gone, since the last call."""
        settled = list(self._settled_groups)
        self._settled_groups.clear()  # groups hold it, too
        return settled

    def next_deadline_ms(self) -> int | None:
        """When `tick` next has something to do."""
        return self._rebalancer.timers.next_deadline_ms()

    def tick(self, now_ms: int) -> None:
        """Act on every deadline up to `now_ms`: expire members, close join and sync phases."""
        while (key := self._rebalancer.timers.pop_due(now_ms)) is not None:
            kind, group_id, member_id = key
            group = self.groups.get(group_id)
            if group is not None:
                self._rebalancer.deadline(group, kind, member_id, now_ms)

    def get_or_create(self, group_id: str) -> ClassicGroup:
        """The group, Empty when it is new."""
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id, settled=self._settled_groups)
        return self.groups[group_id]

    # -- requests

    def join(self, request: Join, fresh_id: str, now_ms: int) -> JoinResult | Pending:
        """JoinGroup.

        Args:
            request: the request.
            fresh_id: a random part for the member id, in case one has to be made.
            now_ms: the time.
        """
        error = self._validate_join(request)
        if error is not ErrorCode.NONE:
            return JoinResult(error, request.member_id)
        if request.group_id not in self.groups:
            self._settled_groups[request.group_id] = None
        group = self.get_or_create(request.group_id)
        if not self._accepts(group, request.member_id):
            group.remove(request.member_id)
            return JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)
        if not group.supports_protocols(request.protocol_type, [name for name, _ in request.protocols]):
            return JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        if request.member_id == UNKNOWN_MEMBER_ID:
            answer = self._join_new(group, request, fresh_id, now_ms)
        else:
            answer = self._join_existing(group, request, now_ms)
        if self._rebalancer.timers.deadline_ms(("join", group.group_id, "")) == now_ms:
            self.tick(now_ms)
        return self._settled(answer, JoinResult)

    def sync(self, request: Sync, now_ms: int) -> SyncResult | Pending:
        """SyncGroup; the leader's brings everybody's assignment."""
        if not request.group_id:
            return SyncResult(ErrorCode.INVALID_GROUP_ID)
        group = self.groups.get(request.group_id)
        if group is None or not group.members:
            return SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)
        error = validate_sync(group, request)
        if error is not ErrorCode.NONE:
            return SyncResult(error)
        if group.state is GroupState.PREPARING_REBALANCE:
            return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalancer.received_sync(group, request.member_id)
        member = group.members[request.member_id]
        if group.state is GroupState.STABLE:
            return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
        if member.sync_ticket is not None:
            self._rebalancer.complete_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        ticket = member.sync_ticket = self._rebalancer.next_ticket()
        if group.leader_id == request.member_id:
            self._rebalancer.set_assignments(group, dict(request.assignments), now_ms)
        return self._settled(Pending(ticket), SyncResult)

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        now_ms: int,
    ) -> ErrorCode:
        """Heartbeat: NONE, REBALANCE_IN_PROGRESS, or why the member is not one."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.validate_member(member_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalancer.reschedule_heartbeat(group, group.members[member_id], now_ms)
        preparing = group.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def leave(self, group_id: str, leavers: Iterable[Leaver], now_ms: int) -> list[ErrorCode] | ErrorCode:
        """LeaveGroup: one error per leaver, or one for the whole request."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.groups.get(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID for _ in leavers]
        errors = [self._leave_one(group, leaver) for leaver in leavers]
        if ErrorCode.NONE in errors:
            if group.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
                self._rebalancer.prepare_rebalance(group, now_ms)
            elif group.state is GroupState.PREPARING_REBALANCE:
                self._rebalancer.maybe_complete_join(group, now_ms)
        return errors

    # -- what committing and deleting have to ask

    def validate_offset_commit(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        now_ms: int,
        *,
        transactional: bool = False,
    ) -> ErrorCode:
        """Whether this member may commit; creates the group for a simple consumer, and counts as a heartbeat."""
        group = self.groups.get(group_id)
        if group is None:
            if generation_id >= 0:
                return ErrorCode.ILLEGAL_GENERATION
            group = self.get_or_create(group_id)
        error = validate_commit(group, member_id, group_instance_id, generation_id, transactional=transactional)
        if error is ErrorCode.NONE and not transactional and member_id in group.members:
            self._rebalancer.reschedule_heartbeat(group, group.members[member_id], now_ms)
        return error

    def validate_delete(self, group_id: str) -> ErrorCode:
        """Whether the group may be deleted: it exists and nobody is in it."""
        group = self.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def validate_offset_delete(self, group_id: str) -> ErrorCode:
        """Whether offsets of the group may be deleted (per topic it must not be subscribed either)."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups for one group; its offsets are the caller's to delete."""
        error = self.validate_delete(group_id)
        if error is ErrorCode.NONE:
            self.groups.pop(group_id).transition_to(GroupState.DEAD)
            self._rebalancer.timers.cancel(("join", group_id, ""))
            self._rebalancer.timers.cancel(("sync", group_id, ""))
        return error

    # -- groups that turn from one protocol to the other (KIP-848)

    def release(self, group_id: str) -> ClassicGroup:
        """Give a group away; whoever waits in it is told to join again."""
        group = self.groups.pop(group_id)
        self._rebalancer.release(group)
        self._settled_groups[group_id] = None
        return group

    def adopt(self, group: ClassicGroup, now_ms: int, *, rebalances: bool) -> None:
        """Take over a stable group, whose members are to join anew if it `rebalances`."""
        group.settled = self._settled_groups
        self.groups[group.group_id] = group
        self._rebalancer.adopt(group, now_ms)
        if rebalances:
            self._rebalancer.prepare_rebalance(group, now_ms)

    # -- joining

    def _settled(self, answer: ResultT | Pending, kind: type[ResultT]) -> ResultT | Pending:
        """The answer itself, if the request brought it about by itself."""
        if isinstance(answer, Pending):
            for position, completion in enumerate(self._rebalancer.completions):
                if completion.ticket == answer.ticket and isinstance(completion.result, kind):
                    del self._rebalancer.completions[position]
                    return completion.result
        return answer

    def _validate_join(self, request: Join) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        error = self.validate_session(request.session_timeout_ms)
        if error is not ErrorCode.NONE:
            return error
        if request.member_id != UNKNOWN_MEMBER_ID and request.group_id not in self.groups:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def validate_session(self, timeout_ms: int) -> ErrorCode:
        """Whether a member may ask for sessions of this length."""
        is_valid = self.config.min_session_timeout_ms <= timeout_ms <= self.config.max_session_timeout_ms
        return ErrorCode.NONE if is_valid else ErrorCode.INVALID_SESSION_TIMEOUT

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        member = group.members.get(member_id)
        if group.state in {GroupState.EMPTY, GroupState.DEAD}:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            waiting = member is not None and member.join_ticket is not None
            return waiting or group.awaiting_join() < self.config.max_size
        return member is not None or len(group.members) < self.config.max_size

    def _join_new(self, group: ClassicGroup, request: Join, fresh_id: str, now_ms: int) -> JoinResult | Pending:
        member_id = f"{request.group_instance_id or request.client_id}-{fresh_id}"
        if request.group_instance_id is not None:
            if request.group_instance_id in group.static_members:
                return self._rejoin_static(group, request, member_id, now_ms)
            return self._add_member(group, request, member_id, now_ms)
        if not request.requires_known_member_id:
            return self._add_member(group, request, member_id, now_ms)
        group.pending_join.add(member_id)
        self._rebalancer.timers.schedule(("heartbeat", group.group_id, member_id), now_ms + request.session_timeout_ms)
        return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)

    def _join_existing(self, group: ClassicGroup, request: Join, now_ms: int) -> JoinResult | Pending:
        member_id = request.member_id
        if member_id in group.pending_join and request.group_instance_id is None:
            return self._add_member(group, request, member_id, now_ms)
        error = group.validate_member(member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return JoinResult(error, member_id)
        member = group.members[member_id]
        unchanged = member.protocols == request.protocols
        leading = group.leader_id == member_id
        if group.state is GroupState.COMPLETING_REBALANCE and unchanged:
            return current_generation(group, member_id, with_members=leading)
        if group.state is GroupState.STABLE and unchanged and not leading:
            return current_generation(group, member_id, with_members=False)
        return self._update_member(group, member, request, now_ms)

    def _add_member(self, group: ClassicGroup, request: Join, member_id: str, now_ms: int) -> Pending:
        ticket = self._rebalancer.next_ticket()
        member = Member(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocol_type,
            request.protocols,
            is_new=True,
            join_ticket=ticket,
        )
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member)
        self._rebalancer.timers.schedule(("heartbeat", group.group_id, member_id), now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalancer.rebalance_or_complete_join(group, now_ms)
        return Pending(ticket)

    def _set_join(self, member: Member, request: Join) -> Pending:
        self._rebalancer.complete_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.join_ticket = self._rebalancer.next_ticket()
        return Pending(member.join_ticket)

    def _update_member(self, group: ClassicGroup, member: Member, request: Join, now_ms: int) -> Pending:
        pending = self._set_join(member, request)
        self._rebalancer.rebalance_or_complete_join(group, now_ms)
        return pending

    def _rejoin_static(self, group: ClassicGroup, request: Join, member_id: str, now_ms: int) -> JoinResult | Pending:
        """A static member has restarted: fence its former self; rebalance only if the protocol would change."""
        instance_id = request.group_instance_id or ""
        former_leader = group.leader_id or ""
        old, member = group.replace_static_member(instance_id, member_id)
        self._rebalancer.complete_join(old, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        self._rebalancer.complete_sync(old, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        self._rebalancer.timers.cancel(("heartbeat", group.group_id, old.member_id))
        if old.member_id in group.pending_sync:
            group.pending_sync.remove(old.member_id)
        self._rebalancer.reschedule_heartbeat(group, member, now_ms)
        pending = self._set_join(member, request)
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            member.join_ticket = None
            leading = group.leader_id == member_id
            if request.supports_skipping_assignment:
                return current_generation(group, member_id, with_members=leading, skip_assignment=leading)
            return current_generation(group, member_id, with_members=False, leader=former_leader)
        if group.state is GroupState.PREPARING_REBALANCE:
            self._rebalancer.maybe_complete_join(group, now_ms)
        else:
            self._rebalancer.prepare_rebalance(group, now_ms)
        return pending

    def _leave_one(self, group: ClassicGroup, leaver: Leaver) -> ErrorCode:
        member_id = leaver.member_id
        if member_id == UNKNOWN_MEMBER_ID:
            # An administrator removes a static member by its instance id alone.
            member_id = group.static_members.get(leaver.group_instance_id or "", UNKNOWN_MEMBER_ID)
        if member_id not in group.pending_join:
            error = group.validate_member(member_id, leaver.group_instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._rebalancer.remove_member(group, member_id)
        return ErrorCode.NONE
