"""Share groups of KIP-932: heartbeats in, assignments out, time handed in. Pure.

Follows Kafka's `GroupMetadataManager.shareGroupHeartbeat` and its `simple` assignor: partitions may be shared, so
nobody has to give up anything before another gets it; whoever joins has its share at once.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kclient_quota.broker.groups.assignors import Assignment, TopicIdPartition
from kclient_quota.broker.groups.consumer_group import JOIN_EPOCH, LEAVE_EPOCH, NOTHING, Topics
from kclient_quota.broker.groups.consumer_requests import BeatResult
from kclient_quota.broker.timers import Timers
from kclient_quota.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """One group; `metadata` are the topics that its members read and that exist."""

    group_id: str
    epoch: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    target: dict[str, Assignment] = field(default_factory=dict)
    metadata: Topics = field(default_factory=dict)

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

    def heartbeat(self, beat: ShareBeat, topics: Topics, now_ms: int, *, is_taken: bool = False) -> BeatResult:
        """ShareGroupHeartbeat; `topics` are all that there are, `is_taken` if another's group has the name."""
        refused = _refused(beat)
        if refused is not None:
            return refused
        if is_taken:
            return BeatResult(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {beat.group_id} is not a share group.")
        group = self.groups.get(beat.group_id)
        if group is None and beat.member_epoch == JOIN_EPOCH:
            group = self.groups[beat.group_id] = ShareGroup(beat.group_id)
        if group is None:
            return BeatResult(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {beat.group_id} not found.")
        member = group.members.get(beat.member_id)
        if member is None:
            unwelcome = self._unwelcome(group, beat)
            return unwelcome or self._stays(group, ShareMember(beat.member_id), beat, topics, now_ms)
        if beat.member_epoch == LEAVE_EPOCH:
            self._remove(group, beat.member_id)
            return BeatResult(ErrorCode.NONE, None, beat.member_id, LEAVE_EPOCH)
        return _fenced(member, beat) or self._stays(group, member, beat, topics, now_ms)

    def _unwelcome(self, group: ShareGroup, beat: ShareBeat) -> BeatResult | None:
        """Why one who is no member yet does not become one."""
        if beat.member_epoch != JOIN_EPOCH:
            message = f"Member {beat.member_id} is not a member of group {beat.group_id}."
            return BeatResult(ErrorCode.UNKNOWN_MEMBER_ID, message)
        if len(group.members) >= self.config.max_size:
            message = f"The share group has reached its maximum capacity of {self.config.max_size} members."
            return BeatResult(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
        return None

    def _stays(
        self, group: ShareGroup, member: ShareMember, beat: ShareBeat, topics: Topics, now_ms: int
    ) -> BeatResult:
        is_new = member.member_id not in group.members
        wanted = member.topics if beat.topics is None else beat.topics
        changed = is_new or wanted != member.topics
        if (member.client_id, member.client_host, member.rack_id) != (beat.client_id, beat.client_host, beat.rack_id):
            self.touch(group.group_id)
        member.topics, member.client_id, member.client_host = wanted, beat.client_id, beat.client_host
        member.rack_id = beat.rack_id or member.rack_id
        group.members[member.member_id] = member
        named = {name for one in group.members.values() for name in one.topics}
        metadata = {name: topics[name] for name in sorted(named) if name in topics}
        if changed or metadata != group.metadata:
            group.metadata = metadata
            group.epoch += 1
            group.target = assigned(group)
        if member.epoch != group.epoch:
            member.previous_epoch, member.epoch = member.epoch, group.epoch
            self.touch(group.group_id)
        self._timers.schedule(
            (group.group_id, member.member_id), now_ms + self.config_of(group.group_id).session_timeout_ms
        )
        target = group.target.get(member.member_id, NOTHING)
        is_told = beat.member_epoch == JOIN_EPOCH or beat.topics is not None or target != member.told
        if target != member.told:
            self.touch(group.group_id)
        member.told = target
        return BeatResult(ErrorCode.NONE, None, member.member_id, member.epoch, target if is_told else None)

    def _remove(self, group: ShareGroup, member_id: str) -> None:
        self._timers.cancel((group.group_id, member_id))
        del group.members[member_id]
        group.epoch += 1
        group.target = assigned(group)
        self.touch(group.group_id)
        self.on_gone(group.group_id, member_id)


def assigned(group: ShareGroup) -> dict[str, Assignment]:
    """Every partition has somebody, members have as many as each other, as far as that goes."""
    found: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in group.members}
    for name, (topic_id, partitions) in group.metadata.items():
        readers = sorted(member_id for member_id, member in group.members.items() if name in member.topics)
        turns = max(partitions, len(readers))
        for position, reader in enumerate(readers):
            found[reader] += [(topic_id, turn % partitions) for turn in range(position, turns, len(readers))]
    return {member_id: frozenset(parts) for member_id, parts in found.items()}


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
