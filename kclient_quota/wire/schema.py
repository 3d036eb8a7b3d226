"""How Kafka's message tables are written down here: one class per message, one line per field.

    class ProduceRequest(Request, key=0, versions="3-13", flexible="9+"):
        transactional_id: String | None = field("3+", null="3+", default=None)
        topic_data: list[ProduceRequest.TopicProduceData] = field("0+")

        class TopicProduceData(Struct): ...

The annotation is the wire type, the columns of `field` are those of Apache Kafka's message specifications: the versions
that carry the field, the versions in which it may be null, its tag (KIP-482), its default, and whether a value may be
dropped silently when the version spoken has no such field. The classes are slots classes with keyword constructors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, dataclass_transform
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Bool: TypeAlias = bool
Int8: TypeAlias = int
Int16: TypeAlias = int
Uint16: TypeAlias = int
Int32: TypeAlias = int
Int64: TypeAlias = int
Float64: TypeAlias = float
String: TypeAlias = str
Uuid: TypeAlias = UUID
Bytes: TypeAlias = bytes
Records: TypeAlias = bytes | bytearray | memoryview

ZERO_UUID = UUID(int=0)
_LAST_VERSION = 32767
_MISSING: Any = object()
_ZERO: dict[str, Any] = {
    "Bool": False,
    "Int8": 0,
    "Int16": 0,
    "Uint16": 0,
    "Int32": 0,
    "Int64": 0,
    "Float64": 0.0,
    "String": "",
    "Uuid": ZERO_UUID,
    "Bytes": b"",
    "Records": None,
}


def parse_versions(text: str) -> range:
    """The versions a column of Kafka's tables means: `"2"`, `"0-3"`, `"3+"` or `"none"`."""
    if text == "none":
        return range(0)
    low, dash, high = text.partition("-")
    if low.endswith("+"):
        return range(int(low[:-1]), _LAST_VERSION + 1)
    return range(int(low), int(high if dash else low) + 1)


@dataclass(frozen=True, slots=True)
class Field:
    """One line of a table.

    Attributes:
        name: Kafka's name, snake_cased.
        type: a primitive's name (`"Int32"`) or, for structs, the name of a class inside the message.
        is_array: whether the field is a list of `type`.
        is_struct: whether `type` is a class inside the message.
        versions: versions that carry the field.
        null: versions in which None may be sent.
        tag: number of the tagged field (KIP-482), or None.
        default: value when absent; None stands for "a new one" where `type` is a struct that cannot be null.
        ignorable: whether a value other than the default is dropped silently when the version has no such field.
    """

    name: str
    type: str
    is_array: bool
    is_struct: bool
    versions: range
    null: range
    tag: int | None
    default: Any
    ignorable: bool

    def element(self) -> Field:
        """A field like one element of this array; elements are never null."""
        return replace(self, is_array=False, null=range(0), default=None)


@dataclass(frozen=True, slots=True)
class Schema:
    """What is known of a message as a whole; `Message.__schema__`.

    Attributes:
        name: the message's class name.
        api_key: Kafka's number of the API.
        is_request: False for responses.
        valid_versions: versions that can be encoded and decoded.
        flexible_versions: versions with compact lengths and tagged fields (KIP-482).
        latest_unstable: whether Kafka does not advertise the last version unless told to.
        decoders: compiled readers by version; filled by `codec`.
        encoders: compiled writers by version; filled by `codec`.
    """

    name: str
    api_key: int
    is_request: bool
    valid_versions: range
    flexible_versions: range
    latest_unstable: bool = False
    decoders: dict[int, Callable[..., tuple[Any, int]]] = dataclass_field(default_factory=dict, repr=False)
    encoders: dict[int, Callable[..., None]] = dataclass_field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class _Columns:
    versions: str
    null: str
    tag: int | None
    default: Any
    ignorable: bool


def field(
    versions: str, *, null: str = "none", tag: int | None = None, default: Any = _MISSING, ignorable: bool = False
) -> Any:
    """Declare a field; see the module's docstring for the columns.

    Args:
        versions: versions that carry it, as in Kafka's specifications (`"3+"`).
        null: versions in which it may be null.
        tag: its number, if it is a tagged field.
        default: Kafka's default where that is not the type's zero.
        ignorable: whether Kafka drops it silently from versions that lack it.
    """
    return _Columns(versions, null, tag, default, ignorable)


