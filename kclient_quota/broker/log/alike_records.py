"""Reading over many records quickly: what is cut alike is looked at column by column, the rest one by one.

Records of one producer often have the same length. Then the bytes that say so lie at equal distances, and one slice
with a step shows them all; looking at a slice costs a hundredth of looking at each record.
Nothing is refused here: what is not plainly sound is left to who reads record by record and can say what it is.
"""

from typing import TYPE_CHECKING, NamedTuple

from kclient_quota.broker.log.record_fields import after_fields, behind_number, frame, has_no_key, more

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kclient_quota.wire.batches import Buffer

_WORTH_TRYING = 8
"""So many records alike pay for looking at columns, which costs as much as looking at six one by one."""
_MANY, _MOST_AT_ONCE = 64, 8192
"""After fewer alike some are read one by one, so that no order of records makes reading them dear."""
_FIRST_WALK, _LONGEST_WALK = 16, 512
_MOST_NUMBER_BYTES = 2
"""A timestamp delta of more bytes is eight seconds or more: read one by one."""
_NO_NUMBER = -1
_EVERY_BYTE = bytes(range(256))
_OTHER_TOP_BIT = bytes(byte ^ 0x80 for byte in range(256))
_SIGN_AS_TOP_BIT = bytes((byte & 1) << 7 for byte in range(256))


class NotPlain(Exception):  # noqa: N818 - asks for another reader, no error of the program
    """What a record is needs more than a glance."""


class Passed(NamedTuple):
    """Records that were read over.

    Attributes:
        end: where the last of them ends.
        oldest: the least timestamp delta among them.
        newest: the largest.
    """

    end: int
    oldest: int
    newest: int


_Passed = tuple[int, int, int, int]
"""How many, and the same."""


def pass_over(body: "Buffer", count: int, whole: int, *, needs_keys: bool = False) -> Passed:
    """Read over the records of a batch.

    Args:
        body: all of them.
        count: how many there should be, at least one.
        whole: so many, at least one, are read with all fields, the others' lengths and timestamps only.
        needs_keys: whether those that are read whole must have keys.

    Raises:
        NotPlain: there is something about a record.
        UnsoundRecords: a number is malformed.
        IndexError: the bytes end too early.
    """
    position, left, walk, is_tried = 0, count, _FIRST_WALK, True
    oldest = newest = 0
    while left:
        passed: _Passed | None = None
        if is_tried and left >= _WORTH_TRYING:
            passed = _columns(body, position, min(left, _MOST_AT_ONCE), whole, needs_keys=needs_keys)
        is_tried = passed is None or passed[0] >= _MANY
        if passed is None:
            steps = min(left, walk)
            if whole > 0:
                passed = _whole(body, position, min(steps, whole), needs_keys=needs_keys)
            else:
                passed = _lengths(body, position, steps)
            walk = min(2 * walk, _LONGEST_WALK)
        elif is_tried:
            walk = _FIRST_WALK
        number, position, least, largest = passed
        if left == count:
            oldest, newest = least, largest
        elif least < oldest or largest > newest:
            oldest, newest = min(oldest, least), max(newest, largest)
        left, whole = left - number, whole - number
    return Passed(position, oldest, newest)


def _whole(body: "Buffer", position: int, count: int, *, needs_keys: bool) -> _Passed:
    """Read all fields of all records."""
    oldest = newest = frame(body, position)[1]
    for _ in range(count):
        end, delta, fields = frame(body, position)
        if after_fields(body, fields) != end or (needs_keys and has_no_key(body, fields)):
            raise NotPlain
        if delta > newest:
            newest = delta
        elif delta < oldest:
            oldest = delta
        position = end
    return count, position, oldest, newest


def _lengths(body: "Buffer", position: int, count: int) -> _Passed:
    """Read lengths and timestamps of all records: where messages are small, most of what a broker does."""
    oldest = newest = frame(body, position)[1]
    last = _NO_NUMBER
    for _ in range(count):
        size = body[position]
        if size > 0x7F:  # noqa: PLR2004 - more bytes follow
            high = body[position + 1]
            if high > 0x7F:  # noqa: PLR2004
                size, position = more(body, position + 1, size)
            else:
                size += (high << 7) - 0x80
                position += 2
        else:
            position += 1
        if size & 1:
            raise NotPlain
        stamp = body[position + 1]
        if stamp > 0x7F:  # noqa: PLR2004
            high = body[position + 2]
            stamp = more(body, position + 2, stamp)[0] if high > 0x7F else stamp + (high << 7) - 0x80  # noqa: PLR2004
        if stamp != last:
            last, delta = stamp, (stamp >> 1) ^ -(stamp & 1)
            if delta > newest:
                newest = delta
            elif delta < oldest:
                oldest = delta
        position += size >> 1
    return count, position, oldest, newest


