"""The two phases of a rebalance: everybody joins, then everybody gets an assignment; and who is dropped on the way.

Follows Kafka 4's `GroupMetadataManager` (`prepareRebalance`, `completeClassicGroupJoin`, `expirePendingSync`, ...).
"""

from itertools import count

from kclient_quota.broker.groups.classic.group import UNKNOWN_MEMBER_ID, ClassicGroup, GroupState, Member
from kclient_quota.broker.groups.classic.requests import Completion, JoinedMember, JoinResult, SyncResult
from kclient_quota.broker.groups.timers import Timers
from kclient_quota.wire.error_codes import ErrorCode

TimerKey = tuple[str, str, str]


class Rebalancer:
    """Moves groups through their phases; owns their deadlines and the answers that became due.

    Args:
        initial_rebalance_delay_ms: how long the first rebalance of an empty group is held open.
    """

    def __init__(self, initial_rebalance_delay_ms: int) -> None:
        self.timers: Timers[TimerKey] = Timers()
        self.completions: list[Completion] = []
        self._initial_rebalance_delay_ms = initial_rebalance_delay_ms
        self._tickets = count(1)

    def next_ticket(self) -> int:
        """A number under which an answer will be given."""
        return next(self._tickets)

    def deadline(self, group: ClassicGroup, kind: str, member_id: str, now_ms: int) -> None:
        """Act on one deadline that has passed: of a member's session, of a join phase or of a sync phase."""
        if kind == "heartbeat":
            self._expire_heartbeat(group, member_id, now_ms)
        elif kind == "join":
            self._join_deadline(group, now_ms)
        else:
            self._expire_pending_sync(group, now_ms)

    # -- the join phase

    def rebalance_or_complete_join(self, group: ClassicGroup, now_ms: int) -> None:
        """Start a rebalance, or, when one is under way, see whether everybody is there now."""
        if group.can_rebalance():
            self.prepare_rebalance(group, now_ms)
        else:
            self.maybe_complete_join(group, now_ms)

    def prepare_rebalance(self, group: ClassicGroup, now_ms: int) -> None:
        """Start the join phase; members that wait for their assignment are told to join again."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                if self.complete_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)):
                    self.reschedule_heartbeat(group, member, now_ms)
        group.pending_sync.clear()
        self.timers.cancel(("sync", group.group_id, ""))
        first = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE)
        if first:
            delay_ms = self._initial_rebalance_delay_ms
            group.initial_delay_ms = (delay_ms, max(group.rebalance_timeout_ms() - delay_ms, 0))
            self.timers.schedule(("join", group.group_id, ""), now_ms + delay_ms)
        elif group.has_all_members_joined():
            self._complete_join_phase(group, now_ms)
        else:
            self.timers.schedule(("join", group.group_id, ""), now_ms + group.rebalance_timeout_ms())

    def maybe_complete_join(self, group: ClassicGroup, now_ms: int) -> None:
        """End the join phase if nobody is missing (the first one only ends by its delay)."""
        preparing = group.state is GroupState.PREPARING_REBALANCE
        if preparing and group.previous_state is not GroupState.EMPTY and group.has_all_members_joined():
            self._complete_join_phase(group, now_ms)

    def _join_deadline(self, group: ClassicGroup, now_ms: int) -> None:
        if group.initial_delay_ms is not None:
            delay_ms, remaining_ms = group.initial_delay_ms
            if group.new_member_added and remaining_ms:
                group.new_member_added = False
                next_delay_ms = min(self._initial_rebalance_delay_ms, remaining_ms)
                group.initial_delay_ms = (next_delay_ms, max(remaining_ms - delay_ms, 0))
                self.timers.schedule(("join", group.group_id, ""), now_ms + next_delay_ms)
                return
        self._complete_join_phase(group, now_ms)

    def _complete_join_phase(self, group: ClassicGroup, now_ms: int) -> None:
        self.timers.cancel(("join", group.group_id, ""))
        group.initial_delay_ms = None
        missing = [m for m in group.members.values() if m.join_ticket is None and m.group_instance_id is None]
        for member in missing:
            self.remove_member(group, member.member_id)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left and none of them is back: wait for another round.
            self.timers.schedule(("join", group.group_id, ""), now_ms + group.rebalance_timeout_ms())
            return
        group.init_next_generation()
        for member in group.members.values():
            leading = group.leader_id == member.member_id
            self.complete_join(member, current_generation(group, member.member_id, with_members=leading))
            self.reschedule_heartbeat(group, member, now_ms)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        if group.members:
            self.timers.schedule(("sync", group.group_id, ""), now_ms + group.rebalance_timeout_ms())

    # -- the sync phase

    def received_sync(self, group: ClassicGroup, member_id: str) -> None:
        """Note that a member has sent its SyncGroup."""
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self.timers.cancel(("sync", group.group_id, ""))

    def set_assignments(self, group: ClassicGroup, assignments: dict[str, bytes], now_ms: int) -> None:
        """End the sync phase: hand out what the leader has decided, and be Stable."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            result = SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
            if self.complete_sync(member, result):
                self.reschedule_heartbeat(group, member, now_ms)
        group.transition_to(GroupState.STABLE)

    def _expire_pending_sync(self, group: ClassicGroup, now_ms: int) -> None:
        if group.pending_sync and group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
            for member_id in tuple(group.pending_sync):
                self.remove_member(group, member_id)
            self.prepare_rebalance(group, now_ms)

    # -- groups that come and go

    def release(self, group: ClassicGroup) -> None:
        """Forget a group's deadlines; whoever waits in it is told to join again."""
        for kind in ("join", "sync"):
            self.timers.cancel((kind, group.group_id, ""))
        for member_id in (*group.members, *group.pending_join):
            self.timers.cancel(("heartbeat", group.group_id, member_id))
        for member in group.members.values():
            self.complete_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            self.complete_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))

    def adopt(self, group: ClassicGroup, now_ms: int) -> None:
        """Watch over the sessions of a group's members."""
        for member in group.members.values():
            self.reschedule_heartbeat(group, member, now_ms)

    # -- members that go

    def remove_member(self, group: ClassicGroup, member_id: str) -> None:
        """Take a member out; what it still waits for is answered with UNKNOWN_MEMBER_ID."""
        self.timers.cancel(("heartbeat", group.group_id, member_id))
        member = group.remove(member_id)
        if member is not None:
            self.complete_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID))
            self.complete_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))

    def _expire_heartbeat(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        member = group.members.get(member_id)
        if member is not None and member.has_satisfied_heartbeat():
            return
        self.remove_member(group, member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            if group.has_all_members_joined():
                self._complete_join_phase(group, now_ms)
        elif member is not None:
            self.rebalance_or_complete_join(group, now_ms)

    # -- answers

    def reschedule_heartbeat(self, group: ClassicGroup, member: Member, now_ms: int) -> None:
        """A sign of life: its session ends a session time-out from now."""
        self.timers.schedule(("heartbeat", group.group_id, member.member_id), now_ms + member.session_timeout_ms)

    def complete_join(self, member: Member, result: JoinResult) -> None:
        """Answer the JoinGroup that `member` waits for, if it does."""
        if member.join_ticket is not None:
            self.completions.append(Completion(member.join_ticket, result))
            member.join_ticket = None

    def complete_sync(self, member: Member, result: SyncResult) -> bool:
        """Answer the SyncGroup that `member` waits for; whether it did."""
        if member.sync_ticket is None:
            return False
        self.completions.append(Completion(member.sync_ticket, result))
        member.sync_ticket = None
        return True


def current_generation(
    group: ClassicGroup,
    member_id: str,
    *,
    with_members: bool,
    skip_assignment: bool = False,
    leader: str | None = None,
) -> JoinResult:
    """The answer to a JoinGroup of a member of the running generation."""
    members = group.members.values() if with_members else ()
    return JoinResult(
        ErrorCode.NONE,
        member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        leader or group.leader_id or "",
        skip_assignment,
        tuple(JoinedMember(m.member_id, m.group_instance_id, m.metadata(group.protocol_name)) for m in members),
    )
