"""Lets go of what holds very much, some at a time: to free 100,000 objects at once takes longer than a turn may."""

from collections.abc import Callable, Generator
from functools import cache
from typing import Any, TypeVar

from kclient_quota.broker.request.context import ELEMENTS_AT_ONCE, Context
from kclient_quota.wire.schema import Struct

FoundT = TypeVar("FoundT")
MadeT = TypeVar("MadeT")


async def made_of_each(
    context: Context, steps: Generator[None, None, list[FoundT]], make: Callable[[FoundT], MadeT]
) -> list[MadeT]:
    """What `make` makes of each thing that steps find; the things themselves are let go of."""
    found = await context.by_and_by(steps)
    made = await context.in_turns(found, make)
    await context.by_and_by(let_go(found))
    return made


def let_go(held: list[Any]) -> Generator[None, None, None]:
    """Empty a list, and all lists, sets and messages that are in it; others have their turn at every yield.

    Nothing but the list is changed: what somebody else holds as well stays as it is.
    """
    count = 0
    while held:
        thing = held.pop()
        if isinstance(thing, Struct):
            held.extend(getattr(thing, name) for name in _holding(type(thing)))
        elif isinstance(thing, list | set | frozenset):
            held.extend(thing)
        count += 1
        if count >= ELEMENTS_AT_ONCE:
            count = 0
            yield


def emptied(held: dict[Any, Any]) -> Generator[None, None, None]:
    """Take everything out of a dictionary that nobody looks into any more, as above."""
    while held:
        for _ in range(min(len(held), ELEMENTS_AT_ONCE)):
            held.popitem()
        if held:
            yield


@cache
def _holding(cls: type[Struct]) -> tuple[str, ...]:
    """Names of the fields that are lists or structs."""
    return tuple(spec.name for spec in cls.__fields__ if spec.is_array or spec.is_struct)
