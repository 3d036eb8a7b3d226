"""Writes the Python source that writes one message in one version, and what that source calls.

The source appends pieces to a list; `records` go in as they are, so that a batch is never copied on its way out.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NoReturn

from kclient_quota.errors import WireError
from kclient_quota.wire.reading import FEW, FORMATS, MAX_ONE_BYTE
from kclient_quota.wire.schema import Field, Struct, struct_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient_quota.wire.schema import Message

_ONE_BYTE = tuple(bytes([value]) for value in range(MAX_ONE_BYTE + 1))


def uvarint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > MAX_ONE_BYTE:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_tags(append: Callable[[Any], None], tags: dict[int, bytes]) -> None:
    """Append a section of tagged fields, in ascending order."""
    append(uvarint(len(tags)))
    for tag in sorted(tags):
        append(uvarint(tag))
        append(uvarint(len(tags[tag])))
        append(tags[tag])


def _clashing_tag(name: str, tag: int) -> NoReturn:
    raise WireError(f"unknown_tags of {name} holds tag {tag}, which this version knows as a field")


def _unsupported(name: str, versions: str) -> NoReturn:
    raise WireError(f"{name} is set, which needs version {versions}")


def _null(name: str) -> NoReturn:
    raise WireError(f"{name} is None, which this version does not allow")


def packer(codes: str) -> Callable[..., bytes]:
    """`pack` of the big-endian struct with these codes."""
    return struct.Struct(">" + codes).pack


class WriterSource:
    """Source of `write(o, append)` for one class and version."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self._root = cls
        self._version = version
        self._flexible = version in cls.__schema__.flexible_versions
        self._lines: list[str] = []
        self._depth = 1
        self._count = 0
        self._append = "append"
        self._names: dict[str, Any] = {
            "ONE": _ONE_BYTE,
            "NONE8": b"\x00",
            "NONE16": b"\xff\xff",
            "NONE32": b"\xff\xff\xff\xff",
            "uvarint": uvarint,
            "write_tags": write_tags,
            "clashing_tag": _clashing_tag,
            "unsupported": _unsupported,
            "null": _null,
            "pack": struct.pack,
            "length16": packer("h"),
            "length32": packer("i"),
        }

    def compile(self, element: type[Struct] | None = None) -> Callable[..., None]:
        """The function itself; of the whole message, or of a struct in it."""
        self._struct("o", element or self._root)
        body = "\n".join(self._lines)
        exec(f"def write(o, append):\n{body}\n    return None\n", self._names)  # noqa: S102 - as in reading.py
        write: Callable[..., None] = self._names["write"]
        return write

    def _emit(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _constant(self, prefix: str, value: Any) -> str:
        name = self._fresh(prefix)
        self._names[name] = value
        return name

    def _struct(self, var: str, cls: type[Struct]) -> None:
        run: list[str] = []
        codes = ""
        for spec in cls.__fields__:
            target = f"{var}.{spec.name}"
            if self._version not in spec.versions:
                self._absent(target, spec)
            elif spec.tag is None and spec.type in FORMATS and not spec.is_array:
                run.append(target)
                codes += FORMATS[spec.type]
            elif spec.tag is None:
                codes = self._run(run, codes)
                self._value(target, spec)
        self._run(run, codes)
        self._tags(var, cls)

    def _run(self, run: list[str], codes: str) -> str:
        """Write neighbouring fields of fixed size at once."""
        if run:
            self._emit(f"{self._append}({self._constant('P', packer(codes))}({', '.join(run)}))")
            run.clear()
        return ""

    def _absent(self, target: str, spec: Field) -> None:
        """A value that this version cannot carry is an error, unless Kafka calls the field ignorable."""
        if not spec.ignorable:
            span = f"{spec.versions.start}" if len(spec.versions) == 1 else f"{spec.versions.start} or later"
            if spec.versions.stop <= self._root.__schema__.valid_versions.stop:
                span = f"{spec.versions.start}-{spec.versions.stop - 1}"
            self._emit(f"if {self._differs(target, spec)}: unsupported({spec.name!r}, {span!r})")

    def _differs(self, target: str, spec: Field) -> str:
        """An expression: whether the value is not the default."""
        if spec.default == ():
            return f"(len({target}) if {target} is not None else True)"
        if spec.is_struct and not spec.is_array and not spec.null:
            parts = struct_class(self._root, spec.type).__fields__
            inner = [self._differs(f"{target}.{part.name}", part) for part in parts]
            return f"({' or '.join([*inner, f'{target}.unknown_tags'])})"
        if spec.default is None:
            return f"{target} is not None"
        return f"{target} != {self._constant('D', spec.default)}"

    def _value(self, target: str, spec: Field) -> None:
        nullable = self._version in spec.null
        value = self._fresh("v")
        self._emit(f"{value} = {target}")
        self._emit(f"if {value} is None: " + (self._null_mark(spec) if nullable else f"null({spec.name!r})"))
        if nullable:
            self._emit("else:")
            self._depth += 1
        self._present(value, spec)
        self._depth -= nullable

    def _present(self, value: str, spec: Field) -> None:
        if spec.is_array:
            self._array(value, spec)
        elif spec.is_struct:
            if self._version in spec.null:
                self._emit(f"{self._append}(ONE[1])")
            self._struct(value, struct_class(self._root, spec.type))
        elif spec.type == "Uuid":
            self._emit(f"{self._append}({value}.bytes)")
        elif spec.type in FORMATS:
            self._emit(f"{self._append}({self._constant('P', packer(FORMATS[spec.type]))}({value}))")
        else:
            if spec.type == "String":
                self._emit(f"{value} = {value}.encode()")
            self._length(value, short=spec.type == "String")
            self._emit(f"{self._append}({value})")

    def _null_mark(self, spec: Field) -> str:
        # a struct is preceded by a byte, as a tagged field by an unsigned varint
        if self._flexible and (spec.is_array or not spec.is_struct or spec.tag is not None):
            mark = "NONE8"
        elif spec.is_struct and not spec.is_array:
            mark = self._constant("N", b"\xff")
        else:
            mark = "NONE16" if spec.type == "String" and not spec.is_array else "NONE32"
        return f"{self._append}({mark})"

    def _length(self, value: str, *, short: bool) -> None:
        if self._flexible:
            n = self._fresh("n")
            self._emit(f"{n} = len({value}) + 1")
            self._emit(f"{self._append}(ONE[{n}] if {n} <= {MAX_ONE_BYTE} else uvarint({n}))")
        else:
            self._emit(f"{self._append}(length{16 if short else 32}(len({value})))")

    def _array(self, value: str, spec: Field) -> None:
        self._length(value, short=False)
        if spec.type in FORMATS:
            code, n = FORMATS[spec.type], self._fresh("n")
            few = self._constant("few", [packer(code * size) for size in range(FEW)])
            self._emit(f"{n} = len({value})")
            self._emit(f"if {n} < {FEW}: {self._append}({few}[{n}](*{value}))")
            self._emit(f"else: {self._append}(pack(f'>{{{n}}}{code}', *{value}))")
            return
        item = self._fresh("e")
        self._emit(f"for {item} in {value}:")
        self._depth += 1
        if spec.is_struct or spec.type == "String":
            # an element may be its own encoding already, see `codec.encode_element` and `codec.encode_names`
            self._emit(f"if {item}.__class__ is bytes:")
            self._emit(f"    {self._append}({item})")
            self._emit("    continue")
        if spec.is_struct:
            self._struct(item, struct_class(self._root, spec.type))
        else:
            self._present(item, spec.element())
        self._depth -= 1

    def _tags(self, var: str, cls: type[Struct]) -> None:
        if not self._flexible:
            return
        known = [spec for spec in cls.__fields__ if spec.tag is not None and self._version in spec.versions]
        if not known:
            self._emit(f"if {var}.unknown_tags: write_tags({self._append}, {var}.unknown_tags)")
            self._emit(f"else: {self._append}(NONE8)")
            return
        tags = self._fresh("tags")
        self._emit(f"{tags} = dict({var}.unknown_tags) if {var}.unknown_tags else {{}}")
        for spec in known:
            self._known_tag(f"{var}.{spec.name}", spec, tags)
        self._emit(f"if {tags}: write_tags({self._append}, {tags})")
        self._emit(f"else: {self._append}(NONE8)")

    def _known_tag(self, target: str, spec: Field, tags: str) -> None:
        pieces, outer = self._fresh("pieces"), self._append
        self._emit(f"if {spec.tag} in {tags}: clashing_tag({target!r}, {spec.tag})")
        self._emit(f"if {self._differs(target, spec)}:")
        self._depth += 1
        self._emit(f"{pieces} = []; {pieces}_append = {pieces}.append")
        self._append = f"{pieces}_append"
        self._value(target, spec)
        self._append = outer
        self._emit(f"{tags}[{spec.tag}] = b''.join({pieces})")
        self._depth -= 1
