"""Frames and the headers inside them.

A frame is a 32-bit length and that many bytes: a header (client id, correlation id) and a message's body.
`FrameSplitter` cuts a stream into frames; `encode_request`, `decode_request_header`, `encode_response` and
`decode_response_header` put headers on and take them off. Pure: bytes in, bytes out.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kclient_quota.errors import WireError
from kclient_quota.wire.codec import encode_parts
from kclient_quota.wire.messages import API
from kclient_quota.wire.reading import read_unknown_tags
from kclient_quota.wire.writing import write_tags

if TYPE_CHECKING:
    from kclient_quota.wire.codec import Part
    from kclient_quota.wire.schema import Message

MAX_FRAME_BYTES = 100 * 1024 * 1024
"""Kafka's `socket.request.max.bytes`."""

CONTROLLED_SHUTDOWN_KEY = 7
_LENGTH = struct.Struct(">i")
_REQUEST_START = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")
_NO_TAGS = b"\x00"


@dataclass(slots=True)
class RequestHeader:
    """What stands in front of every request.

    Attributes:
        api_key: Kafka's number of the API.
        api_version: the version the body is written in.
        correlation_id: repeated by the response.
        client_id: None when the client sent a null one.
        unknown_tags: tagged fields of the header, kept.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None
    unknown_tags: dict[int, bytes] | None = None


@dataclass(slots=True)
class ResponseHeader:
    """What stands in front of every response."""

    correlation_id: int
    unknown_tags: dict[int, bytes] | None = None


def request_header_version(api_key: int, api_version: int) -> int:
    """0, 1 or 2. ControlledShutdown v0 has no client id; an API we do not know counts as not flexible."""
    if api_key == CONTROLLED_SHUTDOWN_KEY and api_version == 0:
        return 0
    api = API.get(api_key)
    return api.request_header_version(api_version) if api else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """0 or 1; always 0 for ApiVersions."""
    api = API.get(api_key)
    return api.response_header_version(api_version) if api else 0


def decode_request_header(
    buffer: bytes | bytearray | memoryview, offset: int = 0, end: int | None = None
) -> tuple[RequestHeader, int]:
    """The header of a request frame and the position where the body starts.

    A version newer than ours is read with the header of its flexibility, so that ApiVersions of any version can be
    answered.

    Raises:
        WireError: the bytes are no request header.
    """
    stop = len(buffer) if end is None else end
    try:
        key, version, correlation_id, size = _REQUEST_START.unpack_from(buffer, offset)
        header_version = request_header_version(key, version)
        if header_version == 0:
            return RequestHeader(key, version, correlation_id), offset + 8
        position = offset + 10
        client_id = None
        if size >= 0:
            client_id = str(buffer[position : position + size], "utf-8", "replace")  # as Kafka reads strings
            position += size
        header = RequestHeader(key, version, correlation_id, client_id)
        if header_version > 1:
            if buffer[position]:
                header.unknown_tags, position = read_unknown_tags(memoryview(buffer), position, stop)
            else:
                position += 1
    except (struct.error, IndexError) as error:
        raise WireError(f"the request header is malformed: {error}") from None
    if position > stop:
        raise WireError(f"the request header needs {position - stop} more bytes")
    return header, position


def decode_response_header(
    buffer: bytes | bytearray | memoryview, header_version: int, offset: int = 0, end: int | None = None
) -> tuple[ResponseHeader, int]:
    """The header of a response frame and the position where the body starts.

    Args:
        buffer: holds the frame.
        header_version: as `response_header_version` says for the request.
        offset: where the frame starts, after its length.
        end: where it ends, by default where the buffer does.

    Raises:
        WireError: the bytes are no response header.
    """
    stop = len(buffer) if end is None else end
    position = offset + 4
    tags = None
    try:
        (correlation_id,) = _CORRELATION.unpack_from(buffer, offset)
        if header_version:
            tags, position = read_unknown_tags(memoryview(buffer), position, stop)
    except (struct.error, IndexError) as error:
        raise WireError(f"the response header is malformed: {error}") from None
    if position > stop:
        raise WireError(f"the response header needs {position - stop} more bytes")
    return ResponseHeader(correlation_id, tags), position


def encode_request_header(header: RequestHeader) -> bytes:
    """The header in the version its API asks for.

    Raises:
        WireError: the client id is no text that can be written.
    """
    version = request_header_version(header.api_key, header.api_version)
    start = struct.pack(">hhi", header.api_key, header.api_version, header.correlation_id)
    if version == 0:
        return start
    try:
        client_id = header.client_id.encode() if header.client_id is not None else None
        pieces = [start, struct.pack(">h", -1 if client_id is None else len(client_id)), client_id or b""]
    except (UnicodeEncodeError, struct.error) as error:
        raise WireError(f"the client id cannot be written: {error}") from error
    if version > 1:
        _append_tags(pieces, header.unknown_tags)
    return b"".join(pieces)


def encode_request(message: Message, header: RequestHeader) -> list[Part]:
    """A whole frame, length first, as buffers to be written one after the other."""
    return _frame(encode_request_header(header), encode_parts(message, header.api_version))


def encode_response(message: Message, version: int, correlation_id: int) -> list[Part]:
    """A whole frame, length first, as buffers to be written one after the other; large records are not copied.

    Args:
        message: the response.
        version: the version the request was written in (0 for ApiVersions with UNSUPPORTED_VERSION).
        correlation_id: that of the request.
    """
    header = _CORRELATION.pack(correlation_id)
    if response_header_version(message.__schema__.api_key, version):
        header += _NO_TAGS
    return _frame(header, encode_parts(message, version))


def _frame(header: bytes, parts: list[Part]) -> list[Part]:
    start = _LENGTH.pack(len(header) + sum(map(len, parts))) + header
    if parts and isinstance(parts[0], bytes):
        parts[0] = start + parts[0]
        return parts
    return [start, *parts]


def _append_tags(pieces: list[bytes], tags: dict[int, bytes] | None) -> None:
    if tags:
        write_tags(pieces.append, tags)
    else:
        pieces.append(_NO_TAGS)


class FrameSplitter:
    """Cuts a stream of bytes into frames, however the bytes arrive.

    Args:
        max_frame_bytes: a longer frame is refused before any of it is kept.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Bytes received that do not make a frame yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Take in bytes, give out the frames they complete, without their lengths.

        Raises:
            WireError: a length is negative or above the limit; the stream is lost from there on.
        """
        buffer = self._buffer
        buffer += data
        frames = []
        position, size = 0, len(buffer)
        while size - position >= _LENGTH.size:
            length = frame_length(buffer, position, self._max_frame_bytes)
            start, position_after = position + _LENGTH.size, position + _LENGTH.size + length
            if position_after > size:
                break
            frames.append(bytes(memoryview(buffer)[start:position_after]))
            position = position_after
        if position:
            del buffer[:position]
        return frames


def frame_length(buffer: bytes | bytearray | memoryview, offset: int, max_frame_bytes: int = MAX_FRAME_BYTES) -> int:
    """The length that stands at `offset`, for those who keep buffers of their own.

    Raises:
        WireError: it is negative or above the limit.
    """
    (length,) = _LENGTH.unpack_from(buffer, offset)
    if not 0 <= length <= max_frame_bytes:
        raise WireError(f"a frame of {length} bytes is refused; the limit is {max_frame_bytes}")
    size: int = length
    return size
