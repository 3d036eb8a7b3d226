"""What producers send: seeded, so that every client and every run sends the same bytes.

A value is the message's id in ten digits, then a body. Bodies repeat after so many messages that a batch of a megabyte
hardly holds one twice, even where it is one of a hundred partitions' and took minutes to fill. That needs numbers that
are no multiples of KEYS: otherwise a partition gets the same few bodies again and again, and noise compresses 4 : 1.
"""

import json
import random
import struct
from functools import cache
from pathlib import Path

NOISE = 20_011
BODIES = 50_021
DOCUMENTS = 2_003
KEYS = 1_000
KINDS = ("dots", "orders", "noise", "readings", "documents")
SIZES = {"readings": 20, "orders": 290, "noise": 1_000, "documents": 10_000}
"""Bytes of a value, about, where the kind decides."""
_SEED = 714
_LENGTH = struct.Struct(">i")
_CITIES = ("Berlin", "Paris", "London", "Madrid", "Rome", "Vienna", "Prague", "Lisbon")
_EVENTS = ("order_created", "order_paid", "order_shipped")


@cache
def bodies(kind: str, size: int) -> tuple[bytes, ...]:
    """The bodies that follow the ids.

    Args:
        kind: "dots" (one repeated byte) or "noise" (nothing for a compressor), of `size`; "orders" (JSON as shops send
            it, about 290 bytes), "readings" (of sensors, 20 bytes) or "documents" (of 36 orders each, 10,000 bytes).
        size: bytes of a whole value.
    """
    random_ = random.Random(_SEED)
    rest = size - 10
    if kind == "dots":
        return (b"." * rest,)
    if kind == "noise":
        return tuple(random_.randbytes(rest) for _ in range(NOISE))
    if kind == "orders":
        return tuple(_order(random_, number) for number in range(BODIES))
    if kind == "readings":
        return tuple(f",{random_.randrange(100):02}, {random_.gauss(21, 2):.2f}".encode() for _ in range(BODIES))
    if kind == "documents":
        orders = (_order(random_, number) for number in range(36 * DOCUMENTS))
        return tuple(map(b",".join, zip(*[orders] * 36, strict=True)))
    raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")


def _order(random_: random.Random, number: int) -> bytes:
    user = {"id": random_.randrange(10**6), "city": random_.choice(_CITIES), "tier": random_.choice(("gold", "free"))}
    items = [
        {"sku": f"SKU-{random_.randrange(99_999):05}", "qty": random_.randrange(1, 9), "price_eur": _price(random_)}
        for _ in range(3)
    ]
    event = {"type": random_.choice(_EVENTS), "user": user, "items": items, "ts": 1_763_700_000_000 + number * 20}
    return json.dumps(event).encode()


def _price(random_: random.Random) -> float:
    return random_.randrange(100, 9_999) / 100


def mean_size(kind: str, size: int) -> float:
    """Bytes of a value, on average."""
    of_kind = bodies(kind, size)
    return 10 + sum(map(len, of_kind)) / len(of_kind)


def key_of(message_id: int, partitions: int) -> bytes | None:
    """The key of a message on a keyed topic; None where `partitions` is 0, which stands for keyless."""
    return str(message_id % KEYS).encode() if partitions else None


def write(path: Path, kind: str, size: int) -> None:
    """The bodies in a file, each behind its length, for clients in other languages."""
    with path.open("wb") as out:
        for body in bodies(kind, size):
            out.write(_LENGTH.pack(len(body)) + body)
