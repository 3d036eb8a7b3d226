"""What the members of a KIP-848 group subscribe to, by name or by pattern; in steps, as there may be very much."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from kclient_quota.broker.groups.consumer.group import ConsumerGroup, Topics
from kclient_quota.broker.groups.consumer.topic_pattern import topic_pattern
from kclient_quota.broker.groups.in_steps import AT_ONCE, ItemT, KeyT, Steps, mapping, parts, same

Wanted = tuple[frozenset[str], str | None]
"""Names and pattern; most members of a group ask for the same."""


def known_topics(subscribed: Iterable[frozenset[str]], names: frozenset[str]) -> Steps[frozenset[str]]:
    """The very set that a member subscribes to already, where there is one with these names.

    Members mostly subscribe to the same. Who finds one object in all of them needs not compare 100,000 names of each;
    sets that are not the same are told apart by their hashes, which each of them keeps.
    """
    for topics in {id(topics): topics for topics in subscribed}.values():
        if (yield from same(topics, names)):
            return topics
    return names


def subscribed_topics(subscribed: Iterable[Wanted], topics: Topics) -> Steps[dict[str, tuple[UUID, int]]]:
    """Those of all topics that a member subscribes to."""
    wanted = dict.fromkeys(subscribed)
    found: dict[str, tuple[UUID, int]] = {}
    for names in {names: None for names, _ in wanted}:
        for part in parts(names):
            found.update((name, topics[name]) for name in part if name in topics)
            if len(part) == AT_ONCE:
                yield
    patterns = [topic_pattern(regex) for regex in {regex: None for _, regex in wanted} if regex]
    for entries in parts(topics.items() if patterns else ()):
        found.update(entry for entry in entries if any(pattern.matches(entry[0]) for pattern in patterns))
        if len(entries) == AT_ONCE:
            yield
    return found


def is_same(metadata: Mapping[KeyT, ItemT], former: Mapping[KeyT, ItemT]) -> Steps[bool]:
    """Whether these are the same topics, with the same partitions each."""
    if len(metadata) != len(former):
        return False
    for part in parts(metadata.items()):
        if any(former.get(name) != entry for name, entry in part):
            return False
        if len(part) == AT_ONCE:
            yield
    return True


def subscriptions(group: ConsumerGroup) -> Steps[dict[str, frozenset[UUID]]]:
    """Topic ids by member id."""
    metadata = group.metadata
    by_member: dict[str, Wanted] = {name: (member.topics, member.regex) for name, member in group.members.items()}
    found: dict[Wanted, frozenset[UUID]] = {}
    for wanted in by_member.values():
        if wanted not in found:
            found[wanted] = yield from _topic_ids(wanted, metadata)
    return {name: found[wanted] for name, wanted in by_member.items()}


def _topic_ids(wanted: Wanted, metadata: Topics) -> Steps[frozenset[UUID]]:
    names, regex = wanted
    pattern = topic_pattern(regex) if regex else None
    found: set[UUID] = set()
    for part in parts(metadata.items()):
        found.update(
            topic_id for name, (topic_id, _) in part if name in names or (pattern is not None and pattern.matches(name))
        )
        if len(part) == AT_ONCE:
            yield
    return frozenset(found)


def partitions_of(metadata: Topics) -> Steps[dict[UUID, int]]:
    """Numbers of partitions by topic id."""
    return (yield from mapping(metadata.values()))
