"""What the members of a KIP-848 group subscribe to, by name or by pattern."""

from uuid import UUID

from kclient_quota.broker.groups.consumer_group import ConsumerGroup, ConsumerMember, Topics
from kclient_quota.broker.groups.topic_pattern import topic_pattern


def subscribed_topics(group: ConsumerGroup, topics: Topics) -> dict[str, tuple[UUID, int]]:
    """Those of all topics that a member subscribes to."""
    names = frozenset[str]().union(*(member.topics for member in group.members.values()))
    if not any(member.regex for member in group.members.values()):
        return {name: topics[name] for name in names if name in topics}
    patterns = [topic_pattern(member.regex) for member in group.members.values() if member.regex]
    return {
        name: entry
        for name, entry in topics.items()
        if name in names or any(pattern.matches(name) for pattern in patterns)
    }


def subscriptions(group: ConsumerGroup) -> dict[str, frozenset[UUID]]:
    """Topic ids by member id."""
    found: dict[tuple[frozenset[str], str | None], frozenset[UUID]] = {}
    by_member = {}
    for name, member in group.members.items():
        # most members of a group ask for the same
        wanted = member.topics, member.regex
        if wanted not in found:
            found[wanted] = _topic_ids(member, group.metadata)
        by_member[name] = found[wanted]
    return by_member


def _topic_ids(member: ConsumerMember, metadata: Topics) -> frozenset[UUID]:
    pattern = topic_pattern(member.regex) if member.regex else None
    return frozenset(
        topic_id
        for name, (topic_id, _) in metadata.items()
        if name in member.topics or (pattern is not None and pattern.matches(name))
    )
