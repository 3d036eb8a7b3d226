"""Kafka's five compression types, as PushTelemetry frames them.

gzip stream, LZ4 frame (independent blocks), zstd frame; snappy is written in the xerial framing of Java's
SnappyOutputStream and read in that framing or as the raw block that librdkafka sends.
Reading is bounded: whatever the input claims, no more than the allowed size plus one byte is inflated.

Codecs are loaded when they are first used. zstd is Python's own from 3.14 on, its backport before; snappy, which hardly
anybody offers without zstd, is an extra.
"""

# ruff: noqa: PLC0415 # so that importing a client does not load codecs that it may never use

import struct
import sys
import zlib
from collections.abc import Callable, Sequence
from enum import IntEnum
from importlib.util import find_spec
from typing import Any

from kclient_telemetry.errors import InvalidPayloadError, PayloadTooLargeError, UnsupportedCompressionTypeError


class CompressionType(IntEnum):
    """Kafka's ids, the same as in record batches."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_IDS = frozenset(CompressionType)

# The order in which Kafka's broker offers them (ClientMetricsManager.SUPPORTED_COMPRESSION_TYPES).
BROKER_PREFERENCE = (CompressionType.ZSTD, CompressionType.LZ4, CompressionType.GZIP, CompressionType.SNAPPY)

_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS
_GZIP_PIECE_BYTES = 1024
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024


def is_known(compression_type: int) -> bool:
    """Whether Kafka has a compression type of this id."""
    return compression_type in _IDS


def is_available(compression_type: int) -> bool:
    """Whether it can be written and read here: snappy needs an extra, `kclient-quota[snappy]`."""
    return is_known(compression_type) and (
        compression_type != CompressionType.SNAPPY or find_spec("cramjam") is not None
    )


def offered() -> tuple[CompressionType, ...]:
    """What a receiver offers here, in the order of Kafka's broker."""
    return tuple(kind for kind in BROKER_PREFERENCE if is_available(kind))


def preferred(accepted: Sequence[int], failed: frozenset[CompressionType] = frozenset()) -> CompressionType:
    """The first accepted type that is available and has not failed; NONE when there is none."""
    for candidate in accepted:
        if is_available(candidate) and candidate not in failed:
            return CompressionType(candidate)
    return CompressionType.NONE


def compress(data: bytes, compression_type: CompressionType) -> bytes:
    """`data` as Kafka's own clients would frame it.

    Raises:
        UnsupportedCompressionTypeError: it needs an extra that is not installed.
    """
    return _COMPRESSORS[compression_type](data)


def decompress(data: bytes, compression_type: int, max_bytes: int) -> bytes:
    """`data` inflated.

    Args:
        data: a compressed payload.
        compression_type: Kafka's id.
        max_bytes: the most that may come out.

    Raises:
        UnsupportedCompressionTypeError: no such id, or it needs an extra that is not installed.
        PayloadTooLargeError: more than `max_bytes` would come out; at most one byte more has been inflated.
        InvalidPayloadError: not what the type says, or cut short.
    """
    if not is_known(compression_type):
        raise UnsupportedCompressionTypeError(f"compression type {compression_type} is not one of Kafka's 0 to 4")
    inflated = _DECOMPRESSORS[CompressionType(compression_type)](data, max_bytes + 1)
    if len(inflated) > max_bytes:
        raise _too_large(max_bytes)
    return inflated


def _too_large(max_bytes: int) -> PayloadTooLargeError:
    return PayloadTooLargeError(f"the payload inflates to more than the allowed {max_bytes} bytes")


def _corrupt(name: str, error: object) -> InvalidPayloadError:
    return InvalidPayloadError(f"the payload is no {name} data: {error}")


def _identity(data: bytes) -> bytes:
    return data


