"""A consumer group of KIP-848 as a value: members with epochs, target assignment, reconciliation.

Follows Kafka 4's `ConsumerGroup`, `ConsumerGroupMember` and `CurrentAssignmentBuilder`.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from uuid import UUID

from kclient_quota.broker.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Assignment
from kclient_quota.broker.groups.classic.group import CONSUMER_PROTOCOL_TYPE, Protocols
from kclient_quota.broker.groups.in_steps import Steps
from kclient_quota.broker.request.long.letting_go import let_go

JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2
NOTHING: Assignment = frozenset()

Topics = Mapping[str, tuple[UUID, int]]
"""Id and number of partitions by topic name."""


class MemberState(StrEnum):
    """How far a member is on its way to the target assignment."""

    STABLE = "stable"
    UNREVOKED_PARTITIONS = "unrevoked_partitions"
    UNRELEASED_PARTITIONS = "unreleased_partitions"


@dataclass(frozen=True, slots=True)
class ClassicMemberMetadata:
    """What is known of a member that speaks the classic protocol, by Kafka's name.

    Attributes:
        protocols: (name, metadata) in the member's order of preference.
        version: of the embedded protocol, as it speaks it.
    """

    session_timeout_ms: int
    protocols: Protocols
    version: int


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member.

    Attributes:
        member_epoch: of the target assignment it has taken over; -2 for a static member that is away.
        previous_epoch: the epoch before, which a lost answer may make it repeat.
        topics: names it subscribes to.
        regex: a regular expression it subscribes to, or None.
        assigned: partitions it may read.
        revoking: partitions it still has to give up.
        classic: of a member that speaks the classic protocol; else None.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    regex: str | None = None
    assignor: str | None = None
    member_epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Assignment = NOTHING
    revoking: Assignment = NOTHING
    classic: ClassicMemberMetadata | None = None

    def at_epoch(self, epoch: int) -> "ConsumerMember":
        """The member with another epoch, its former one remembered."""
        if epoch == self.member_epoch:
            return self
        return replace(self, member_epoch=epoch, previous_epoch=self.member_epoch)


@dataclass(slots=True)
class ConsumerGroup:
    """Members and assignments of one group.

    Attributes:
        epoch: raised whenever members, subscriptions or topics change.
        assignment_epoch: the group epoch that `target` was computed for.
        target: by member id.
        metadata: the subscribed topics as they were when the group last looked.
        seen_topics: all topics as they were then; another object when anything has changed.
        seen_members: how many members there were then.
    """

    group_id: str
    epoch: int = 0
    assignment_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    target: dict[str, Assignment] = field(default_factory=dict)
    metadata: dict[str, tuple[UUID, int]] = field(default_factory=dict)
    seen_topics: Mapping[str, tuple[UUID, int]] | None = None
    seen_members: int = 0

    @property
    def state(self) -> str:
        """Empty, Assigning, Reconciling or Stable, as Kafka shows it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        return "Stable" if all(self.is_reconciled(member) for member in self.members.values()) else "Reconciling"

    @property
    def assignor(self) -> str:
        """The assignor most members ask for."""
        wanted = [member.assignor for member in self.members.values() if member.assignor is not None]
        return max(sorted(set(wanted)), key=wanted.count, default=DEFAULT_ASSIGNOR)

    def is_reconciled(self, member: ConsumerMember) -> bool:
        """Whether the member has its whole target assignment and nothing else."""
        return member.state is MemberState.STABLE and member.member_epoch == self.assignment_epoch

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads `topic`."""
        return topic in self.metadata

    def is_classic_without(self, leaving: Collection[str]) -> bool:
        """Whether, but for these, there are members that speak the classic protocol, and no others."""
        others = [member for name, member in self.members.items() if name not in leaving]
        return bool(others) and all(member.classic is not None for member in others)

    def supports_classic(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a classic member with these protocols has one in common with all the other classic ones."""
        sides = [member.classic for member in self.members.values() if member.classic is not None]
        common = [name for name in names if all(name in dict(side.protocols) for side in sides)]
        return protocol_type == CONSUMER_PROTOCOL_TYPE and bool(common)

    def may_go_on(self, member: ConsumerMember) -> bool:
        """Whether all that the member waits for has been given up by others."""
        missing = self.target.get(member.member_id, NOTHING) - member.assigned
        return all(map(missing.isdisjoint, self._held()))

    def partitions_named(self, assigned: Assignment) -> list[tuple[str, int]]:
        """Partitions by the names that their topics have."""
        names = {topic_id: name for name, (topic_id, _) in self.metadata.items()}
        return [(names[topic_id], index) for topic_id, index in assigned if topic_id in names]

    def put(self, member: ConsumerMember) -> None:
        """Add or update a member; one that comes back with another instance id, or none, gives up the former."""
        former = self.members.get(member.member_id)
        if former is not None and former.instance_id not in {None, member.instance_id}:
            self._forget_instance(former)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        """Take a member out; the next assignment is for the others."""
        member = self.members.pop(member_id)
        self._forget_instance(member)
        self.target.pop(member_id, None)
        self.epoch += 1

    def _forget_instance(self, member: ConsumerMember) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def replace_static(self, former: ConsumerMember, member_id: str) -> ConsumerMember:
        """Let a returning static member take over what its former self had."""
        del self.members[former.member_id]
        member = replace(former, member_id=member_id, member_epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        self.put(member)
        if former.member_id in self.target:
            self.target[member_id] = self.target.pop(former.member_id)
        return member

    def update_target(
        self, epoch: int, subscriptions: Mapping[str, frozenset[UUID]], partitions: Mapping[UUID, int]
    ) -> Steps[None]:
        """Compute the target assignment for an epoch, unless the group has another by then."""
        if epoch != self.epoch:
            return
        target = yield from ASSIGNORS[self.assignor](subscriptions, partitions, self.target)
        if epoch == self.epoch:
            former = list(self.target.values())
            self.target, self.assignment_epoch = target, epoch
            yield from let_go(former)

    def reconcile(self, member: ConsumerMember, owned: Assignment | None) -> ConsumerMember:
        """The member's next step towards its target.

        Args:
            member: as it is.
            owned: partitions the member says it has; None when it says nothing new.
        """
        if self.is_reconciled(member):
            return member
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            if owned is None or owned & member.revoking:
                return member
            return self._next_step(member, member.member_epoch + 1, owned)
        return self._next_step(member, member.member_epoch, owned)

    def _next_step(self, member: ConsumerMember, epoch: int, owned: Assignment | None) -> ConsumerMember:
        target = self.target.get(member.member_id, NOTHING)
        kept = member.assigned & target
        revoking = member.assigned - kept
        missing = target - kept
        if revoking and (owned is None or owned & revoking):
            waiting = replace(member, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking)
            return waiting.at_epoch(epoch)
        released = missing.difference(*self._held()) if missing else missing
        state = MemberState.STABLE if len(released) == len(missing) else MemberState.UNRELEASED_PARTITIONS
        moved = replace(member, state=state, assigned=kept | released, revoking=NOTHING)
        return moved.at_epoch(self.assignment_epoch)

    def _held(self) -> Iterator[Assignment]:
        """Partitions that members have, or have not given up yet; each in sets whose hashes need not be worked out."""
        for member in self.members.values():
            yield member.assigned
            yield member.revoking
