"""Messages to bytes and back.

    body = encode(ProduceRequest(acks=1), version=9)
    request = decode(ProduceRequest, 9, body)

Readers and writers are compiled from the message's table, per version, at their first use. Bytes that are not a message
of the stated version raise `WireError` and nothing else; what is allocated stays in proportion to the bytes given.
"""

from __future__ import annotations

import struct
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from kclient_quota.errors import WireError
from kclient_quota.wire.diagnosis import find_fault
from kclient_quota.wire.reading import ManyElements, ReaderSource
from kclient_quota.wire.writing import WriterSource, packer, uvarint

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from kclient_quota.wire.schema import Message, Struct

    Part = bytes | bytearray | memoryview

_M = TypeVar("_M", bound="Message")
_MALFORMED = (struct.error, IndexError, ValueError, OverflowError)
_UNWRITABLE = (struct.error, AttributeError, TypeError, ValueError, OverflowError)
_BY_REFERENCE_BYTES = 1024
_length16 = packer("h")


def decode(
    cls: type[_M], version: int, buffer: bytes | bytearray | memoryview, offset: int = 0, end: int | None = None
) -> _M:
    """Read a message's body.

    Args:
        cls: the message's class.
        version: the API version it was written in.
        buffer: holds the body; records of the result are memoryviews into it.
        offset: where the body starts.
        end: where it ends, by default where the buffer does; the body must end exactly there.

    Raises:
        WireError: the bytes are no such message, or the version is not one of ours.
    """
    schema = cls.__schema__
    read = schema.decoders.get(version) or _reader(cls, version)
    stop = len(buffer) if end is None else end
    try:
        message, position = read(buffer, offset, stop)
    except (WireError, *_MALFORMED) as error:
        raise _malformed(cls, version, error) from None
    if position != stop:
        _wrong_end(cls, version, stop - position)
    found: _M = message
    return found


def decode_few(cls: type[_M], version: int, buffer: bytes | memoryview, offset: int, end: int, most: int) -> _M | None:
    """Read a message's body, or None when its arrays have more than `most` elements: see `decode_by_and_by`.

    Bytes behind the message are passed over, as Kafka does (librdkafka's Metadata of all topics has three).

    Raises:
        WireError: as `decode`.
    """
    read = cls.__schema__.decoders.get(version) or _reader(cls, version)
    try:
        message, position = read(buffer, offset, end, most)
    except ManyElements:
        return None
    except (WireError, *_MALFORMED) as error:
        raise _malformed(cls, version, error) from None
    if position > end:
        _wrong_end(cls, version, end - position)
    found: _M = message
    return found


def decode_by_and_by(
    cls: type[_M], version: int, buffer: bytes | memoryview, offset: int, end: int, at_once: int
) -> Generator[None, None, _M]:
    """The same, with a pause after every `at_once` elements; what it returns is the message.

    Raises:
        WireError: as `decode`.
    """
    read = _pausing_readers.get((cls, version))
    if read is None:
        _check_version(cls, version)
        read = _pausing_readers[cls, version] = ReaderSource(cls, version, pauses=True).compile()
    try:
        message, position = yield from read(buffer, offset, end, at_once)
    except (WireError, *_MALFORMED) as error:
        raise _malformed(cls, version, error) from None
    if position > end:
        _wrong_end(cls, version, end - position)
    found: _M = message
    return found


_pausing_readers: dict[tuple[type[Message], int], Callable[..., Generator[None, None, tuple[Any, int]]]] = {}


def _malformed(cls: type[Message], version: int, error: Exception) -> WireError:
    said = error if isinstance(error, WireError) else _explain(error)
    return WireError(f"{cls.__schema__.name} v{version}: {said}")


def encode(message: Message, version: int) -> bytes:
    """A message's body.

    Raises:
        WireError: a value does not fit its field or the version, or the version is not one of ours.
    """
    return b"".join(_pieces(message, version))


