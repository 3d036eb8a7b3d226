"""Random messages out of our own tables, for the oracles to check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from kclient_quota.wire.schema import Field, Struct, struct_class

if TYPE_CHECKING:
    from random import Random

BITS = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}
TEXTS = ("", "a", "orders", "user-1", "grün", "日本語", "x" * 126, "y" * 127, "z" * 300)


def random_struct(
    rng: Random, cls: type[Struct], version: int, *, root: type[Struct] | None = None, tame: bool = False
) -> Struct:
    """A struct with random values in the fields that the version has.

    `tame` keeps to the error codes, durations and times that kio has classes for.
    """
    top = root or cls
    made = cls()
    for spec in cls.__fields__:
        if version in spec.versions:
            setattr(made, spec.name, random_field(rng, top, spec, version, tame=tame))
    return made


def random_field(rng: Random, root: type[Struct], spec: Field, version: int, *, tame: bool) -> Any:
    if version in spec.null and rng.random() < 0.25:
        return None
    if spec.is_array:
        count = rng.choice((0, 1, 1, 2, 3, 10 if spec.type not in vars(root) else 1))
        return [random_value(rng, root, spec, version, tame=tame) for _ in range(count)]
    return random_value(rng, root, spec, version, tame=tame)


def random_value(rng: Random, root: type[Struct], spec: Field, version: int, *, tame: bool) -> Any:
    if spec.is_struct:
        return random_struct(rng, struct_class(root, spec.type), version, root=root, tame=tame)
    if spec.type in BITS:
        bits = BITS[spec.type]
        top = 1 << (bits - 1)
        if tame and spec.name.endswith("error_code"):
            return rng.choice((-1, 0, 35, 89))
        if tame and spec.name.endswith(("_ms", "timestamp")):
            return rng.choice((0, 1, 60_000, 1_700_000_000_123 % top))
        return rng.choice((0, 1, -1, top - 1, -top, rng.getrandbits(bits) - top))
    return PRIMITIVES[spec.type](rng)


PRIMITIVES = {
    "String": lambda rng: rng.choice(TEXTS),
    "Uuid": lambda rng: UUID(int=rng.choice((0, 1, rng.getrandbits(128)))),
    "Bool": lambda rng: rng.random() < 0.5,
    "Uint16": lambda rng: rng.choice((0, 1, 9092, 0x7FFF, 0x8000, 0xFFFF)),
    "Float64": lambda rng: rng.choice((0.0, -1.5, 1024.0, rng.random() * 1e9)),
    "Bytes": lambda rng: rng.randbytes(rng.choice((0, 1, 126, 127, 2000))),
    "Records": lambda rng: rng.randbytes(rng.choice((0, 1, 61, 126, 127, 128, 2000))),
}
