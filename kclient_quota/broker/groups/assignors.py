"""Server-side assignors of KIP-848: which member gets which partitions.

Kafka's names; its algorithms are not copied line by line. `uniform` keeps what members have as far as balance allows
and differs by at most one partition among members that may read the same topics; `range` gives each member neighbouring
partitions of every topic.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heapreplace, nlargest
from itertools import groupby
from operator import attrgetter, itemgetter
from uuid import UUID

TopicIdPartition = tuple[UUID, int]
Assignment = frozenset[TopicIdPartition]
Subscriptions = Mapping[str, frozenset[UUID]]
"""Topic ids by member id."""

Assignor = Callable[[Subscriptions, Mapping[UUID, int], Mapping[str, Assignment]], dict[str, Assignment]]
"""(subscriptions, partitions by topic, assignment so far) to the new assignment."""

_NOTHING: Assignment = frozenset()
_NO_MARKS = bytearray()
_NUMBER = attrgetter("int")
_TOPIC = itemgetter(0)


def by_topic(assigned: Iterable[TopicIdPartition]) -> list[tuple[UUID, list[int]]]:
    """Topic ids and their partitions, sorted, as answers have them."""
    found: dict[int, tuple[UUID, list[int]]] = {}
    for topic_id, index in assigned:
        # a UUID is hashed and compared by functions in Python, its number is not
        number = topic_id.int
        if number in found:
            found[number][1].append(index)
        else:
            found[number] = topic_id, [index]
    for _, indexes in found.values():
        indexes.sort()
    return [found[number] for number in sorted(found)]


def assign_uniform(
    subscriptions: Subscriptions, partitions: Mapping[UUID, int], current: Mapping[str, Assignment]
) -> dict[str, Assignment]:
    """Spread partitions evenly, moving as few as possible."""
    topics = sorted(frozenset[UUID]().union(*subscriptions.values()), key=_NUMBER)
    taken = {topic.int: bytearray(partitions.get(topic, 0)) for topic in topics}
    is_alike = len(set(subscriptions.values())) == 1
    held = {
        member: _kept(current.get(member, _NOTHING), taken, None if is_alike else subscriptions[member])
        for member in sorted(subscriptions)
    }
    free = [(topic, index) for topic in topics for index, is_taken in enumerate(taken[topic.int]) if not is_taken]
    return _spread(held, free) if is_alike else _spread_unlike(held, free, subscriptions)


def _kept(assigned: Assignment, taken: dict[int, bytearray], subscribed: frozenset[UUID] | None) -> Assignment:
    """What a member may keep, which is marked as taken; `subscribed` is None for all there is."""
    allowed = taken if subscribed is None else {topic.int: taken[topic.int] for topic in subscribed}
    kept: list[TopicIdPartition] = []
    for tp in assigned:
        marks = allowed.get(tp[0].int, _NO_MARKS)
        if 0 <= tp[1] < len(marks) and not marks[tp[1]]:
            marks[tp[1]] = 1
            kept.append(tp)
    return assigned if len(kept) == len(assigned) else frozenset(kept)


def _spread(held: dict[str, Assignment], spare: list[TopicIdPartition]) -> dict[str, Assignment]:
    """Members that may all read the same: who has too many gives, who has too few takes; linear in partitions."""
    total = len(spare) + sum(map(len, held.values()))
    least, larger = divmod(total, len(held))
    # whoever holds most keeps the larger share, so that least moves
    quota = {
        member: least + (position < larger)
        for position, member in enumerate(sorted(held, key=lambda member: (-len(held[member]), member)))
    }
    for member, tps in held.items():
        excess = len(tps) - quota[member]
        if excess > 0:
            ordered = [(topic, index) for topic, indexes in by_topic(tps) for index in indexes]
            kept, given = ordered[:-excess], ordered[-excess:]
            # what is fewer is hashed
            held[member] = frozenset(kept) if len(kept) < excess else tps.difference(given)
            spare.extend(given)
    for member, tps in held.items():
        wanted = quota[member] - len(tps)
        if wanted:
            held[member] = tps.union(spare[-wanted:])
            del spare[-wanted:]
    return held


def _spread_unlike(
    assigned: dict[str, Assignment], free: list[TopicIdPartition], subscriptions: Subscriptions
) -> dict[str, Assignment]:
    """Members with different subscriptions."""
    held = {member: set(tps) for member, tps in assigned.items()}
    readers = _readers(subscriptions)
    for topic, tps in groupby(free, _TOPIC):
        loads = [(len(held[member]), member) for member in readers[topic]]
        heapify(loads)
        for tp in tps:
            load, member = loads[0]
            held[member].add(tp)
            heapreplace(loads, (load + 1, member))
    while (move := _improvement(held, subscriptions)) is not None:
        moved, giver, taker = move
        held[giver].difference_update(moved)
        held[taker].update(moved)
    return {member: frozenset(tps) for member, tps in held.items()}


def _readers(subscriptions: Subscriptions) -> dict[UUID, list[str]]:
    """Members by topic, sorted."""
    readers: dict[UUID, list[str]] = {}
    for member in sorted(subscriptions):
        for topic in subscriptions[member]:
            readers.setdefault(topic, []).append(member)
    return readers


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
            read = {topic.int for topic in subscriptions[taker]}
            movable = [tp for tp in held[giver] if tp[0].int in read]
            if movable:
                # many at once, but none that another would have to be given afterwards
                bounds = [(most - least) // 2, *(room for room in (most - even, even - least) if room > 0)]
                return nlargest(min(bounds), movable, key=_order), giver, taker
    return None


def _order(tp: TopicIdPartition) -> tuple[int, int]:
    return tp[0].int, tp[1]


def assign_range(
    subscriptions: Subscriptions, partitions: Mapping[UUID, int], current: Mapping[str, Assignment]
) -> dict[str, Assignment]:
    """Give each member of a topic neighbouring partitions, the first ones one more; `current` does not matter."""
    del current
    result: dict[str, list[TopicIdPartition]] = {member: [] for member in subscriptions}
    for topic, members in _readers(subscriptions).items():
        least, larger = divmod(partitions.get(topic, 0), len(members))
        first = 0
        for position, member in enumerate(members):
            end = first + least + (position < larger)
            result[member] += [(topic, index) for index in range(first, end)]
            first = end
    return {member: frozenset(tps) for member, tps in result.items()}


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR = "uniform"