def _gzip(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
    return compressor.compress(data) + compressor.flush()


def _cramjam() -> Any:
    try:
        import cramjam
    except ModuleNotFoundError as error:
        raise UnsupportedCompressionTypeError("snappy needs cramjam: pip install 'kclient-quota[snappy]'") from error
    return cramjam


def _zstd_library() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _xerial(data: bytes) -> bytes:
    snappy = _cramjam().snappy
    blocks = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        blocks.append(struct.pack(">i", len(block)) + block)
    return b"".join(blocks)


def _lz4(data: bytes) -> bytes:
    import lz4.frame

    framed: bytes = lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )
    return framed


def _zstd(data: bytes) -> bytes:
    compressed: bytes = _zstd_library().compress(data, level=3)
    return compressed


def _take(data: bytes, limit: int) -> bytes:
    return data[:limit]


def _gunzip(data: bytes, limit: int) -> bytes:
    """Inflate one or several gzip members, as Java's GZIPInputStream reads them.

    In pieces: zlib copies whatever of its input follows a member, which would be all the rest for each of thousands.
    """
    out = bytearray()
    view = memoryview(data)
    position = 0
    while True:
        inflater = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
        while not inflater.eof:
            piece = view[position : position + _GZIP_PIECE_BYTES]
            if not piece:
                raise _corrupt("gzip", "it is cut short")
            position += len(piece)
            try:
                out += inflater.decompress(piece, limit - len(out))
            except zlib.error as error:
                raise _corrupt("gzip", error) from error
            if len(out) >= limit:
                return bytes(out)
        position -= len(inflater.unused_data)
        if position == len(data):
            return bytes(out)


def _unlz4(data: bytes, limit: int) -> bytes:
    import lz4.frame

    inflater = lz4.frame.LZ4FrameDecompressor()
    try:
        out: bytes = inflater.decompress(data, max_length=limit)
    except (RuntimeError, EOFError) as error:
        raise _corrupt("LZ4", error) from error
    if len(out) < limit and (not inflater.eof or inflater.unused_data):
        raise _corrupt("LZ4", "it is cut short or followed by something else")
    return out


def _unzstd(data: bytes, limit: int) -> bytes:
    zstd = _zstd_library()
    inflater = zstd.ZstdDecompressor()
    try:
        claimed = zstd.get_frame_info(data).decompressed_size
        if claimed is not None and claimed >= limit:
            raise _too_large(limit - 1)
        out: bytes = inflater.decompress(data, max_length=limit)
    except zstd.ZstdError as error:
        raise _corrupt("zstd", error) from error
    if len(out) < limit and (not inflater.eof or inflater.unused_data):
        raise _corrupt("zstd", "it is cut short or followed by something else")
    return out


def _unsnappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnappy_block(data, limit)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(data) and len(out) < limit:
        start = position + 4
        length = int.from_bytes(data[position:start], "big")
        position = start + length
        if position > len(data):
            raise _corrupt("snappy", "a block is cut short")
        out += _unsnappy_block(data[start:position], limit - len(out))
    return bytes(out)


def _unsnappy_block(block: bytes, limit: int) -> bytes:
    """Inflate one raw block, whose first bytes say how much it will be: more than `limit` is not even begun."""
    cramjam = _cramjam()
    try:
        if cramjam.snappy.decompress_raw_len(block) >= limit:
            raise _too_large(limit - 1)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _corrupt("snappy", error) from error


_COMPRESSORS: dict[CompressionType, Callable[[bytes], bytes]] = {
    CompressionType.NONE: _identity,
    CompressionType.GZIP: _gzip,
    CompressionType.SNAPPY: _xerial,
    CompressionType.LZ4: _lz4,
    CompressionType.ZSTD: _zstd,
}

_DECOMPRESSORS: dict[CompressionType, Callable[[bytes, int], bytes]] = {
    CompressionType.NONE: _take,
    CompressionType.GZIP: _gunzip,
    CompressionType.SNAPPY: _unsnappy,
    CompressionType.LZ4: _unlz4,
    CompressionType.ZSTD: _unzstd,
}
