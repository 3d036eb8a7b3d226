"""Turning a group of classic members into one of KIP-848 and back, while its members go on (KIP-848's migration).

Follows Kafka 4's `ConsumerGroup.fromClassicGroup` and `ClassicGroup.fromConsumerGroup`.
"""

from collections.abc import Collection
from enum import StrEnum

from kclient_quota.broker.groups.assignors import Assignment
from kclient_quota.broker.groups.classic.embedded_protocol import (
    TopicIndex,
    read_assignment,
    read_subscription,
    write_assignment,
)
from kclient_quota.broker.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, GroupState, Member
from kclient_quota.broker.groups.consumer.group import (
    NOTHING,
    ClassicMemberMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Topics,
)
from kclient_quota.errors import ConfigError


class MigrationPolicy(StrEnum):
    """`group.consumer.migration.policy`: which groups may turn while they have members."""

    DISABLED = "disabled"
    DOWNGRADE = "downgrade"
    UPGRADE = "upgrade"
    BIDIRECTIONAL = "bidirectional"

    @classmethod
    def of(cls, value: str) -> "MigrationPolicy":
        """The policy of this name, in whatever case.

        Raises:
            ConfigError: there is none.
        """
        try:
            return cls(value.lower())
        except ValueError:
            known = ", ".join(cls)
            raise ConfigError(f"group.consumer.migration.policy={value!r}: use one of {known}") from None

    @property
    def upgrades(self) -> bool:
        """Whether a classic group may become one of KIP-848."""
        return self in {MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL}

    @property
    def downgrades(self) -> bool:
        """Whether a group of KIP-848 may become a classic one."""
        return self in {MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL}


def to_consumer_group(classic: ClassicGroup, topics: Topics) -> ConsumerGroup | None:
    """The same members with what they were assigned, all of them classic ones; None where a member cannot be read.

    Args:
        classic: a group of consumers.
        topics: the topics there are.
    """
    epoch = classic.generation_id
    group = ConsumerGroup(classic.group_id, epoch=epoch, assignment_epoch=epoch)
    protocol = classic.protocol_name
    if classic.members and classic.state not in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
        # who has joined since may not know the last generation's protocol
        protocol = classic.select_protocol()
    for one in classic.members.values():
        said, assigned = read_subscription(one.metadata(protocol)), read_assignment(one.assignment)
        if said is None or assigned is None:
            return None
        member = ConsumerMember(
            one.member_id,
            instance_id=one.group_instance_id,
            rack_id=said.rack_id,
            client_id=one.client_id,
            client_host=one.client_host,
            rebalance_timeout_ms=one.rebalance_timeout_ms,
            topics=said.topics,
            member_epoch=epoch,
            previous_epoch=epoch,
            state=MemberState.STABLE,
            assigned=partitions_by_id(assigned, topics),
            classic=ClassicMemberMetadata(one.session_timeout_ms, one.protocols, said.version),
        )
        group.put(member)
        group.target[one.member_id] = member.assigned
    return group


def to_classic_group(group: ConsumerGroup, leaving: Collection[str]) -> ClassicGroup:
    """The classic members with what they are to have, in a stable classic group.

    Args:
        group: where all members but the leaving ones are classic.
        leaving: ids of who is not in it any more.
    """
    classic = ClassicGroup(group.group_id, GroupState.STABLE, generation_id=group.epoch)
    for member in group.members.values():
        if member.member_id not in leaving:
            classic.add(_classic_member(group, member, group.target.get(member.member_id, NOTHING)))
    classic.protocol_name = classic.select_protocol()
    return classic


def _classic_member(group: ConsumerGroup, member: ConsumerMember, target: Assignment) -> Member:
    assert member.classic is not None
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.classic.session_timeout_ms,
        member.rebalance_timeout_ms,
        CONSUMER_PROTOCOL_TYPE,
        member.classic.protocols,
        write_assignment(member.classic.version, group.partitions_named(target)),
    )


def partitions_by_id(partitions: frozenset[TopicIndex], topics: Topics) -> Assignment:
    """Partitions by the ids of their topics, without those of topics that are gone."""
    return frozenset((topics[name][0], index) for name, index in partitions if name in topics)
