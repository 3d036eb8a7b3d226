"""Requests that name very many things are read by and by, and so are their answers written: others get their turn."""

from collections.abc import Awaitable, Callable, Generator
from functools import cache
from typing import Any, NamedTuple, TypeVar

from kclient_quota.broker.request.context import ELEMENTS_AT_ONCE
from kclient_quota.wire.codec import Encoded, decode_by_and_by, encode_element, encode_names_by_and_by
from kclient_quota.wire.schema import Request, Response, Struct, struct_class

_NUMBERS = 10
"""So many numbers or names cost as much as a struct."""
_NAMES_AT_ONCE = _NUMBERS * ELEMENTS_AT_ONCE

MadeT = TypeVar("MadeT")
Turn = Callable[[], Awaitable[None]]


async def read(cls: type[Request], version: int, frame: bytes, position: int, turn: Turn) -> Request:
    """Decode a request that `codec.decode_few` has found to be long.

    Args:
        cls: the request's class.
        version: it is written in.
        frame: a buffer of its own, since others are used again meanwhile.
        position: where the body starts in it.
        turn: lets others do what they have to do.

    Raises:
        WireError: it is malformed.
    """
    return await _ended(decode_by_and_by(cls, version, frame, position, len(frame), ELEMENTS_AT_ONCE), turn)


async def _ended(steps: Generator[None, None, MadeT], turn: Turn) -> MadeT:
    """What comes of steps; others have their turn at every pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: MadeT = end.value
            return made
        await turn()


async def written(response: Response, version: int, turn: Turn) -> None:
    """Encode the long lists of an answer, if it has any, and put what came of them in their place."""
    if _size(response) > ELEMENTS_AT_ONCE:
        await _encode_lists(response, version, turn)


class _Shape(NamedTuple):
    """Which fields of a struct may hold very much.

    Attributes:
        lists: names of those that hold lists of structs, and the versions that have them.
        deep: those of them whose structs hold lists in turn.
        nested: names of those that are structs themselves and hold lists.
        plain: names of those that hold lists of anything else.
        names: those of them that hold strings, and the versions that have them.
    """

    lists: tuple[tuple[str, range], ...]
    deep: frozenset[str]
    nested: tuple[str, ...]
    plain: tuple[str, ...]
    names: tuple[tuple[str, range], ...]

    @property
    def holds_lists(self) -> bool:
        """Whether there is any."""
        return bool(self.lists or self.nested or self.plain)


@cache
def _shape(cls: type[Struct]) -> _Shape:
    arrays = [spec for spec in cls.__fields__ if spec.is_array]
    held = {spec.name: spec for spec in cls.__fields__ if spec.is_struct}
    deep = {name for name, spec in held.items() if _shape(struct_class(cls.__root__, spec.type)).holds_lists}
    return _Shape(
        lists=tuple((spec.name, spec.versions) for spec in arrays if spec.is_struct),
        deep=frozenset(deep),
        nested=tuple(name for name, spec in held.items() if not spec.is_array and name in deep),
        plain=tuple(spec.name for spec in arrays if not spec.is_struct),
        names=tuple((spec.name, spec.versions) for spec in arrays if spec.type == "String"),
    )


def _size(struct: Struct) -> int:
    """How many structs are in it; no more are counted than it takes to call it long."""
    shape = _shape(type(struct))
    total = 0
    for name in shape.plain:
        total += len(getattr(struct, name) or ())
    total //= _NUMBERS
    for name in shape.nested:
        held = getattr(struct, name)
        total += 0 if held is None else _size(held)
    for name, _ in shape.lists:
        rows: Any = getattr(struct, name)
        if not rows:
            continue
        total += len(rows)
        if total > ELEMENTS_AT_ONCE:
            break
        if name not in shape.deep:
            continue
        for row in rows:
            total += 0 if row.__class__ is bytes else _size(row)
            if total > ELEMENTS_AT_ONCE:
                return total
    return total


async def _encode_lists(struct: Struct, version: int, turn: Turn) -> None:
    shape = _shape(type(struct))
    for name in shape.nested:
        held = getattr(struct, name)
        if held is not None and _size(held) > ELEMENTS_AT_ONCE:
            await _encode_lists(held, version, turn)
    for name, versions in shape.names:
        texts = getattr(struct, name)
        if texts and version in versions and not isinstance(texts, Encoded) and len(texts) > _NAMES_AT_ONCE:
            encoding = encode_names_by_and_by(type(struct), version, texts, _NAMES_AT_ONCE)
            setattr(struct, name, await _ended(encoding, turn))
    for name, versions in shape.lists:
        rows = getattr(struct, name)
        if rows and version in versions and not isinstance(rows, Encoded):
            setattr(struct, name, await _encoded_rows(rows, version, turn))


async def _encoded_rows(rows: list[Any], version: int, turn: Turn) -> Encoded:
    chunks: list[bytes] = []
    pieces: list[bytes] = []
    seen_to, count = 0, len(rows)
    # what is written is let go: to free all of it at once takes longer than a turn may
    rows.reverse()
    while rows:
        row = rows.pop()
        size = 1
        if row.__class__ is not bytes:
            size += _size(row)
            if size > ELEMENTS_AT_ONCE:
                await _encode_lists(row, version, turn)
        pieces.append(row if row.__class__ is bytes else encode_element(row, version))
        seen_to += size
        if seen_to >= ELEMENTS_AT_ONCE:
            chunks.append(b"".join(pieces))
            pieces.clear()
            seen_to = 0
            await turn()
    return Encoded(count, [*chunks, b"".join(pieces)])
