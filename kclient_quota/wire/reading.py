"""Writes the Python source that reads one message in one version, and what that source calls.

The source reads `buf[p]` on to `end`. A field that runs over the end moves `p` past it without harm (slices are cut
short, arrays are held against the bytes left before anything is allocated) and the caller finds `p` beyond `end`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from kclient_quota.errors import WireError
from kclient_quota.wire.schema import ZERO_UUID, Field, Struct, struct_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient_quota.wire.schema import Message

FORMATS = {"Bool": "?", "Int8": "b", "Int16": "h", "Uint16": "H", "Int32": "i", "Int64": "q", "Float64": "d"}
SIZES = {name: struct.calcsize(">" + code) for name, code in FORMATS.items()} | {"Uuid": 16}
MAX_ONE_BYTE = 127
FEW = 8  # arrays of numbers shorter than this have a struct ready
_ZERO_UUID_BYTES = bytes(16)
_MAX_UVARINT = 0xFFFFFFFF
_MOST_TAGS = 4_096  # Kafka's messages have a handful; each costs as much as a field
_NUMBERS_OF_AN_ELEMENT = 64  # so many numbers of an array are read in the time of one struct
_UVARINT_BITS = 28
_MAX_STRING_BYTES = 0x7FFF  # as Kafka's readers; before flexible versions a length cannot be more


def read_uvarint(buf: bytes | memoryview, p: int) -> tuple[int, int]:
    """The unsigned varint at `p` and the position behind it."""
    value = shift = 0
    while True:
        byte = buf[p]
        p += 1
        value |= (byte & 0x7F) << shift
        if byte <= MAX_ONE_BYTE:
            break
        shift += 7
        if shift > _UVARINT_BITS:
            raise WireError("a varint is longer than five bytes")
    if value > _MAX_UVARINT:
        raise WireError(f"the varint {value} does not fit 32 bits")
    return value, p


def read_unknown_tags(buf: memoryview, p: int, end: int) -> tuple[dict[int, bytes] | None, int]:
    """The tagged fields at `p` as bytes by number, None when there are none, and the position behind them."""
    count, p = read_uvarint(buf, p)
    if count * 2 > end - p or count > _MOST_TAGS:
        _too_long("tagged fields", count, end - p)
    tags: dict[int, bytes] = {}
    for _ in range(count):
        tag, p = read_uvarint(buf, p)
        size, p = read_uvarint(buf, p)
        if size > end - p:
            _too_long(f"tagged field {tag}", size, end - p)
        tags[tag] = bytes(buf[p : p + size])
        p += size
    return tags or None, p


def _read_uuid(raw: bytes | memoryview) -> UUID:
    return ZERO_UUID if raw == _ZERO_UUID_BYTES else UUID(bytes=bytes(raw))


def _null(name: str) -> NoReturn:
    raise WireError(f"{name} is null, which this version does not allow")


def _too_long(name: str, length: int, left: int) -> NoReturn:
    raise WireError(f"{name} claims length {length} with {left} bytes left")


def _long_string(name: str, length: int) -> NoReturn:
    raise WireError(f"{name} has {length} bytes; a string has {_MAX_STRING_BYTES} at most")


def _tag_size(name: str) -> NoReturn:
    raise WireError(f"tagged field {name} does not fill its stated size")


def unpacker(codes: str) -> Callable[..., Any]:
    """`unpack_from` of the big-endian struct with these codes."""
    return struct.Struct(">" + codes).unpack_from


class ManyElements(Exception):  # noqa: N818 - no error: it is read by and by then
    """A message has more elements than may be read at once."""


def _many() -> NoReturn:
    raise ManyElements


class ReaderSource:
    """Source of `read(buf, p, end, most) -> (message, p)` for one class and version.

    It raises `ManyElements` once the arrays have had more than `most` elements. With `pauses` it is a generator, which
    yields after every `most` elements and returns the same.
    """

    def __init__(self, cls: type[Message], version: int, *, pauses: bool = False) -> None:
        self._root = cls
        self._version = version
        self._pauses = pauses
        self._flexible = version in cls.__schema__.flexible_versions
        self._lines: list[str] = []
        self._depth = 1
        self._count = 0
        self._names: dict[str, Any] = {
            "new": object.__new__,
            "uvarint": read_uvarint,
            "unknown_tags": read_unknown_tags,
            "uuid": _read_uuid,
            "null": _null,
            "many": _many,
            "too_long": _too_long,
            "long_string": _long_string,
            "tag_size": _tag_size,
            "unpack_from": struct.unpack_from,
            "length16": unpacker("h"),
            "length32": unpacker("i"),
        }

    def compile(self) -> Callable[..., Any]:
        """The function itself."""
        top = self._struct(self._root)
        self._emit(f"return {top}, p")
        body = "\n".join(self._lines)
        head = "def read(buf, p, end, most=1 << 62):\n    view = memoryview(buf); left = most"
        source = f"{head}\n{body}\n"
        exec(source, self._names)  # noqa: S102 - the source is made of our own tables, as dataclasses does
        read: Callable[..., Any] = self._names["read"]
        return read

    def _emit(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _constant(self, prefix: str, value: Any) -> str:
        name = self._fresh(prefix)
        self._names[name] = value
        return name

    def _struct(self, cls: type[Struct]) -> str:
        """Read a struct into a new variable, whose name is returned."""
        var = self._fresh("o")
        self._emit(f"{var} = new({self._constant('C', cls)})")
        run: list[Field] = []
        for spec in cls.__fields__:
            if self._version not in spec.versions or spec.tag is not None:
                self._default(var, spec)
            elif spec.type in FORMATS and not spec.is_array:
                run.append(spec)
            else:
                self._run(var, run)
                self._value(f"{var}.{spec.name}", spec)
        self._run(var, run)
        self._tags(var, cls)
        return var

    def _run(self, var: str, run: list[Field]) -> None:
        """Read neighbouring fields of fixed size at once."""
        if not run:
            return
        codes = "".join(FORMATS[spec.type] for spec in run)
        targets = ", ".join(f"{var}.{spec.name}" for spec in run)
        self._emit(f"({targets},) = {self._constant('U', unpacker(codes))}(buf, p)")
        self._emit(f"p += {struct.calcsize('>' + codes)}")
        run.clear()

    def _default(self, var: str, spec: Field) -> None:
        target = f"{var}.{spec.name}"
        if spec.default == ():
            self._emit(f"{target} = []")
        elif spec.is_struct and not spec.is_array and not spec.null:
            self._emit(f"{target} = {self._constant('C', struct_class(self._root, spec.type))}()")
        else:
            self._emit(f"{target} = {self._constant('D', spec.default)}")

    def _value(self, target: str, spec: Field) -> None:
        if spec.is_array:
            self._array(target, spec)
        elif spec.is_struct:
            self._nested(target, spec)
        elif spec.type == "Uuid":
            self._emit(f"{target} = uuid(buf[p : p + 16]); p += 16")
        elif spec.type in FORMATS:
            self._emit(f"({target},) = {self._constant('U', unpacker(FORMATS[spec.type]))}(buf, p)")
            self._emit(f"p += {SIZES[spec.type]}")
        else:
            self._bytes(target, spec)

    def _nested(self, target: str, spec: Field) -> None:
        nullable = self._version in spec.null
        if nullable:
            self._emit("p += 1")
            # a struct is preceded by a signed byte, as a tagged field by an unsigned varint
            self._emit("if buf[p - 1] > 127:" if spec.tag is None else "if buf[p - 1] == 0:")
            self._emit(f"    {target} = None")
            self._emit("else:")
            self._depth += 1
        inner = self._struct(struct_class(self._root, spec.type))
        self._emit(f"{target} = {inner}")
        self._depth -= nullable

    def _length(self, spec: Field, *, short: bool) -> str:
        """Read a length into a new variable, -1 (or less) standing for null."""
        n = self._fresh("n")
        if self._flexible:
            self._emit(f"{n} = buf[p] - 1; p += 1")
            self._emit(f"if {n} > 126:")
            self._emit(f"    {n}, p = uvarint(buf, p - 1); {n} -= 1")
            if short:
                self._emit(f"    if {n} > {_MAX_STRING_BYTES}: long_string({spec.name!r}, {n})")
        else:
            self._emit(f"({n},) = length{16 if short else 32}(buf, p); p += {2 if short else 4}")
        if self._version not in spec.null:
            self._emit(f"if {n} < 0: null({spec.name!r})")
        return n

    def _bytes(self, target: str, spec: Field) -> None:
        n = self._length(spec, short=spec.type == "String")
        taken = {
            "String": f"str(buf[p : p + {n}], 'utf-8', 'replace')",
            "Bytes": f"bytes(view[p : p + {n}])",
            "Records": f"view[p : p + {n}]",
        }[spec.type]
        step = f"{target} = {taken}; p += {n}"
        if self._version in spec.null:
            self._emit(f"if {n} < 0: {target} = None")
            self._emit(f"else: {step}")
        else:
            self._emit(step)

    def _array(self, target: str, spec: Field) -> None:
        n = self._length(spec, short=False)
        nullable = self._version in spec.null
        if nullable:
            self._emit(f"if {n} < 0: {target} = None")
            self._emit("else:")
            self._depth += 1
        self._emit(f"if {n} * {self._least_size(spec)} > end - p: too_long({spec.name!r}, {n}, end - p)")
        if spec.type in FORMATS:
            code = FORMATS[spec.type]
            few = self._constant("few", [unpacker(code * size) for size in range(FEW)])
            self._emit(f"if {n} < {FEW}: {target} = list({few}[{n}](buf, p))")
            self._emit(f"else: {target} = list(unpack_from(f'>{{{n}}}{code}', buf, p))")
            self._emit(f"p += {n} * {SIZES[spec.type]}")
            self._emit(f"if {n} >= {_NUMBERS_OF_AN_ELEMENT}:")
            self._depth += 1
            self._counted(f"{n} // {_NUMBERS_OF_AN_ELEMENT}")
            self._depth -= 1
        else:
            self._elements(target, spec, n)
        self._depth -= nullable

    def _elements(self, target: str, spec: Field, n: str) -> None:
        items = self._fresh("l")
        self._emit(f"{target} = {items} = []")
        if not self._pauses:
            self._counted(n)
        self._emit(f"for _ in range({n}):")
        self._depth += 1
        if self._pauses:
            self._counted("1")
        if spec.is_struct:
            item = self._struct(struct_class(self._root, spec.type))
        else:
            item = self._fresh("v")
            self._value(item, spec.element())
        self._emit(f"{items}.append({item})")
        self._depth -= 1

    def _counted(self, elements: str) -> None:
        """Take so many off what is left to be read at once."""
        self._emit(f"left -= {elements}")
        self._emit("if left < 0: " + ("yield; left = most" if self._pauses else "many()"))

    def _least_size(self, spec: Field) -> int:
        """The fewest bytes one element of the array takes."""
        if not spec.is_struct:
            return SIZES.get(spec.type, 1 if self._flexible else 2)
        inner = struct_class(self._root, spec.type)
        total = int(self._flexible)
        for part in inner.__fields__:
            if self._version in part.versions and part.tag is None:
                total += self._least_field_size(part)
        return max(total, 1)

    def _least_field_size(self, spec: Field) -> int:
        if spec.is_array or spec.type in {"Bytes", "Records"}:
            return 1 if self._flexible else 4
        if spec.is_struct:
            return 1 if self._version in spec.null else self._least_size(spec)
        return SIZES.get(spec.type, 1 if self._flexible else 2)

    def _tags(self, var: str, cls: type[Struct]) -> None:
        if not self._flexible:
            self._emit(f"{var}.unknown_tags = None")
            return
        known = [spec for spec in cls.__fields__ if spec.tag is not None and self._version in spec.versions]
        self._emit(f"if not buf[p]: {var}.unknown_tags = None; p += 1")
        if not known:
            self._emit(f"else: {var}.unknown_tags, p = unknown_tags(view, p, end)")
            return
        self._emit("else:")
        self._depth += 1
        self._known_tags(var, known)
        self._depth -= 1

    def _known_tags(self, var: str, known: list[Field]) -> None:
        count, tag, size, stop = (self._fresh(name) for name in ("count", "tag", "size", "stop"))
        unknown = self._fresh("unknown")
        self._emit(f"{unknown} = {{}}")
        self._emit(f"{count}, p = uvarint(buf, p)")
        self._emit(f"if {count} * 2 > end - p or {count} > {_MOST_TAGS}: too_long('tagged fields', {count}, end - p)")
        self._emit(f"for _ in range({count}):")
        self._depth += 1
        self._emit(f"{tag}, p = uvarint(buf, p)")
        self._emit(f"{size}, p = uvarint(buf, p); {stop} = p + {size}")
        self._emit(f"if {stop} > end: too_long(f'tagged field {{{tag}}}', {size}, end - p)")
        for spec in known:
            self._emit(f"if {tag} == {spec.tag}:")
            self._depth += 1
            self._value(f"{var}.{spec.name}", spec)
            self._emit(f"if p != {stop}: tag_size({spec.name!r})")
            self._emit("continue")
            self._depth -= 1
        self._emit(f"{unknown}[{tag}] = bytes(view[p:{stop}]); p = {stop}")
        self._depth -= 1
        self._emit(f"{var}.unknown_tags = {unknown} or None")
