"""Requests that name very many things are read by and by, and so are their answers written: others get their turn."""

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from kclient_quota.broker.request.context import AT_ONCE
from kclient_quota.wire.codec import Encoded, decode_by_and_by, encode_element
from kclient_quota.wire.schema import Request, Response, Struct, struct_class

_NUMBERS = 10
"""So many numbers or names cost as much as a struct."""

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
    reading = decode_by_and_by(cls, version, frame, position, len(frame), AT_ONCE)
    while True:
        try:
            next(reading)
        except StopIteration as end:
            found: Request = end.value
            return found
        await turn()


async def written(response: Response, version: int, turn: Turn) -> None:
    """Encode the long lists of an answer, if it has any, and put what came of them in their place."""
    if _size(response) > AT_ONCE:
        await _encode_lists(response, version, turn)


@cache
def _lists(cls: type[Struct]) -> tuple[tuple[str, range], ...]:
    """Names of the fields that hold lists of structs, and the versions that have them."""
    return tuple((spec.name, spec.versions) for spec in cls.__fields__ if spec.is_array and spec.is_struct)


@cache
def _plain_lists(cls: type[Struct]) -> tuple[str, ...]:
    """Names of the fields that hold lists of anything else."""
    return tuple(spec.name for spec in cls.__fields__ if spec.is_array and not spec.is_struct)


@cache
def _has_lists(root: type[Struct], name: str) -> bool:
    """Whether the structs in the list of this name hold lists in turn."""
    spec = next(spec for spec in root.__fields__ if spec.name == name)
    held = struct_class(root.__root__, spec.type)
    return bool(_lists(held) or _plain_lists(held))


def _size(struct: Struct) -> int:
    """How many structs are in it; no more are counted than it takes to call it long."""
    total = sum(len(getattr(struct, name) or ()) for name in _plain_lists(type(struct))) // _NUMBERS
    for name, _ in _lists(type(struct)):
        rows: Any = getattr(struct, name)
        if not rows:
            continue
        total += len(rows)
        if total > AT_ONCE:
            break
        if not _has_lists(type(struct), name):
            continue
        for row in rows:
            total += 0 if row.__class__ is bytes else _size(row)
            if total > AT_ONCE:
                return total
    return total


async def _encode_lists(struct: Struct, version: int, turn: Turn) -> None:
    for name, versions in _lists(type(struct)):
        rows = getattr(struct, name)
        if not rows or version not in versions or isinstance(rows, Encoded):
            continue
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
                if size > AT_ONCE:
                    await _encode_lists(row, version, turn)
            pieces.append(row if row.__class__ is bytes else encode_element(row, version))
            seen_to += size
            if seen_to >= AT_ONCE:
                chunks.append(b"".join(pieces))
                pieces.clear()
                seen_to = 0
                await turn()
        setattr(struct, name, Encoded(count, [*chunks, b"".join(pieces)]))