def encode_element(element: Struct, version: int) -> bytes:
    """A struct of a message's list as bytes, which may stand in the list in its place.

    So that what is asked for often, or is long, can be encoded once and by and by.

    Raises:
        WireError: as `encode`.
    """
    cls = type(element)
    root: Any = cls.__root__
    write = _element_writers.get((cls, version))
    if write is None:
        _check_version(root, version)
        write = _element_writers[cls, version] = WriterSource(root, version).compile(cls)
    pieces: list[Part] = []
    try:
        write(element, pieces.append)
    except _UNWRITABLE as error:
        raise WireError(f"{cls.__name__} v{version} cannot be written: {error}") from error
    return b"".join(pieces)


def encode_names(cls: type[Struct], version: int, names: Iterable[str]) -> bytes:
    """Strings as bytes, which may stand in their place in a list of a message or of a struct in it.

    Raises:
        WireError: as `encode`.
    """
    root: Any = cls.__root__
    is_flexible = version in root.__schema__.flexible_versions
    try:
        encoded = [name.encode() for name in names]
        lengths = [uvarint(len(name) + 1) if is_flexible else _length16(len(name)) for name in encoded]
    except _UNWRITABLE as error:
        raise WireError(f"{cls.__name__} v{version} cannot be written: {error}") from error
    return b"".join(chain.from_iterable(zip(lengths, encoded, strict=True)))


def encode_names_by_and_by(
    cls: type[Struct], version: int, names: Sequence[str], at_once: int
) -> Generator[None, None, Encoded]:
    """Very many of them, with a pause after every `at_once`; what it returns may stand in place of the list.

    Raises:
        WireError: as `encode`.
    """
    chunks = []
    for start in range(0, len(names), at_once):
        part = names[start : start + at_once]
        chunks.append(encode_names(cls, version, part))
        if len(part) == at_once:
            yield
    return Encoded(len(names), chunks)


class Encoded:
    """What stands in a message in place of a long list of structs or strings that have been encoded already.

    Args:
        count: how many there are.
        chunks: their encodings, many in each.
    """

    __slots__ = ("_chunks", "_count")

    def __init__(self, count: int, chunks: list[bytes]) -> None:
        self._count = count
        self._chunks = chunks

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._chunks)


_element_writers: dict[tuple[type[Struct], int], Callable[..., None]] = {}


def encode_parts(message: Message, version: int) -> list[Part]:
    """A message's body as buffers to be written one after the other; large records are the caller's own objects.

    Raises:
        WireError: as `encode`.
    """
    parts: list[Part] = []
    small: list[Part] = []
    for piece in _pieces(message, version):
        if len(piece) < _BY_REFERENCE_BYTES:
            small.append(piece)
            continue
        if small:
            parts.append(b"".join(small))
            small.clear()
        parts.append(piece)
    if small:
        parts.append(b"".join(small))
    return parts


def _pieces(message: Message, version: int) -> list[Part]:
    schema = message.__schema__
    write = schema.encoders.get(version) or _writer(type(message), version)
    pieces: list[Part] = []
    try:
        write(message, pieces.append)
    except WireError as error:
        raise WireError(f"{schema.name} v{version}: {error}") from None
    except _UNWRITABLE as error:
        fault = find_fault(message, version) or error
        raise WireError(f"{schema.name} v{version} cannot be written: {fault}") from error
    return pieces


def _reader(cls: type[Message], version: int) -> Callable[..., tuple[Any, int]]:
    _check_version(cls, version)
    read = cls.__schema__.decoders[version] = ReaderSource(cls, version).compile()
    return read


def _writer(cls: type[Message], version: int) -> Callable[..., None]:
    _check_version(cls, version)
    write = cls.__schema__.encoders[version] = WriterSource(cls, version).compile()
    return write


def _check_version(cls: type[Message], version: int) -> None:
    schema = cls.__schema__
    if version not in schema.valid_versions:
        low, high = schema.valid_versions[0], schema.valid_versions[-1]
        raise WireError(f"{schema.name} v{version} is not spoken here; use a version from {low} to {high}")


def _wrong_end(cls: type[Message], version: int, left: int) -> NoReturn:
    problem = f"{left} bytes are left over" if left > 0 else f"{-left} bytes are missing"
    raise WireError(f"{cls.__schema__.name} v{version}: {problem}")


def _explain(error: Exception) -> str:
    return "the bytes end too early" if isinstance(error, (struct.error, IndexError)) else str(error)
