"""The coordinator of KIP-848's consumer groups: heartbeats in, assignments out, time handed in.

Follows Kafka 4's `GroupMetadataManager.consumerGroupHeartbeat`. Every heartbeat looks at the topics afresh, so new
topics and partitions are assigned with the next one. Nothing waits: a member learns of its next step with its next
heartbeat.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kclient_quota.broker.groups.assignors import Assignment
from kclient_quota.broker.groups.consumer.group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NOTHING,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Topics,
)
from kclient_quota.broker.groups.consumer.requests import Beat, BeatResult, Refused, check_epoch, validate
from kclient_quota.broker.groups.consumer.subscriptions import (
    is_same,
    known_topics,
    partitions_of,
    subscribed_topics,
    subscriptions,
)
from kclient_quota.broker.groups.in_steps import Steps
from kclient_quota.broker.groups.migration import MigrationPolicy, to_classic_group
from kclient_quota.broker.groups.timers import Timers
from kclient_quota.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient_quota.broker.groups.classic.group import ClassicGroup

_TIMERS = ("session", "rebalance", "join", "sync")


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """Kafka's `group.consumer.*` broker configurations, with its defaults."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2_147_483_647
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    max_classic_size: int = 2_147_483_647


class ConsumerGroupCoordinator:
    """All KIP-848 groups of a cluster.

    Args:
        config: time-outs.
        config_of: those of one group, by its id, where they may differ.
        upgraded: the group that a classic one becomes when a member of the new protocol joins it; None for none.
        displace: called before a new group takes its name, which a classic one may have had.
    """

    def __init__(self, config: ConsumerGroupConfig | None = None) -> None:
        self.config = config or ConsumerGroupConfig()
        self.config_of: Callable[[str], ConsumerGroupConfig] = lambda _group_id: self.config
        self.groups: dict[str, ConsumerGroup] = {}
        self._timers: Timers[tuple[str, str, str]] = Timers()
        self.upgraded: Callable[[str], ConsumerGroup | None] = lambda _group_id: None
        self.displace: Callable[[str], None] = lambda _group_id: None
        self._turned: list[tuple[ClassicGroup, bool]] = []
        self._touched: dict[str, None] = {}

    def touch(self, group_id: str) -> None:
        """Say that something of a group has changed, or that it is gone."""
        self._touched[group_id] = None

    def take_touched(self) -> list[str]:
        """Groups of which something has changed since the last call."""
        if not self._touched:
            return []
        touched = list(self._touched)
        self._touched.clear()
        return touched

    def take_turned(self) -> list[tuple["ClassicGroup", bool]]:
        """Groups that have become classic ones since the last call, and whether their members are to join anew."""
        turned, self._turned = self._turned, []
        return turned

    def _adopt(self, group: ConsumerGroup, now_ms: int) -> None:
        self.displace(group.group_id)
        self.groups[group.group_id] = group
        self.touch(group.group_id)
        for member in group.members.values():
            self.schedule(group, member, now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `tick` next has something to do."""
        return self._timers.next_deadline_ms()

    def tick(self, now_ms: int) -> None:
        """Fence members whose session has ended, or that have not given up partitions in time."""
        while (key := self._timers.pop_due(now_ms)) is not None:
            _, group_id, member_id = key
            group = self.groups.get(group_id)
            if group is not None and member_id in group.members:
                self.remove(group, member_id)

    def heartbeat(self, beat: Beat, fresh_id: str, topics: Topics, now_ms: int) -> Steps[BeatResult]:
        """ConsumerGroupHeartbeat; between steps no other heartbeat of this group may begin.

        Args:
            beat: the request.
            fresh_id: a member id, in case the member has none.
            topics: the topics there are; another object whenever anything of them has changed.
            now_ms: the time.
        """
        try:
            validate(beat)
            if beat.member_epoch in {LEAVE_EPOCH, LEAVE_STATIC_EPOCH}:
                return self._leave(beat)
            return (yield from self._beat(beat, fresh_id, topics, now_ms))
        except Refused as refused:
            return refused.result

    def _beat(self, beat: Beat, fresh_id: str, topics: Topics, now_ms: int) -> Steps[BeatResult]:
        group = self._group(beat)
        member = self._member(group, beat, beat.member_id or fresh_id)
        if beat.group_id not in self.groups:
            # only now: a heartbeat that is refused leaves a classic group of this name as it is
            self._adopt(group, now_ms)
        # whatever becomes of the steps: it is not there for good
        self.schedule(group, member, now_ms)
        updated = yield from self.advance(group, member, _update(member, beat), beat.owned, topics)
        if updated is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} is not a member of {beat.group_id}.")
        self.schedule(group, updated, now_ms)
        told = updated.assigned if beat.is_full or updated.assigned != member.assigned else None
        return BeatResult(ErrorCode.NONE, None, updated.member_id, updated.member_epoch, told)

    def advance(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        owned: Assignment | None,
        topics: Topics,
    ) -> Steps[ConsumerMember | None]:
        """Let a member be in its group as it is now, and take its next step.

        Between steps others may leave, or lose their sessions, and so may this one.

        Args:
            group: the group; gets a new target assignment, if anything of it has changed.
            member: as it was.
            updated: as it is.
            owned: partitions the member says it has; None when it says nothing new.
            topics: the topics there are.

        Returns:
            The member after the step; None if it is none any more.
        """
        if updated.topics is not member.topics:
            there = group.members.get(member.member_id)
            others = (one.topics for one in group.members.values())
            updated = replace(updated, topics=(yield from known_topics(others, updated.topics)))
            if group.members.get(member.member_id) is not there:
                return None
        changed = member.member_id not in group.members
        changed |= (updated.topics, updated.regex) != (member.topics, member.regex)
        group.put(updated)
        if changed or group.seen_topics is not topics or group.seen_members != len(group.members):
            # most heartbeats meet what the last one met
            members = len(group.members)
            subscribed = ((one.topics, one.regex) for one in group.members.values())
            metadata = yield from subscribed_topics(subscribed, topics)
            if changed or not (yield from is_same(metadata, group.metadata)):
                group.metadata = metadata
                group.epoch += 1
                changed = True
            group.seen_topics, group.seen_members = topics, members
        while group.epoch > group.assignment_epoch and self._has(group, updated):
            epoch = group.epoch
            partitions = yield from partitions_of(group.metadata)
            yield from group.update_target(epoch, (yield from subscriptions(group)), partitions)
            changed = True
        if not self._has(group, updated):
            return None
        updated = group.reconcile(updated, owned)
        group.put(updated)
        if changed or updated != member:
            self.touch(group.group_id)
        return updated

    def _has(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        """Whether the group is one still, and the member in it as it was put there."""
        return self.groups.get(group.group_id) is group and group.members.get(member.member_id) is member

    def _group(self, beat: Beat) -> ConsumerGroup:
        group = self.groups.get(beat.group_id)
        if group is None and beat.member_epoch == JOIN_EPOCH:
            group = self.upgraded(beat.group_id) or ConsumerGroup(beat.group_id)
        if group is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {beat.group_id} not found.")
        if beat.member_id not in group.members and len(group.members) >= self.config.max_size:
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "The consumer group has reached its maximum capacity.")
        return group

    def _member(self, group: ConsumerGroup, beat: Beat, member_id: str) -> ConsumerMember:
        if beat.instance_id is not None:
            return self._static_member(group, beat, beat.instance_id, member_id)
        member = group.members.get(member_id)
        if beat.member_epoch == JOIN_EPOCH:
            # A member that was fenced comes back under its id, having given up everything.
            return ConsumerMember(member_id)
        if member is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of {group.group_id}.")
        return check_epoch(member, beat)

    def _static_member(self, group: ConsumerGroup, beat: Beat, instance_id: str, member_id: str) -> ConsumerMember:
        former_id = group.static_members.get(instance_id)
        former = None if former_id is None else group.members[former_id]
        if beat.member_epoch == JOIN_EPOCH:
            if former is None or former.member_id == member_id:
                return ConsumerMember(member_id)
            if former.member_epoch != LEAVE_STATIC_EPOCH and former.classic is None:
                raise Refused(ErrorCode.UNRELEASED_INSTANCE_ID, f"Static member {instance_id} is still in use.")
            return self.replace_static(group, former, member_id)
        if former is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if former.member_id != member_id:
            raise Refused(ErrorCode.FENCED_INSTANCE_ID, f"Static member {instance_id} is fenced by another member.")
        return check_epoch(former, beat)

    def replace_static(self, group: ConsumerGroup, former: ConsumerMember, member_id: str) -> ConsumerMember:
        """Let a returning static member take over what its former self had."""
        self.cancel(group, former.member_id)
        self.touch(group.group_id)
        return group.replace_static(former, member_id)

    def _leave(self, beat: Beat) -> BeatResult:
        group = self.groups.get(beat.group_id)
        member = None if group is None else group.members.get(beat.member_id)
        if group is None or member is None:
            known = group is not None and beat.instance_id in group.static_members
            error = ErrorCode.FENCED_INSTANCE_ID if known else ErrorCode.UNKNOWN_MEMBER_ID
            raise Refused(error, f"Member {beat.member_id} is not a member of group {beat.group_id}.")
        if beat.member_epoch == LEAVE_STATIC_EPOCH:
            group.put(replace(member, member_epoch=LEAVE_STATIC_EPOCH, revoking=NOTHING))
            self.touch(group.group_id)
        else:
            self.remove(group, member.member_id)
        return BeatResult(ErrorCode.NONE, None, member.member_id, beat.member_epoch)

    # -- what committing has to ask

    def validate_epoch(self, group: ConsumerGroup, member_id: str, member_epoch: int) -> ErrorCode:
        """Whether the member may commit, or read with its epoch; outsiders only when nobody is in the group."""
        if member_epoch < 0 and not group.members:
            return ErrorCode.NONE
        member = group.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.member_epoch == member_epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION

    # -- deadlines

    def schedule(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        """A sign of life: its session ends a session time-out from now, its rebalance when it takes too long."""
        timeout_ms = self.config_of(group.group_id).session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self._timers.schedule(("session", group.group_id, member.member_id), now_ms + timeout_ms)
        if member.state is not MemberState.UNREVOKED_PARTITIONS or member.classic is not None:
            self._timers.cancel(("rebalance", group.group_id, member.member_id))
        else:
            self.expect("rebalance", group, member, now_ms)

    def expect(self, kind: str, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        """Give the member up if it has not got to something within its rebalance time-out from when that began."""
        key = kind, group.group_id, member.member_id
        if self._timers.deadline_ms(key) is None:
            self._timers.schedule(key, now_ms + member.rebalance_timeout_ms)

    def cancel(self, group: ConsumerGroup, member_id: str, kinds: Collection[str] = _TIMERS) -> None:
        """Forget deadlines of a member."""
        for kind in kinds:
            self._timers.cancel((kind, group.group_id, member_id))

    def remove(self, group: ConsumerGroup, *leaving: str) -> None:
        """Take members out of their group, all at once; it is a classic one if only classic members are left."""
        self.touch(group.group_id)
        if leaving and self.may_turn_classic(group, leaving):
            self.turn_classic(group, leaving)
            return
        for member_id in leaving:
            self.cancel(group, member_id)
            group.remove(member_id)

    # -- groups that turn from one protocol to the other

    def may_turn_classic(self, group: ConsumerGroup, leaving: Collection[str]) -> bool:
        """Whether only classic members are left, without those that leave, and the group may be one of theirs."""
        return (
            group.is_classic_without(leaving)
            and self.config.migration_policy.downgrades
            and len(group.members) - len(leaving) <= self.config.max_classic_size
        )

    def turn_classic(self, group: ConsumerGroup, leaving: Collection[str]) -> None:
        """Give a group away as a classic one; its members are to join anew if any leaves."""
        for member_id in group.members:
            self.cancel(group, member_id)
        del self.groups[group.group_id]
        self.touch(group.group_id)
        self._turned.append((to_classic_group(group, leaving), bool(leaving)))


def _update(member: ConsumerMember, beat: Beat) -> ConsumerMember:
    return replace(
        member,
        instance_id=beat.instance_id or member.instance_id,
        rack_id=beat.rack_id or member.rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if beat.rebalance_timeout_ms == -1
        else beat.rebalance_timeout_ms,
        topics=member.topics if beat.topics is None else beat.topics,
        regex=member.regex if beat.regex is None else beat.regex or None,
        assignor=beat.assignor or member.assignor,
        classic=None,
    )
