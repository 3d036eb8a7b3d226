"""Work that grows with what there is, in steps between which others have their turn. Pure.

A function of steps is a generator: whoever runs it may let others do something whenever it yields. Of what is small
there is one step only, which never yields.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

ItemT = TypeVar("ItemT")
KeyT = TypeVar("KeyT")
MadeT = TypeVar("MadeT")
Steps: TypeAlias = Generator[None, None, MadeT]

AT_ONCE: Final = 1_000
"""Partitions or topics that are looked at in one step: some milliseconds."""


def at_once(steps: Steps[MadeT]) -> MadeT:
    """What comes of them, all done now."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: MadeT = end.value
            return made


def parts(items: Iterable[ItemT], at_once: int | None = None) -> Iterator[list[ItemT]]:
    """Some at a time: `AT_ONCE`, or as many as are told. After a part of so many it is others' turn."""
    rest = iter(items)
    while part := list(islice(rest, at_once or AT_ONCE)):
        yield part


def gathered(items: Iterable[ItemT]) -> Steps[list[ItemT]]:
    """All that an iterator makes."""
    found: list[ItemT] = []
    for part in parts(items):
        found += part
        if len(part) == AT_ONCE:
            yield
    return found


def mapping(pairs: Iterable[tuple[KeyT, ItemT]]) -> Steps[dict[KeyT, ItemT]]:
    """All pairs that an iterator makes, by their first."""
    found: dict[KeyT, ItemT] = {}
    for part in parts(pairs):
        found.update(part)
        if len(part) == AT_ONCE:
            yield
    return found


def ordered(items: Iterable[ItemT], key: Callable[[ItemT], Any]) -> Steps[list[ItemT]]:
    """All of them in the order of their keys."""
    runs: list[list[ItemT]] = []
    for part in parts(items):
        runs.append(sorted(part, key=key))
        if len(part) == AT_ONCE:
            yield
    return runs[0] if len(runs) == 1 else (yield from gathered(merge(*runs, key=key)))


def union(some: frozenset[ItemT], more: Iterable[ItemT]) -> Steps[frozenset[ItemT]]:
    """Both; what is in `some` is not hashed again."""
    found = set(some)
    for part in parts(more):
        found.update(part)
        if len(part) == AT_ONCE:
            yield
    return frozenset(found)


def same(some: frozenset[ItemT], others: frozenset[ItemT]) -> Steps[bool]:
    """Whether these are the same; what is in either is compared only when their hashes are, which they keep."""
    if some is others:
        return True
    if len(some) != len(others) or hash(some) != hash(others):
        return False
    for part in parts(others):
        if not some.issuperset(part):
            return False
        if len(part) == AT_ONCE:
            yield
    return True


def difference(some: frozenset[ItemT], without: Collection[ItemT]) -> Steps[frozenset[ItemT]]:
    """What is in `some` alone."""
    gone = yield from union(frozenset(), without)
    return some - gone
