"""Where the fields of an encoded record lie (message format 2): positions and lengths, no records made of them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kclient_quota.wire.batches import Buffer

NEVER = -1
_MOST_SHIFT = 63


class UnsoundRecords(Exception):  # noqa: N818 - an answer to the client, not an error of the program
    """The records are not what the batch says."""


def frame(body: "Buffer", position: int) -> tuple[int, int, int]:
    """Where the record at `position` ends, its timestamp delta, and where its offset delta begins."""
    size = body[position]
    position += 1
    if size > 0x7F:  # noqa: PLR2004 - more bytes follow
        size, position = more(body, position, size)
    if size & 1:
        raise UnsoundRecords("a record has a negative length")
    end = position + (size >> 1)
    delta = body[position + 1]
    position += 2
    if delta > 0x7F:  # noqa: PLR2004 - more bytes follow
        delta, position = more(body, position, delta)
    return end, (delta >> 1) ^ -(delta & 1), position


def more(body: "Buffer", position: int, low: int) -> tuple[int, int]:
    """An unsigned varint whose first byte `low` says that others follow, and the position behind it."""
    value, shift = low & 0x7F, 7
    while True:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte <= 0x7F:  # noqa: PLR2004 - the last byte
            return value, position
        shift += 7
        if shift > _MOST_SHIFT:
            raise UnsoundRecords("a number is longer than ten bytes")


def behind_number(body: "Buffer", position: int) -> int:
    """The position behind the varint at `position`, however long it is."""
    while body[position] > 0x7F:  # noqa: PLR2004 - more bytes follow
        position += 1
    return position + 1


def has_no_key(body: "Buffer", position: int) -> bool:
    """Whether there is no key in a record whose offset delta begins at `position`."""
    _, position = more(body, position, 0x80) if body[position] > 0x7F else (0, position + 1)  # noqa: PLR2004
    return bool(body[position] & 1)


def after_fields(body: "Buffer", position: int) -> int:
    """Where a record ends whose offset delta, key, value and headers begin at `position`."""
    while body[position] > 0x7F:  # noqa: PLR2004 - the offset delta
        position += 1
    position += 1
    for _ in (0, 1):
        size = body[position]
        position += 1
        if size > 0x7F:  # noqa: PLR2004 - more bytes follow
            size, position = more(body, position, size)
        if not size & 1:
            position += size >> 1
    count = body[position]
    position += 1
    return position if not count else _after_headers(body, position, count)


def _after_headers(body: "Buffer", position: int, count: int) -> int:
    if count > 0x7F:  # noqa: PLR2004 - more bytes follow
        count, position = more(body, position, count)
    if count & 1 or count > len(body) - position + 1:
        return NEVER
    for _ in range(count >> 1):
        for is_name in (True, False):
            size = body[position]
            position += 1
            if size > 0x7F:  # noqa: PLR2004 - more bytes follow
                size, position = more(body, position, size)
            if size & 1 and is_name:
                return NEVER
            if not size & 1:
                position += size >> 1
    return position
