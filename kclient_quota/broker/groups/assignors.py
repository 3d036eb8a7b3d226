"""Server-side assignors of KIP-848: which member gets which partitions.

Kafka's names; its algorithms are not copied line by line. `uniform` keeps what members have as far as balance allows
and differs by at most one partition among members that may read the same topics; `range` gives each member neighbouring
partitions of every topic.
"""

from collections.abc import Callable, Mapping
from heapq import nlargest
from uuid import UUID

TopicIdPartition = tuple[UUID, int]
Assignment = frozenset[TopicIdPartition]
Subscriptions = Mapping[str, frozenset[UUID]]
"""Topic ids by member id."""

Assignor = Callable[[Subscriptions, Mapping[UUID, int], Mapping[str, Assignment]], dict[str, Assignment]]
"""(subscriptions, partitions by topic, assignment so far) to the new assignment."""


def by_topic(assigned: Assignment) -> list[tuple[UUID, list[int]]]:
    """Topic ids and their partitions, sorted, as answers have them."""
    found: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(assigned):
        found.setdefault(topic_id, []).append(index)
    return list(found.items())


def assign_uniform(
    subscriptions: Subscriptions, partitions: Mapping[UUID, int], current: Mapping[str, Assignment]
) -> dict[str, Assignment]:
    """Spread partitions evenly, moving as few as possible."""
    members = sorted(subscriptions)
    held: dict[str, set[TopicIdPartition]] = {member: set() for member in members}
    free = _all_partitions(subscriptions, partitions)
    for member in members:
        for tp in sorted(current.get(member, ())):
            if tp in free and tp[0] in subscriptions[member]:
                held[member].add(tp)
                free.discard(tp)
    if len(set(subscriptions.values())) == 1:
        _spread(held, free)
    else:
        _spread_unlike(held, free, subscriptions)
    return {member: frozenset(tps) for member, tps in held.items()}


def _spread(held: dict[str, set[TopicIdPartition]], free: set[TopicIdPartition]) -> None:
    """Members that may all read the same: who has too many gives, who has too few takes; linear in partitions."""
    total = len(free) + sum(map(len, held.values()))
    least, larger = divmod(total, len(held))
    spare = sorted(free)
    # whoever holds most keeps the larger share, so that least moves
    quota = {
        member: least + (position < larger)
        for position, member in enumerate(sorted(held, key=lambda member: (-len(held[member]), member)))
    }
    for member, tps in held.items():
        excess = len(tps) - quota[member]
        if excess > 0:
            given = sorted(tps)[-excess:]
            tps.difference_update(given)
            spare.extend(given)
    for member, tps in held.items():
        while len(tps) < quota[member]:
            tps.add(spare.pop())


def _spread_unlike(
    held: dict[str, set[TopicIdPartition]], free: set[TopicIdPartition], subscriptions: Subscriptions
) -> None:
    """Members with different subscriptions."""
    readers: dict[UUID, list[str]] = {}
    for member in sorted(subscriptions):
        for topic in subscriptions[member]:
            readers.setdefault(topic, []).append(member)
    for tp in sorted(free):
        held[min(readers[tp[0]], key=lambda member: len(held[member]))].add(tp)
    while (move := _improvement(held, subscriptions)) is not None:
        tps, giver, taker = move
        held[giver].difference_update(tps)
        held[taker].update(tps)


def _all_partitions(subscriptions: Subscriptions, partitions: Mapping[UUID, int]) -> set[TopicIdPartition]:
    topics = frozenset[UUID]().union(*subscriptions.values())
    return {(topic, index) for topic in topics for index in range(partitions.get(topic, 0))}


def _improvement(
    held: Mapping[str, set[TopicIdPartition]], subscriptions: Subscriptions
) -> tuple[list[TopicIdPartition], str, str] | None:
    """Partitions whose move brings two members' counts closer: (partitions, giver, taker)."""
    by_load = sorted(held, key=lambda member: (len(held[member]), member))
    even = sum(map(len, held.values())) // len(held)
    for giver in reversed(by_load):
        for taker in by_load:
            most, least = len(held[giver]), len(held[taker])
            if most - least <= 1:
                break
            movable = [tp for tp in held[giver] if tp[0] in subscriptions[taker]]
            if movable:
                # many at once, but none that another would have to be given afterwards
                bounds = [(most - least) // 2, *(room for room in (most - even, even - least) if room > 0)]
                return nlargest(min(bounds), movable), giver, taker
    return None


def assign_range(
    subscriptions: Subscriptions, partitions: Mapping[UUID, int], current: Mapping[str, Assignment]
) -> dict[str, Assignment]:
    """Give each member of a topic neighbouring partitions, the first ones one more; `current` does not matter."""
    del current
    result: dict[str, set[TopicIdPartition]] = {member: set() for member in subscriptions}
    for topic, count in partitions.items():
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        first = 0
        for position, member in enumerate(members):
            share = count // len(members) + (position < count % len(members))
            result[member].update((topic, index) for index in range(first, first + share))
            first += share
    return {member: frozenset(tps) for member, tps in result.items()}


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR = "uniform"
