"""What has changed of a share group since it was told last, as the records of Apache Kafka 4.3.1. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from kclient_quota.broker.groups.assignors import Assignment, by_topic_in_steps
from kclient_quota.broker.groups.consumer.group import NOTHING, Topics
from kclient_quota.broker.groups.consumer.subscriptions import is_same
from kclient_quota.broker.groups.coordinator_record import (
    CoordinatorRecord,
    Said,
    departures,
    everybody,
    metadata_hash,
    names_of,
    record,
    rows_of,
    tombstone,
)
from kclient_quota.broker.groups.in_steps import Steps, gathered, ordered
from kclient_quota.broker.shares.share_group import ShareGroup, ShareMember
from kclient_quota.wire.messages.coordinator_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
)

_Member = ShareGroupMemberMetadataValue
_Current = ShareGroupCurrentMemberAssignmentValue
_Target = ShareGroupTargetAssignmentMemberValue
_TargetEpoch = ShareGroupTargetAssignmentMetadataValue
_States = ShareGroupStatePartitionMetadataValue
_STABLE = 0
Parts = Mapping[UUID, tuple[str, list[int]]]
"""Names of topics and the partitions of which a group has something."""


@dataclass(slots=True)
class ToldShareGroup:
    """A group as it was told last; `current` is epoch, epoch before and partitions of each member.

    Attributes:
        metadata: the group's own mapping, once its states were told; it replaces that and does not change it.
    """

    members: dict[str, tuple[object, ...]] = field(default_factory=dict)
    epoch: int = 0
    hashed: int | None = None
    assignment_epoch: int = 0
    target: dict[str, Assignment] = field(default_factory=dict)
    current: dict[str, tuple[int, int, Assignment]] = field(default_factory=dict)
    parts: Parts = field(default_factory=dict)
    metadata: Topics | None = None


def farewell(told: ToldShareGroup, group_id: str) -> list[CoordinatorRecord]:
    """What is said of a group that is no more."""
    names = everybody(told.members, told.target, told.current)
    return [
        *(tombstone(kind, group_id, name) for kind in (_Current, _Target) for name in names),
        tombstone(_TargetEpoch, group_id),
        *(tombstone(_Member, group_id, name) for name in names),
        tombstone(_States, group_id),
        tombstone(ShareGroupMetadataValue, group_id),
    ]


def changes(told: ToldShareGroup, group: ShareGroup, parts: Callable[[], Steps[Parts]] | None, now_ms: int) -> Said:
    """What is to be said of a group, which has something of these partitions; as far as it is taken, it is told."""
    of_members = told.members, told.target, told.current
    yield from departures((_Current, _Target, _Member), group.group_id, group.members, *of_members)
    yield from _members(told, group)
    yield from _epoch(told, group)
    yield from _targets(told, group, now_ms)
    yield from _assignments(told, group)
    if parts is not None:
        yield from _states(told, group, (yield from parts()))


def _members(told: ToldShareGroup, group: ShareGroup) -> Said:
    for name, member in list(group.members.items()):
        said = _said(member)
        if told.members.get(name) == said:
            continue
        topics = yield from names_of(_Member, (yield from ordered(member.topics, str)))
        now = group.members.get(name)
        if now is None or _said(now) != said:
            continue  # it has changed meanwhile, and is told of after this
        told.members[name] = said
        value = _Member(
            rack_id=now.rack_id,
            client_id=now.client_id,
            client_host=now.client_host,
            subscribed_topic_names=topics,
        )
        yield record(value, group.group_id, name)


def _said(member: ShareMember) -> tuple[object, ...]:
    """What is told of who a member is."""
    return member.rack_id, member.client_id, member.client_host, member.topics


def _epoch(told: ToldShareGroup, group: ShareGroup) -> Said:
    metadata: Topics = group.metadata if group.members else {}
    hashed = yield from metadata_hash(metadata)
    if metadata and metadata is not group.metadata:
        return
    if (told.epoch, told.hashed) != (group.epoch, hashed):
        told.epoch, told.hashed = group.epoch, hashed
        yield record(ShareGroupMetadataValue(epoch=group.epoch, metadata_hash=hashed), group.group_id)


def _targets(told: ToldShareGroup, group: ShareGroup, now_ms: int) -> Said:
    if not group.members or told.assignment_epoch == group.assignment_epoch:
        return
    epoch = group.assignment_epoch
    for name in list(group.members):
        target, former = group.target.get(name, NOTHING), told.target.get(name)
        if target is former:
            continue
        rows = yield from rows_of((yield from by_topic_in_steps(target)), _target_row)
        if (
            group.assignment_epoch != epoch
            or group.target.get(name, NOTHING) is not target
            or name not in group.members
        ):
            return
        told.target[name] = target
        yield record(_Target(topic_partitions=rows), group.group_id, name)
    told.assignment_epoch = epoch
    yield record(_TargetEpoch(assignment_epoch=epoch, assignment_timestamp=now_ms), group.group_id)


def _target_row(topic_id: UUID, indexes: list[int]) -> _Target.TopicPartition:
    return _Target.TopicPartition(topic_id=topic_id, partitions=indexes)


def _assignments(told: ToldShareGroup, group: ShareGroup) -> Said:
    for name in list(group.members):
        member = group.members.get(name)
        if member is None or told.current.get(name) == (current := _has(member)):
            continue
        epoch, previous_epoch, assigned = current
        rows = yield from rows_of((yield from by_topic_in_steps(assigned)), _current_row)
        if group.members.get(name) is not member or _has(member) != current:
            return
        told.current[name] = current
        value = _Current(
            member_epoch=epoch,
            previous_member_epoch=previous_epoch,
            state=_STABLE,
            assigned_partitions=rows,
        )
        yield record(value, group.group_id, name)


def _current_row(topic_id: UUID, indexes: list[int]) -> _Current.TopicPartitions:
    return _Current.TopicPartitions(topic_id=topic_id, partitions=indexes)


def _has(member: ShareMember) -> tuple[int, int, Assignment]:
    return member.epoch, member.previous_epoch, member.told or NOTHING


def _states(told: ToldShareGroup, group: ShareGroup, parts: Parts) -> Said:
    if (yield from is_same(parts, told.parts)):
        return

    def row(topic_id: UUID, indexes: list[int]) -> _States.TopicPartitionsInfo:
        return _States.TopicPartitionsInfo(topic_id=topic_id, topic_name=parts[topic_id][0], partitions=indexes)

    topics = yield from gathered((topic_id, indexes) for topic_id, (_, indexes) in parts.items())
    rows = yield from rows_of(topics, row)
    told.parts = parts
    yield record(_States(initialized_topics=rows), group.group_id)
