"""Share groups of KIP-932: heartbeats in, assignments out, time handed in. Pure.

Follows Kafka's `GroupMetadataManager.shareGroupHeartbeat` and its `simple` assignor: partitions may be shared, so
nobody has to give up anything before another gets it; whoever joins has its share at once. What grows with the topics
is done in steps.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kclient_quota.broker.groups.assignors import Assignment, TopicIdPartition
from kclient_quota.broker.groups.consumer.group import JOIN_EPOCH, LEAVE_EPOCH, NOTHING, Topics
from kclient_quota.broker.groups.consumer.requests import BeatResult
from kclient_quota.broker.groups.consumer.subscriptions import is_same, known_topics, subscribed_topics
from kclient_quota.broker.groups.in_steps import AT_ONCE, Steps, parts, same
from kclient_quota.broker.groups.timers import Timers
from kclient_quota.broker.request.long.letting_go import let_go
from kclient_quota.wire.error_codes import ErrorCode

ASSIGNOR: Final = "simple"
SHARE_PROTOCOL_TYPE: Final = "share"


@dataclass(frozen=True, slots=True)
class ShareGroupConfig:
    """Kafka's `group.share.*` broker configurations, with its defaults."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 200


@dataclass(slots=True)
class ShareMember:
    """One member; `told` is the assignment that it knows of."""

    member_id: str
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = 0
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    told: Assignment | None = None


@dataclass(slots=True)
class ShareGroup:
    """One group.

    Attributes:
        epoch: another one whenever members or what they read has changed.
        assignment_epoch: of which epoch the target is.
        target: partitions by member id.
        metadata: the topics that its members read and that exist; replaced, not changed.
        seen_topics: all topics there were when that was found out.
        seen_members: how many members there were then.
    """

    group_id: str
    epoch: int = 0
    assignment_epoch: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    target: dict[str, Assignment] = field(default_factory=dict)
    metadata: Topics = field(default_factory=dict)
    seen_topics: Topics | None = None
    seen_members: int = 0

    @property
    def state(self) -> str:
        """Empty or Stable, as Kafka shows it."""
        return "Stable" if self.members else "Empty"