def _parse_field(name: str, annotation: str, columns: _Columns) -> Field:
    base = annotation.removesuffix(" | None")
    is_array = base.startswith("list[")
    base = base.removeprefix("list[").removesuffix("]")
    is_struct = base not in _ZERO
    default = columns.default
    if default is _MISSING:
        default = None if is_array or is_struct else _ZERO[base]
        if is_array:
            default = ()
    return Field(
        name=name,
        type=base.rpartition(".")[2],
        is_array=is_array,
        is_struct=is_struct,
        versions=parse_versions(columns.versions),
        null=parse_versions(columns.null),
        tag=columns.tag,
        default=default,
        ignorable=columns.ignorable,
    )


@dataclass_transform(kw_only_default=True)
class StructMeta(type):
    """Makes a slots class of a table."""

    __fields__: tuple[Field, ...]
    __schema__: Schema
    __root__: type[Struct]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **message: Any) -> StructMeta:
        """Turn columns into slots and, where there are message arguments, remember what the message is."""
        annotations = namespace.get("__annotations__", {})
        columns = {key: value for key, value in namespace.items() if isinstance(value, _Columns)}
        for key in columns:
            del namespace[key]
        namespace["__slots__"] = tuple(columns)
        cls = super().__new__(mcs, name, bases, namespace)
        cls.__fields__ = tuple(
            _parse_field(key, annotations[key], value) for key, value in columns.items() if key != "unknown_tags"
        )
        if message:
            cls._become_message(**message)
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_message: Any) -> None:
        super().__init__(name, bases, namespace)

    def _become_message(
        cls,
        *,
        key: int,
        versions: str,
        flexible: str = "none",
        latest_unstable: bool = False,
    ) -> None:
        cls.__schema__ = Schema(
            name=cls.__name__,
            api_key=key,
            is_request=issubclass(cls, Request),
            valid_versions=parse_versions(versions),
            flexible_versions=parse_versions(flexible),
            latest_unstable=latest_unstable,
        )
        for inner in [cls, *vars(cls).values()]:
            if isinstance(inner, StructMeta):
                inner.__root__ = cls  # type: ignore[assignment]  # mypy: the metaclass makes Struct subclasses only


class Struct(metaclass=StructMeta):
    """A message or a part of one.

    Attributes:
        unknown_tags: tagged fields that our tables do not know, by number, kept as bytes and written again; None
            when there are none.
    """

    unknown_tags: dict[int, bytes] | None = field("none", default=None)

    __fields__: ClassVar[tuple[Field, ...]]
    __root__: ClassVar[type[Struct]]

    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            """Write the class's real constructor at its first use."""
            cls = type(self)
            cls.__init__ = _constructor(cls)
            cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _names(type(self)))

    __hash__: ClassVar[None]  # type: ignore[assignment]  # values are mutable, so there is no hash

    def __repr__(self) -> str:
        shown = ((name, getattr(self, name)) for name in _names(type(self)))
        return f"{type(self).__qualname__}({', '.join(f'{name}={_show(value)}' for name, value in shown)})"


class Message(Struct):
    """A request or a response; `__schema__` says of which API."""

    __schema__: ClassVar[Schema]


class Request(Message):
    """What a client sends."""


class Response(Message):
    """What a broker answers."""


def struct_class(root: type[Struct], name: str) -> type[Struct]:
    """The class of the struct called `name` inside the message `root`."""
    found: type[Struct] = getattr(root, name)
    return found


def _names(cls: type[Struct]) -> Iterator[str]:
    yield from (spec.name for spec in cls.__fields__)
    yield "unknown_tags"


def _show(value: object) -> str:
    if isinstance(value, (memoryview, bytearray)) or (isinstance(value, bytes) and len(value) > 64):  # noqa: PLR2004 - screen width
        return f"<{len(value)} bytes>"
    return repr(value)


def _constructor(cls: type[Struct]) -> Callable[..., None]:
    """Write `__init__` for the class: keyword arguments, Kafka's defaults, a new list or struct per instance."""
    names: dict[str, Any] = {"MISSING": _MISSING}
    parameters, body = [], ["self.unknown_tags = unknown_tags"]
    for spec in cls.__fields__:
        fresh = "[]" if spec.default == () else None
        if spec.is_struct and not spec.is_array and not spec.null:
            names[spec.type] = struct_class(cls.__root__, spec.type)
            fresh = f"{spec.type}()"
        if fresh:
            parameters.append(f"{spec.name}=MISSING")
            body.append(f"self.{spec.name} = {fresh} if {spec.name} is MISSING else {spec.name}")
        else:
            names[f"default_{spec.name}"] = spec.default
            parameters.append(f"{spec.name}=default_{spec.name}")
            body.append(f"self.{spec.name} = {spec.name}")
    head = ", ".join(["self", "*", *parameters, "unknown_tags=None"])
    source = "\n    ".join([f"def __init__({head}):", *body])
    exec(source, names)  # noqa: S102 - the source is made of our own tables, as dataclasses does
    made: Callable[..., None] = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
