"""Server-side assignors of KIP-848: which member gets which partitions.

Kafka's names; its algorithms are not copied line by line. `uniform` keeps what members have as far as balance allows
and differs by at most one partition among members that may read the same topics; `range` gives each member neighbouring
partitions of every topic. Both work in steps.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heapify, heapreplace
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TypeVar
from uuid import UUID

from kclient_quota.broker.groups.in_steps import AT_ONCE, Steps, difference, gathered, ordered, parts, union

CopyT = TypeVar("CopyT")

TopicIdPartition = tuple[UUID, int]
Assignment = frozenset[TopicIdPartition]
Subscriptions = Mapping[str, frozenset[UUID]]
"""Topic ids by member id."""

Assignor = Callable[[Subscriptions, Mapping[UUID, int], Mapping[str, Assignment]], Steps[dict[str, Assignment]]]
"""(subscriptions, partitions by topic, assignment so far) to the new assignment."""

_NOTHING: Assignment = frozenset()
_NO_MARKS = bytearray()
_NUMBER = attrgetter("int")
_TOPIC = itemgetter(0)


def by_topic_in_steps(assigned: Iterable[TopicIdPartition]) -> Steps[list[tuple[UUID, list[int]]]]:
    """Topic ids and their partitions, sorted, as answers have them."""
    found: dict[int, tuple[UUID, list[int]]] = {}
    for part in parts(assigned):
        for topic_id, index in part:
            # a UUID is hashed and compared by functions in Python, its number is not
            number = topic_id.int
            if number in found:
                found[number][1].append(index)
            else:
                found[number] = topic_id, [index]
        if len(part) == AT_ONCE:
            yield
    for entries in parts(found.values()):
        for _, indexes in entries:
            indexes.sort()
        if len(entries) == AT_ONCE:
            yield
    numbers = yield from ordered(found, int)
    return (yield from gathered(found[number] for number in numbers))


def _order(tp: TopicIdPartition) -> int:
    return tp[0].int << 32 | tp[1]


def uniform(
    subscriptions: Subscriptions, partitions: Mapping[UUID, int], current: Mapping[str, Assignment]
) -> Steps[dict[str, Assignment]]:
    """Spread partitions evenly, moving as few as possible."""
    distinct = set(subscriptions.values())
    topics = yield from ordered(frozenset[UUID]().union(*distinct), _NUMBER)
    taken: dict[int, bytearray] = {}
    for part in parts(topics):
        taken.update((topic.int, bytearray(partitions.get(topic, 0))) for topic in part)
        if len(part) == AT_ONCE:
            yield
    numbers = yield from _numbers(distinct)
    held: dict[str, Assignment] = {}
    since = _Since()
    for member in sorted(subscriptions):
        has = current.get(member, _NOTHING)
        held[member] = yield from _kept(has, taken, numbers[subscriptions[member]])
        if since.is_much(len(has)):
            yield
    free: list[TopicIdPartition] = []
    for topic in topics:
        marks = taken[topic.int]
        if not all(marks):
            free += yield from gathered((topic, index) for index, is_taken in enumerate(marks) if not is_taken)
        if since.is_much(1 + len(marks)):
            yield
    if len(distinct) == 1:
        return (yield from _spread(held, free))
    return (yield from _spread_unlike(held, free, subscriptions, numbers))


def _numbers(subscribed: Iterable[frozenset[UUID]]) -> Steps[dict[frozenset[UUID], set[int]]]:
    """The numbers of the topics that are subscribed to: they are hashed faster."""
    found = {}
    for topics in subscribed:
        numbers = found[topics] = set[int]()
        for part in parts(topics):
            numbers.update(map(_NUMBER, part))
            if len(part) == AT_ONCE:
                yield
    return found


def _kept(assigned: Assignment, taken: dict[int, bytearray], read: set[int]) -> Steps[Assignment]:
    """What a member that may `read` these topics keeps, which is marked as taken."""
    dropped: list[TopicIdPartition] = []
    for part in parts(assigned):
        for tp in part:
            topic = tp[0].int
            marks = taken[topic] if topic in read else _NO_MARKS
            if 0 <= tp[1] < len(marks) and not marks[tp[1]]:
                marks[tp[1]] = 1
            else:
                dropped.append(tp)
        if len(part) == AT_ONCE:
            yield
    return (yield from difference(assigned, dropped)) if dropped else assigned


def _spread(held: dict[str, Assignment], spare: list[TopicIdPartition]) -> Steps[dict[str, Assignment]]:
    """Members that may all read the same: who has too many gives, who has too few takes; linear in partitions."""
    total = len(spare) + sum(map(len, held.values()))
    least, larger = divmod(total, len(held))
    # whoever holds most keeps the larger share, so that least moves
    quota = {
        member: least + (position < larger)
        for position, member in enumerate(sorted(held, key=lambda member: (-len(held[member]), member)))
    }
    since = _Since()
    for member, tps in held.items():
        excess = len(tps) - quota[member]
        if excess > 0:
            in_order = yield from ordered(tps, _order)
            # what is fewer is hashed
            if quota[member] < excess:
                held[member] = yield from union(_NOTHING, in_order[:-excess])
            else:
                held[member] = yield from difference(tps, in_order[-excess:])
            spare.extend(in_order[-excess:])
            if since.is_much(len(tps)):
                yield
    for member, tps in held.items():
        wanted = quota[member] - len(tps)
        if wanted:
            held[member] = yield from union(tps, spare[-wanted:])
            del spare[-wanted:]
            if since.is_much(quota[member]):
                yield
    return held


class _Since:
    """What has been seen to since others had their turn, in loops over members that have little each."""

    def __init__(self) -> None:
        self._count = 0

    def is_much(self, more: int) -> bool:
        """Whether it is others' turn, with so much more."""
        self._count += more
        if self._count < AT_ONCE:
            return False
        self._count = 0
        return True