@dataclass(frozen=True, slots=True)
class ShareBeat:
    """What a ShareGroupHeartbeat request says; None stands for "as before"."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] | None = None


class ShareGroupCoordinator:
    """All share groups of a cluster.

    Args:
        config: time-outs.

    Attributes:
        config_of: those of one group, by its id.
        groups: by id.
        on_gone: called with the ids of a group and of a member that has left or is given up.
    """

    def __init__(self, config: ShareGroupConfig) -> None:
        self.config = config
        self.config_of: Callable[[str], ShareGroupConfig] = lambda _group_id: self.config
        self.groups: dict[str, ShareGroup] = {}
        self.on_gone: Callable[[str, str], None] = lambda _group_id, _member_id: None
        self._timers: Timers[tuple[str, str]] = Timers()
        self._touched: dict[str, None] = {}

    def touch(self, group_id: str) -> None:
        """Say that something of a group has changed, or that it is gone."""
        self._touched[group_id] = None

    def take_touched(self) -> list[str]:
        """Groups of which something has changed since the last call."""
        touched = list(self._touched)
        self._touched.clear()
        return touched

    def next_deadline_ms(self) -> int | None:
        """When `tick` next has something to do."""
        return self._timers.next_deadline_ms()

    def tick(self, now_ms: int) -> None:
        """Give up members whose session has ended."""
        while (key := self._timers.pop_due(now_ms)) is not None:
            group = self.groups.get(key[0])
            if group is not None and key[1] in group.members:
                self._remove(group, key[1])

    def heartbeat(self, beat: ShareBeat, topics: Topics, now_ms: int, *, is_taken: bool = False) -> Steps[BeatResult]:
        """ShareGroupHeartbeat; between steps no other heartbeat of this group may begin.

        Args:
            beat: the request.
            topics: the topics there are; another object whenever anything of them has changed.
            now_ms: the time.
            is_taken: whether another's group has the name.
        """
        group = self._group(beat, is_taken=is_taken)
        if isinstance(group, BeatResult):
            return group
        member = group.members.get(beat.member_id)
        if member is not None and beat.member_epoch == LEAVE_EPOCH:
            self._remove(group, beat.member_id)
            return BeatResult(ErrorCode.NONE, None, beat.member_id, LEAVE_EPOCH)
        refused = self._unwelcome(group, beat) if member is None else _fenced(member, beat)
        if refused is not None:
            return refused
        return (yield from self._stays(group, member or ShareMember(beat.member_id), beat, topics, now_ms))

    def _group(self, beat: ShareBeat, *, is_taken: bool) -> ShareGroup | BeatResult:
        """The one that is meant, made if need be, or why there is none."""
        refused = _refused(beat)
        if refused is not None:
            return refused
        if is_taken:
            return BeatResult(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {beat.group_id} is not a share group.")
        if beat.member_epoch == JOIN_EPOCH:
            return self.groups.setdefault(beat.group_id, ShareGroup(beat.group_id))
        found = self.groups.get(beat.group_id)
        return found or BeatResult(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {beat.group_id} not found.")

    def _unwelcome(self, group: ShareGroup, beat: ShareBeat) -> BeatResult | None:
        """Why one who is no member yet does not become one."""
        if beat.member_epoch != JOIN_EPOCH:
            return _unknown(beat)
        if len(group.members) >= self.config.max_size:
            message = f"The share group has reached its maximum capacity of {self.config.max_size} members."
            return BeatResult(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
        return None

    def _stays(
        self, group: ShareGroup, member: ShareMember, beat: ShareBeat, topics: Topics, now_ms: int
    ) -> Steps[BeatResult]:
        there, wanted = group.members.get(member.member_id), member.topics
        if beat.topics is not None:
            wanted = yield from known_topics((one.topics for one in group.members.values()), beat.topics)
            if group.members.get(member.member_id) is not there:
                return _unknown(beat)
        changed = there is None or wanted != member.topics
        if (member.client_id, member.client_host, member.rack_id) != (beat.client_id, beat.client_host, beat.rack_id):
            self.touch(group.group_id)
        member.topics, member.client_id, member.client_host = wanted, beat.client_id, beat.client_host
        member.rack_id = beat.rack_id or member.rack_id
        group.members[member.member_id] = member
        self._timers.schedule(
            (group.group_id, member.member_id), now_ms + self.config_of(group.group_id).session_timeout_ms
        )
        if changed or group.seen_topics is not topics or group.seen_members != len(group.members):
            # most heartbeats meet what the last one met
            yield from _looked_for(group, topics, changed=changed)
        while group.epoch > group.assignment_epoch and self._has(group, member):
            yield from _assign(group)
        target = group.target.get(member.member_id, NOTHING)
        is_other = member.told is None or not (yield from same(target, member.told))
        if not self._has(group, member):
            # that it was lost was told of before the group had another epoch by it
            self.touch(group.group_id)
            return _unknown(beat)
        if member.epoch != group.assignment_epoch:
            member.previous_epoch, member.epoch = member.epoch, group.assignment_epoch
            self.touch(group.group_id)
        if is_other:
            self.touch(group.group_id)
        member.told = target
        is_told = beat.member_epoch == JOIN_EPOCH or beat.topics is not None or is_other
        return BeatResult(ErrorCode.NONE, None, member.member_id, member.epoch, target if is_told else None)

    def _has(self, group: ShareGroup, member: ShareMember) -> bool:
        """Whether the group is one still, and the member in it."""
        return self.groups.get(group.group_id) is group and group.members.get(member.member_id) is member

    def _remove(self, group: ShareGroup, member_id: str) -> None:
        """Take a member out; the next heartbeat of another finds the next assignment."""
        self._timers.cancel((group.group_id, member_id))
        del group.members[member_id]
        group.epoch += 1
        self.touch(group.group_id)
        self.on_gone(group.group_id, member_id)


def _looked_for(group: ShareGroup, topics: Topics, *, changed: bool) -> Steps[None]:
    """Find out which topics the group reads; of a change, or of others than before, there is another epoch."""
    members = len(group.members)
    metadata = yield from subscribed_topics(((one.topics, None) for one in group.members.values()), topics)
    if changed or not (yield from is_same(metadata, group.metadata)):
        group.metadata = metadata
        group.epoch += 1
    group.seen_topics, group.seen_members = topics, members


def _assign(group: ShareGroup) -> Steps[None]:
    """Compute the target assignment, unless the group is to have another by then."""
    epoch = group.epoch
    target = yield from assigned(group)
    if epoch == group.epoch:
        target, group.target = group.target, target
        group.assignment_epoch = epoch
    held = list(target.values())
    del target
    yield from let_go(held)


def assigned(group: ShareGroup) -> Steps[dict[str, Assignment]]:
    """Every partition has somebody, members have as many as each other, as far as that goes."""
    found: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in group.members}
    former = dict(group.target)
    wanted = {member_id: member.topics for member_id, member in group.members.items()}
    for part in parts(_readers(group.metadata, wanted)):
        for reader, tp in part:
            found[reader].add(tp)
        if len(part) == AT_ONCE:
            yield
    target = {}
    for member_id in wanted:
        made, before = frozenset(found.pop(member_id)), former.get(member_id)
        if before is not None and (yield from same(before, made)):
            # one object as long as it is the same: whoever has it need not compare it
            held = [made]
            made = before
            yield from let_go(held)
        elif len(made) >= AT_ONCE:
            yield
        target[member_id] = made
    return target


def _readers(metadata: Topics, wanted: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, TopicIdPartition]]:
    """Who is to read which partition: of each topic its readers in turn, until all of both have been named."""
    sets = {id(topics): topics for topics in wanted.values()}
    reading: dict[tuple[int, ...], list[str]] = {}
    for name, (topic_id, partitions) in metadata.items():
        which = tuple(each for each, topics in sets.items() if name in topics)
        readers = reading.get(which)
        if readers is None:
            readers = reading[which] = sorted(reader for reader, topics in wanted.items() if id(topics) in which)
        for turn in range(max(partitions, len(readers)) if readers else 0):
            yield readers[turn % len(readers)], (topic_id, turn % partitions)


def _unknown(beat: ShareBeat) -> BeatResult:
    return BeatResult(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {beat.member_id} is not a member of group {beat.group_id}.")


def _fenced(member: ShareMember, beat: ShareBeat) -> BeatResult | None:
    if beat.member_epoch in {JOIN_EPOCH, member.epoch, member.previous_epoch}:
        return None
    size = "greater" if beat.member_epoch > member.epoch else "smaller"
    return BeatResult(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {size} member epoch ({beat.member_epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _refused(beat: ShareBeat) -> BeatResult | None:
    for name, value in (("GroupId", beat.group_id), ("MemberId", beat.member_id), ("RackId", beat.rack_id)):
        if value is not None and not value.strip():
            return BeatResult(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if beat.member_epoch == JOIN_EPOCH and not beat.topics:
        return BeatResult(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    if beat.member_epoch < LEAVE_EPOCH:
        return BeatResult(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    return None
