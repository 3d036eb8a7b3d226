"""Says which field keeps a message from being written; runs only once writing has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from kclient_quota.wire.schema import Field, Struct, struct_class

if TYPE_CHECKING:
    from collections.abc import Iterator

_BITS = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}
_UINT16 = range(1 << 16)
_CLASSES: dict[str, tuple[type, ...]] = {
    "Bool": (bool, int),
    "Float64": (float, int),
    "String": (str,),
    "Uuid": (UUID,),
    "Bytes": (bytes, bytearray, memoryview),
    "Records": (bytes, bytearray, memoryview),
}
_SHOWN_CHARACTERS = 60


def find_fault(message: Struct, version: int) -> str | None:
    """The first field whose value does not fit its type, with its path; None when all do."""
    return next(_faults(type(message), message, version, ""), None)


def _faults(root: type[Struct], struct: Struct, version: int, path: str) -> Iterator[str]:
    for spec in struct.__fields__:
        if version not in spec.versions:
            continue
        value = getattr(struct, spec.name, None)
        here = f"{path}{spec.name}"
        if value is None:
            if version not in spec.null:
                yield f"{here} is None, which this version does not allow"
        elif not spec.is_array:
            yield from _value_faults(root, spec, value, version, here)
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                yield from _value_faults(root, spec, item, version, f"{here}[{index}]")
        else:
            yield f"{here} is {_show(value)}, which is no list"


def _value_faults(root: type[Struct], spec: Field, value: Any, version: int, here: str) -> Iterator[str]:
    if spec.is_struct:
        if isinstance(value, struct_class(root, spec.type)):
            yield from _faults(root, value, version, f"{here}.")
        else:
            yield f"{here} is {_show(value)}, which is no {root.__name__}.{spec.type}"
    elif not _fits(spec.type, value):
        yield f"{here} is {_show(value)}, which is no {spec.type}"


def _fits(kind: str, value: Any) -> bool:
    if kind in _BITS:
        half = 1 << (_BITS[kind] - 1)
        return isinstance(value, int) and -half <= value < half
    return isinstance(value, _CLASSES[kind]) if kind != "Uint16" else value in _UINT16


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