def _spread_unlike(
    assigned: dict[str, Assignment],
    free: list[TopicIdPartition],
    subscriptions: Subscriptions,
    numbers: Mapping[frozenset[UUID], set[int]],
) -> Steps[dict[str, Assignment]]:
    """Members with different subscriptions."""
    held: dict[str, set[TopicIdPartition]] = yield from _copied(set, assigned)
    read = {member: numbers[topics] for member, topics in subscriptions.items()}
    readers = yield from _readers(subscriptions)
    since = _Since()
    for topic, spare in groupby(free, _TOPIC):
        loads = [(len(held[member]), member) for member in readers[topic]]
        heapify(loads)
        for tp in spare:
            load, member = loads[0]
            held[member].add(tp)
            heapreplace(loads, (load + 1, member))
            if since.is_much(1):
                yield
        if since.is_much(len(loads)):
            yield
    while (move := (yield from _improvement(held, read))) is not None:
        moved, giver, taker = move
        for part in parts(moved):
            held[giver].difference_update(part)
            held[taker].update(part)
            if len(part) == AT_ONCE:
                yield
    return (yield from _copied(frozenset, held))


def _copied(
    copy: Callable[[Collection[TopicIdPartition]], CopyT], held: Mapping[str, Collection[TopicIdPartition]]
) -> Steps[dict[str, CopyT]]:
    """A copy of what every member has."""
    copies, since = dict[str, CopyT](), _Since()
    for member, tps in held.items():
        copies[member] = copy(tps)
        if since.is_much(len(tps)):
            yield
    return copies


def _readers(subscriptions: Subscriptions) -> Steps[dict[UUID, list[str]]]:
    """Members by topic, sorted."""
    readers: dict[UUID, list[str]] = {}
    since = _Since()
    for member in sorted(subscriptions):
        for part in parts(subscriptions[member]):
            for topic in part:
                readers.setdefault(topic, []).append(member)
            if since.is_much(len(part)):
                yield
    return readers


def _improvement(
    held: Mapping[str, set[TopicIdPartition]], read: Mapping[str, set[int]]
) -> Steps[tuple[list[TopicIdPartition], str, str] | None]:
    """Partitions whose move brings two members' counts closer: (partitions, giver, taker)."""
    by_load = sorted(held, key=lambda member: (len(held[member]), member))
    even = sum(map(len, held.values())) // len(held)
    since = _Since()
    for giver in reversed(by_load):
        for taker in by_load:
            most, least = len(held[giver]), len(held[taker])
            if most - least <= 1:
                break
            if since.is_much(most):
                yield
            movable: list[TopicIdPartition] = []
            for part in parts(held[giver]):
                movable += (tp for tp in part if tp[0].int in read[taker])
                if len(part) == AT_ONCE:
                    yield
            if movable:
                # many at once, but none that another would have to be given afterwards
                bounds = [(most - least) // 2, *(room for room in (most - even, even - least) if room > 0)]
                return (yield from ordered(movable, _order))[-min(bounds) :], giver, taker
    return None


def by_range(
    subscriptions: Subscriptions, partitions: Mapping[UUID, int], current: Mapping[str, Assignment]
) -> Steps[dict[str, Assignment]]:
    """Give each member of a topic neighbouring partitions, the first ones one more; `current` does not matter."""
    del current
    found: dict[str, list[TopicIdPartition]] = {member: [] for member in subscriptions}
    since = _Since()
    for topic, members in (yield from _readers(subscriptions)).items():
        least, larger = divmod(partitions.get(topic, 0), len(members))
        first = 0
        for position, member in enumerate(members):
            end = first + least + (position < larger)
            found[member] += [(topic, index) for index in range(first, end)]
            if since.is_much(1 + end - first):
                yield
            first = end
    result = {}
    for member, tps in found.items():
        result[member] = yield from union(_NOTHING, tps)
        if since.is_much(len(tps)):
            yield
    return result


ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": by_range}
DEFAULT_ASSIGNOR = "uniform"
