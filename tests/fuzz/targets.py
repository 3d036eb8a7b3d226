"""What strangers' bytes go through in one process: read or refused with the one error that is declared for it."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from kclient_telemetry.compression import CompressionType, compress, decompress
from kclient_telemetry.errors import TelemetryError
from kclient_telemetry.otlp import parse, with_resource_attributes

from kclient_quota.broker.log.record_fields import UnsoundRecords
from kclient_quota.broker.log.record_validation import see_records
from kclient_quota.errors import WireError
from kclient_quota.wire.batches import iterate_batches, parse_header
from kclient_quota.wire.codec import decode, encode
from kclient_quota.wire.messages import API
from kclient_quota.wire.records import Record, build_batch, iterate_records
from tests.unit.wire.random_message import random_struct

MOST_BYTES = 100_000
"""What may come out of compression."""
PUSHES = Path(__file__).parent.parent / "spark" / "payloads"

EVERY_MESSAGE = [
    (cls, version)
    for api in API.values()
    for cls in (api.request, api.response)
    for version in cls.__schema__.valid_versions
]


def broken(rng: Random, body: bytes) -> bytes:
    """With one to four mistakes: other bytes, an end, bytes too many, a huge number."""
    made = bytearray(body or b"\0")
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(made))
        kind = rng.random()
        if kind < 0.6:
            made[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind < 0.75:
            del made[at:]
            made += b"" if made else b"\0"
        elif kind < 0.9:
            made[at:at] = rng.randbytes(rng.randrange(1, 9))
        else:
            made[at : at + 4] = b"\x7f\xff\xff\xff"
    return bytes(made)


Target = tuple[list[Any], Callable[[Any, bytes], bool]]
"""Sound examples, each a pair of what is told of the bytes and the bytes; whether broken bytes of it were read."""


def messages(rng: Random) -> Target:
    """Requests and responses of all APIs and versions; what is read can be written, and means the same."""
    sound = [
        ((cls, version), encode(random_struct(rng, cls, version), version))
        for cls, version in EVERY_MESSAGE
        for _ in range(3)
    ]

    def read(told: Any, body: bytes) -> bool:
        cls, version = told
        try:
            message = decode(cls, version, body)
        except WireError:
            return False
        written = encode(message, version)
        assert encode(decode(cls, version, written), version) == written
        return True

    return sound, read


def _batches(rng: Random) -> list[Any]:
    return [
        (
            None,
            bytes(
                build_batch(
                    [
                        Record(rng.randbytes(rng.randrange(60)), b"key", [("h", b"v")], 1_700_000_000_000 + index)
                        for index in range(rng.randrange(1, 20))
                    ],
                    compression=kind,
                )
            ),
        )
        for kind in (0, 0, 0, 1, 2, 3, 4)
        for _ in range(20)
    ]


def batches(rng: Random) -> Target:
    """Record batches, as clients read them."""

    def read(_told: Any, body: bytes) -> bool:
        try:
            for position, header in iterate_batches(body):
                for _ in iterate_records(body, position, header=header, max_inflated_bytes=MOST_BYTES, verify=False):
                    continue
        except WireError:
            return False
        return True

    return _batches(rng), read


def appended(rng: Random) -> Target:
    """Record batches, as the broker looks at them before it appends them."""

    def read(_told: Any, body: bytes) -> bool:
        try:
            header = parse_header(body, 0, len(body))
            if header.size != len(body):
                return False
            see_records(body, header, 0, 1 << 62)
        except (WireError, UnsoundRecords):
            return False
        return True

    return _batches(rng), read


def pushes(_rng: Random) -> Target:
    """Telemetry of real clients, in the receiver."""
    found = [path.read_bytes() for path in sorted(PUSHES.rglob("*")) if path.is_file()]
    sound = []
    for payload in found:
        try:
            parse(payload)
        except TelemetryError:
            continue
        sound.append((None, payload))

    def read(_told: Any, body: bytes) -> bool:
        try:
            with_resource_attributes(body, {"client_id": "fuzz"}, parse(body))
        except TelemetryError:
            return False
        return True

    return sound, read


def compressed(rng: Random) -> Target:
    """Every compression, with a limit to what comes out."""
    sound = []
    for kind in CompressionType:
        for size in (0, 10, 300, 5_000):
            sound.append((kind, compress(rng.randbytes(size // 2) + bytes(size // 2), kind)))
        sound.append((kind, compress(bytes(3 * MOST_BYTES), kind)))

    def read(told: Any, body: bytes) -> bool:
        try:
            assert len(decompress(body, told, MOST_BYTES)) <= MOST_BYTES
        except TelemetryError:
            return False
        return True

    return sound, read


TARGETS: dict[str, tuple[float, Callable[[Random], Target]]] = {
    "messages": (0.5, messages),
    "record batches read": (0.15, batches),
    "record batches appended": (0.15, appended),
    "telemetry pushes": (0.1, pushes),
    "decompression": (0.1, compressed),
}
"""With the share of all frames."""