def _columns(body: "Buffer", start: int, most: int, whole: int, *, needs_keys: bool) -> _Passed | None:
    """Read over the records, `most` of them, that are cut as the one at `start` is; None if there are hardly any."""
    length, low = start + 1, body[start]
    size = low >> 1
    if low > 0x7F:  # noqa: PLR2004 - more bytes follow
        low, length = more(body, length, low)
        size = low >> 1
    size += length - start
    count = min(most, (len(body) - start) // size)
    end = start + size
    if low & 1 or count < _WORTH_TRYING or not body[start] == body[end] == body[end + size]:
        return None
    stamps = length + 1
    fields = behind_number(body, stamps)
    if not 0 < fields - stamps <= _MOST_NUMBER_BYTES or fields > end:
        return None
    count = _alike(body, range(start, length), size, count)
    if whole > 0:
        alike = _alike_whole(body, start, fields, size, min(count, whole), needs_keys=needs_keys)
        count = count if alike >= whole else min(count, alike)
    if count < _WORTH_TRYING:
        return None
    stop = start + size * count
    low_bytes = bytes(body[stamps:stop:size])
    if fields - stamps == 1:
        if not low_bytes.isascii():
            return None
        numbers = [(byte >> 1) ^ -(byte & 1) for byte in _distinct(low_bytes)]
    else:
        high = bytes(body[stamps + 1 : stop : size])
        if not _are_numbers(low_bytes, high):
            return None
        numbers = _numbers(low_bytes, high)
    return count, stop, min(numbers), max(numbers)


def _alike_whole(body: "Buffer", start: int, fields: int, size: int, count: int, *, needs_keys: bool) -> int:
    """How many of `count` records have no headers, and offset delta, key and value where the first one has them."""
    key = behind_number(body, fields)
    behind_key, value = _bytes_at(body, key)
    behind_value, headers = _bytes_at(body, value)
    if headers != start + size - 1 or body[headers] or (needs_keys and body[key] & 1):
        return 0
    count = _alike(body, (*range(key, behind_key), *range(value, behind_value), headers), size, count)
    stop = start + size * count
    low = bytes(body[fields:stop:size])
    if key - fields == 1:
        return count if low.isascii() else 0
    return (
        count if key - fields == _MOST_NUMBER_BYTES and _are_numbers(low, bytes(body[fields + 1 : stop : size])) else 0
    )


def _bytes_at(body: "Buffer", position: int) -> tuple[int, int]:
    """The positions behind the length at `position` and behind its bytes; below 0 it says that there are none."""
    size = body[position]
    position += 1
    if size > 0x7F:  # noqa: PLR2004 - more bytes follow
        size, position = more(body, position, size)
    return position, position if size & 1 else position + (size >> 1)


def _alike(body: "Buffer", places: "Iterable[int]", size: int, count: int) -> int:
    """How many of `count` records of a size have at each of these places of the first one what that one has there."""
    for place in places:
        column = bytes(body[place : place + size * count : size])
        first = column[:1]
        if column.count(first) < count:
            count -= len(column.lstrip(first))
    return count


def _are_numbers(low: bytes, high: bytes) -> bool:
    """Whether these are the first bytes and the second bytes of numbers that have no others."""
    return high.isascii() and low.translate(_OTHER_TOP_BIT).isascii()


def _numbers(low: bytes, high: bytes) -> list[int]:
    """Some numbers, the least and the largest of them among these, whose first and second bytes these are."""
    if not low.translate(_SIGN_AS_TOP_BIT).isascii():
        return [_joined(*one) for one in set(zip(low, high, strict=True))]
    # none is negative, so that their second bytes say where to look
    highs = _distinct(high)
    return [_joined(one, byte) for byte in {highs[0], highs[-1]} for one in _lows(low, high, byte)]


def _lows(low: bytes, high: bytes, byte: int) -> bytes:
    """Which first bytes there are where the second one is this."""
    first, last = high.find(byte), high.rfind(byte) + 1
    if high.count(byte, first, last) < last - first:
        return bytes({one for one, of in zip(low, high, strict=True) if of == byte})
    return _distinct(low[first:last])


def _joined(low: int, high: int) -> int:
    return _decoded((high << 7) + low - 0x80)


def _decoded(zigzag: int) -> int:
    return (zigzag >> 1) ^ -(zigzag & 1)


def _distinct(column: bytes) -> bytes:
    """Which bytes there are, by two passes in C."""
    return _EVERY_BYTE.translate(None, _EVERY_BYTE.translate(None, column))
