"""A record of a coordinator as bytes: its type and what it is about as the key, a value with its version. Pure."""

import hashlib
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeAlias
from uuid import UUID

from kclient_quota.broker.groups.in_steps import AT_ONCE, Steps, ordered, parts
from kclient_quota.broker.internal_topics import wire_string
from kclient_quota.broker.request.long.letting_go import let_go
from kclient_quota.wire.codec import Encoded, encode, encode_element, encode_names_by_and_by
from kclient_quota.wire.schema import Message, Struct

CoordinatorRecord = tuple[bytes, bytes | None]
"""Key and value; a tombstone has no value."""

Said: TypeAlias = Iterator[CoordinatorRecord | None]
"""Records; None between them: others have their turn before it goes on."""

_VERSION = 0
_COST_OF_A_ROW, _NUMBERS = 4, 8
"""A row and its topic's id cost as much to encode as looking at four partitions; eight numbers as much as at one."""
_NAMES_AT_ONCE = 4 * AT_ONCE


def key_of(kind: int | type[Message], *names: str) -> bytes:
    """The key of a record of this type, given by its number or by the class of its value."""
    number = kind if isinstance(kind, int) else kind.__schema__.api_key
    return struct.pack(">h", number) + b"".join(map(wire_string, names))


def tombstone(kind: int | type[Message], *names: str) -> CoordinatorRecord:
    """What is said of something that is no more."""
    return key_of(kind, *names), None


def everybody(*told: Mapping[str, Any]) -> list[str]:
    """All of whom anything was told, each once."""
    return list(dict.fromkeys(chain(*told)))


def departures(kinds: Iterable[type[Message]], group_id: str, there: Collection[str], *told: dict[str, Any]) -> Said:
    """What is said of members who have left: those in any of these mappings who are not there any more.

    Args:
        kinds: what was said of each.
        group_id: theirs.
        there: who is there.
        told: what was told of members; those who have left are taken out as far as this is taken.
    """
    # of one who came while others were told of, not all is told yet
    for name in [name for name in everybody(*told) if name not in there]:
        for kind in kinds:
            yield tombstone(kind, group_id, name)
        held = [part for each in told for part in _parts_of(each.pop(name, None))]
        yield from let_go(held)


def _parts_of(told: Any) -> tuple[Any, ...]:
    return told if isinstance(told, tuple) else (told,)


def record(value: Message, *names: str) -> CoordinatorRecord:
    """What is said of something that is."""
    return key_of(type(value), *names), struct.pack(">h", _VERSION) + encode(value, _VERSION)


def rows_of(topics: list[tuple[UUID, list[int]]], row: Callable[[UUID, list[int]], Struct]) -> Steps[Any]:
    """A row for each topic and its partitions, to stand in a value; encoded in steps, for they may be many.

    The list is empty afterwards: to free very much at once takes as long as to encode it.
    """
    count = len(topics)
    chunks: list[bytes] = []
    rows: list[bytes] = []
    cost = 0
    topics.reverse()
    while topics:
        topic_id, indexes = topics.pop()
        rows.append(encode_element(row(topic_id, indexes), _VERSION))
        cost += _COST_OF_A_ROW + len(indexes) // _NUMBERS
        if cost >= AT_ONCE:
            chunks.append(b"".join(rows))
            rows.clear()
            cost = 0
            yield
    return Encoded(count, [*chunks, b"".join(rows)])


def names_of(kind: type[Message], names: list[str]) -> Steps[Any]:
    """A list of names to stand in a value, encoded in steps."""
    return encode_names_by_and_by(kind, _VERSION, names, _NAMES_AT_ONCE)


def metadata_hash(topics: Mapping[str, tuple[UUID, int]]) -> Steps[int]:
    """Another number whenever topics or their partitions are others, 0 for no topics.

    Kafka keeps one for the same end; its numbers are those of another function.
    """
    if not topics:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for part in parts((yield from ordered(topics, str))):
        for name in part:
            topic_id, count = topics[name]
            digest.update(wire_string(name) + topic_id.bytes + struct.pack(">i", count))
        if len(part) == AT_ONCE:
            yield
    return int.from_bytes(digest.digest(), "big", signed=True)
