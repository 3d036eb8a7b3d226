"""A classic consumer group as a value: members, protocols, states.

Follows Kafka 4's `ClassicGroup` and `ClassicGroupState`. Nothing here waits or looks at a clock: a member that waits
for an answer holds a ticket, and `broker.coordinator` hands the answer out under that ticket.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from kclient_quota.broker.groups.classic.embedded_protocol import read_subscription
from kclient_quota.wire.error_codes import ErrorCode

UNKNOWN_MEMBER_ID = ""
CONSUMER_PROTOCOL_TYPE = "consumer"

Protocols = tuple[tuple[str, bytes], ...]


class GroupState(StrEnum):
    """States of a classic group, by the names that DescribeGroups and ListGroups give."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES: Mapping[GroupState, frozenset[GroupState]] = MappingProxyType(
    {
        GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
        GroupState.PREPARING_REBALANCE: frozenset(
            {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY},
        ),
        GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
        GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
        GroupState.DEAD: frozenset(GroupState),
    },
)


_SETTLED = frozenset({GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD})


@dataclass(slots=True)
class Member:
    """One member of a classic group.

    Attributes:
        protocols: (name, metadata) in the member's order of preference.
        is_new: it has never completed a join; such a member may be expired while it waits.
        join_ticket: under which the answer to its JoinGroup is awaited, or None.
        sync_ticket: the same for SyncGroup.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join_ticket: int | None = None
    sync_ticket: int | None = None

    def metadata(self, protocol_name: str | None) -> bytes:
        """The metadata it gave for `protocol_name`; nothing, which cannot be read, for one that it does not know."""
        return dict(self.protocols).get(protocol_name or "", b"")

    def vote(self, candidates: frozenset[str]) -> str:
        """The first of its protocols that is a candidate."""
        return next(name for name, _ in self.protocols if name in candidates)

    def has_satisfied_heartbeat(self) -> bool:
        """Whether it waits for an answer from us, so that silence is no fault of its own."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)


@dataclass(slots=True)
class ClassicGroup:
    """Members and state of one group; raises `ValueError` on a transition that Kafka does not know.

    Attributes:
        settled: gets the group's name whenever it is stable, empty or dead.
        initial_delay_ms: (delay, remaining) while the very first rebalance is held open for more members.
        pending_join: ids handed out with MEMBER_ID_REQUIRED that have not come back yet.
        pending_sync: members of the running generation that have not sent SyncGroup yet.
    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.DEAD
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_join: set[str] = field(default_factory=set)
    pending_sync: set[str] = field(default_factory=set)
    new_member_added: bool = False
    initial_delay_ms: tuple[int, int] | None = None
    settled: dict[str, None] = field(default_factory=dict, repr=False)

    def transition_to(self, target: GroupState) -> None:
        """Move to `target` along the table `VALID_PREVIOUS_STATES`."""
        if self.state not in VALID_PREVIOUS_STATES[target]:
            raise ValueError(f"group {self.group_id}: {self.state} may not become {target}")
        self.previous_state, self.state = self.state, target
        if target in _SETTLED:
            self.settled[self.group_id] = None

    def can_rebalance(self) -> bool:
        """Whether a rebalance may start in this state."""
        return self.state in VALID_PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    def supports_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols has one in common with all the others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        return self.protocol_type == protocol_type and not self._supported_by_all().isdisjoint(names)

    def _supported_by_all(self) -> frozenset[str]:
        sets = [frozenset(name for name, _ in member.protocols) for member in self.members.values()]
        return frozenset.intersection(*sets) if sets else frozenset()

    def select_protocol(self) -> str:
        """The protocol with most votes among those that every member supports."""
        candidates = self._supported_by_all()
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def add(self, member: Member) -> None:
        """Take `member` in; the first one becomes leader."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.pending_join.discard(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Take a member, or a pending id, out; another member becomes leader if it was."""
        member = self.members.pop(member_id, None)
        if member is not None and member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)
        return member

    def replace_static_member(self, group_instance_id: str, new_member_id: str) -> tuple[Member, Member]:
        """Let a restarted static member take the place of its former self; returns (old, new)."""
        old_member_id = self.static_members[group_instance_id]
        old = self.members.pop(old_member_id)
        new = Member(
            new_member_id,
            group_instance_id,
            old.client_id,
            old.client_host,
            old.session_timeout_ms,
            old.rebalance_timeout_ms,
            old.protocol_type,
            old.protocols,
            old.assignment,
        )
        self.members[new_member_id] = new
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        self.static_members[group_instance_id] = new_member_id
        return old, new

    def validate_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if group_instance_id is not None:
            existing = self.static_members.get(group_instance_id)
            if existing is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if existing != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def awaiting_join(self) -> int:
        """How many members wait for the answer to their JoinGroup."""
        return sum(1 for member in self.members.values() if member.join_ticket is not None)

    def has_all_members_joined(self) -> bool:
        """Whether nobody is missing from the join phase."""
        return not self.pending_join and self.awaiting_join() == len(self.members)

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance time-out of any member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has rejoined, else choose one that has; False if nobody has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_ticket is None:
            joined = (member.member_id for member in self.members.values() if member.join_ticket is not None)
            elected = next(joined, None)
            if elected is None:
                return False
            self.leader_id = elected
        return True

    def init_next_generation(self) -> None:
        """Number the next generation and settle its protocol; without members the group is Empty."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY)
        self.pending_sync.clear()

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member of a consumer group reads `topic`; True when its metadata cannot be read."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or not self.members:
            return False
        if self.protocol_name is None:
            return True
        said = [read_subscription(member.metadata(self.protocol_name)) for member in self.members.values()]
        return any(subscription is None or topic in subscription.topics for subscription in said)
