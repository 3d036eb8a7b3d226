"""What has changed of a KIP-848 group since it was told last, as the records of Apache Kafka 4.3.1. Pure.

They come in Kafka's order: who has left, who is there, the group, what members are to have, what they have. What is
said of one member may be a megabyte: it is made in steps, and said only if the member is still as it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kclient_quota.broker.groups.assignors import Assignment, TopicIdPartition, by_topic_in_steps
from kclient_quota.broker.groups.consumer.group import (
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Topics,
)
from kclient_quota.broker.groups.consumer.topic_pattern import topic_pattern
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
from kclient_quota.broker.groups.in_steps import AT_ONCE, Steps, ordered, parts
from kclient_quota.broker.request.long.letting_go import let_go
from kclient_quota.wire.messages.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)

_PARTITION_METADATA = 4
"""A record type of brokers before 4.1, whose tombstone is still written."""
_STATES = {MemberState.STABLE: 0, MemberState.UNREVOKED_PARTITIONS: 1, MemberState.UNRELEASED_PARTITIONS: 2}

_Member = ConsumerGroupMemberMetadataValue
_Current = ConsumerGroupCurrentMemberAssignmentValue
_Target = ConsumerGroupTargetAssignmentMemberValue
_TargetEpoch = ConsumerGroupTargetAssignmentMetadataValue
_Regex = ConsumerGroupRegularExpressionValue
Epochs = dict[TopicIdPartition, int]
"""By partition the member epoch at which its member has got it."""


@dataclass(slots=True)
class ToldConsumerGroup:
    """A group as it was told last.

    Attributes:
        members: as their metadata was told.
        current: as their assignments were told.
        metadata: the group's own mapping, which it replaces and does not change.
        hashed: the hash of that.
        regexes: the topics that each regular expression stands for.
        since: of each member.
    """

    members: dict[str, ConsumerMember] = field(default_factory=dict)
    current: dict[str, ConsumerMember] = field(default_factory=dict)
    epoch: int = 0
    metadata: Topics | None = None
    hashed: int | None = None
    assignment_epoch: int = 0
    target: dict[str, Assignment] = field(default_factory=dict)
    regexes: dict[str, list[str]] = field(default_factory=dict)
    since: dict[str, Epochs] = field(default_factory=dict)


def farewell(told: ToldConsumerGroup, group_id: str) -> list[CoordinatorRecord]:
    """What is said of a group that is no more, or a classic one from now on."""
    names = everybody(told.members, told.current, told.target)
    return [
        *(tombstone(_Current, group_id, name) for name in names),
        *(tombstone(_Target, group_id, name) for name in names),
        tombstone(_TargetEpoch, group_id),
        *(tombstone(_Member, group_id, name) for name in names),
        *(tombstone(_Regex, group_id, regex) for regex in told.regexes),
        tombstone(_PARTITION_METADATA, group_id),
        tombstone(ConsumerGroupMetadataValue, group_id),
    ]


def changes(told: ToldConsumerGroup, group: ConsumerGroup, now_ms: int) -> Said:
    """What is to be said of a group; as far as it is taken, it is told by that."""
    of_members = told.members, told.current, told.target, told.since
    yield from departures((_Current, _Target, _Member), group.group_id, group.members, *of_members)
    yield from _members(told, group)
    yield from _regexes(told, group, now_ms)
    yield from _epoch(told, group)
    yield from _targets(told, group, now_ms)
    yield from _assignments(told, group)


def _members(told: ToldConsumerGroup, group: ConsumerGroup) -> Said:
    for name, member in list(group.members.items()):
        former = told.members.get(name)
        if former is member:
            continue
        is_new = former is None or _said(former) != _said(member)
        topics = (yield from names_of(_Member, (yield from ordered(member.topics, str)))) if is_new else []
        now = group.members.get(name)
        if now is None or _said(now) != _said(member):
            continue  # it has changed meanwhile, and is told of after this
        told.members[name] = now
        if is_new:
            yield record(_metadata(now, topics), group.group_id, name)


def _said(member: ConsumerMember) -> tuple[object, ...]:
    """What `_metadata` tells of."""
    who = member.instance_id, member.rack_id, member.client_id, member.client_host
    return *who, member.topics, member.regex, member.rebalance_timeout_ms, member.assignor, member.classic


def _metadata(member: ConsumerMember, topics: Any) -> _Member:
    classic = member.classic
    return _Member(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=topics,
        subscribed_topic_regex=member.regex or "",
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None
        if classic is None
        else _Member.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[_Member.ClassicProtocol(name=name, metadata=said) for name, said in classic.protocols],
        ),
    )


def _regexes(told: ToldConsumerGroup, group: ConsumerGroup, now_ms: int) -> Said:
    wanted = {member.regex for member in group.members.values() if member.regex}
    metadata = group.metadata
    if wanted == told.regexes.keys() and (not wanted or told.metadata is metadata):
        return
    for regex in told.regexes.keys() - wanted:
        del told.regexes[regex]
        yield tombstone(_Regex, group.group_id, regex)
    for regex in sorted(wanted):
        topics = yield from _matching(regex, metadata)
        if group.metadata is not metadata:
            return
        if told.regexes.get(regex) == topics:
            continue
        names = yield from names_of(_Regex, topics)
        if group.metadata is not metadata:
            return
        told.regexes[regex] = topics
        # Kafka: the offset of its metadata log as of which it was resolved
        yield record(_Regex(topics=names, version=group.epoch, timestamp=now_ms), group.group_id, regex)


def _matching(regex: str, metadata: Topics) -> Steps[list[str]]:
    pattern = topic_pattern(regex)
    found: list[str] = []
    for part in parts(metadata):
        found += filter(pattern.matches, part)
        if len(part) == AT_ONCE:
            yield
    return sorted(found)


def _epoch(told: ToldConsumerGroup, group: ConsumerGroup) -> Said:
    metadata: Topics = group.metadata if group.members else {}
    if told.epoch == group.epoch and told.metadata is metadata:
        return
    hashed = yield from metadata_hash(metadata)
    if metadata and metadata is not group.metadata:
        return
    is_told = (told.epoch, told.hashed) == (group.epoch, hashed)
    told.epoch, told.metadata, told.hashed = group.epoch, metadata, hashed
    if not is_told:
        yield record(ConsumerGroupMetadataValue(epoch=group.epoch, metadata_hash=hashed), group.group_id)


def _targets(told: ToldConsumerGroup, group: ConsumerGroup, now_ms: int) -> Said:
    assignment_epoch = group.assignment_epoch
    for name in list(group.members):
        target, former = group.target.get(name), told.target.get(name)
        if target is None or target is former:
            continue
        is_new = target != former
        rows = (yield from rows_of((yield from by_topic_in_steps(target)), _target_row)) if is_new else []
        if group.target.get(name) is not target or group.assignment_epoch != assignment_epoch:
            return  # there is another one for all, of which the group is told anew
        told.target[name] = target
        if is_new:
            yield record(_Target(topic_partitions=rows), group.group_id, name)
        held, former = [former], None
        yield from let_go(held)
        if group.assignment_epoch != assignment_epoch:
            return  # as above: the epoch is told of after its own targets
    if told.assignment_epoch != group.assignment_epoch:
        told.assignment_epoch = group.assignment_epoch
        epoch = _TargetEpoch(assignment_epoch=group.assignment_epoch, assignment_timestamp=now_ms)
        yield record(epoch, group.group_id)


def _target_row(topic_id: UUID, indexes: list[int]) -> _Target.TopicPartition:
    return _Target.TopicPartition(topic_id=topic_id, partitions=indexes)


def _assignments(told: ToldConsumerGroup, group: ConsumerGroup) -> Said:
    for name in list(group.members):
        member, former = group.members.get(name), told.current.get(name)
        if member is None or member is former:
            continue
        if former is not None and _has(former) == _has(member):
            told.current[name] = member
            continue
        since = yield from _since(told.since.get(name, {}), member)
        current = yield from _current(member, since)
        now = group.members.get(name)
        if now is None or _has(now) != _has(member):
            return  # it has changed meanwhile; a heartbeat that changes nothing is no reason to tell of it again
        told.since[name], told.current[name] = since, now
        yield record(current, group.group_id, name)


def _has(member: ConsumerMember) -> tuple[object, ...]:
    """What `_current` tells of."""
    return member.member_epoch, member.previous_epoch, member.state, member.assigned, member.revoking


def _since(former: Mapping[TopicIdPartition, int], member: ConsumerMember) -> Steps[Epochs]:
    if member.member_epoch == LEAVE_STATIC_EPOCH:
        # whoever takes its place has had them from the beginning
        return dict.fromkeys(member.assigned, 0)
    if not former:
        # no partition's hash is worked out again
        tps = member.assigned | member.revoking if member.revoking else member.assigned
        return dict.fromkeys(tps, member.member_epoch)
    found: Epochs = {}
    for part in parts(member.assigned | member.revoking):
        found.update((tp, former.get(tp, member.member_epoch)) for tp in part)
        if len(part) == AT_ONCE:
            yield
    return found


def _current(member: ConsumerMember, since: Epochs) -> Steps[_Current]:
    epochs = set(since.values())
    only = epochs.pop() if len(epochs) == 1 else None

    def row(topic_id: UUID, indexes: list[int]) -> _Current.TopicPartitions:
        known = [since[topic_id, index] for index in indexes] if only is None else [only] * len(indexes)
        return _Current.TopicPartitions(topic_id=topic_id, partitions=indexes, assignment_epochs=known)

    return _Current(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_epoch,
        state=_STATES[member.state],
        assigned_partitions=(yield from rows_of((yield from by_topic_in_steps(member.assigned)), row)),
        partitions_pending_revocation=(yield from rows_of((yield from by_topic_in_steps(member.revoking)), row)),
    )
