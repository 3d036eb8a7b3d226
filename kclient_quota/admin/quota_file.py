"""Quotas as code: the YAML file, checked, with the line of everything that is wrong in it.

version: 1
capacity: {producer_byte_rate: 50000000}     what one broker has, for shares
quotas:
  - names: {user: alice}                     of user, client-id, ip
    defaults: [client-id]                    types of which the default entity is meant
    set: {producer_byte_rate: 1048576, consumer_byte_rate:bps: 10485760}
    remove: [request_percentage]             shall not be there
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import yaml

from kclient_quota.admin.units import SHARES, UNITS, Configured, QuotaUnit, parse_quota, parse_value
from kclient_quota.admin.yaml_nodes import yaml_node
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import (
    CLIENT_ID,
    DEFAULT,
    IP,
    USER,
    ClientQuotaEntity,
    Name,
    entity_problem,
    name_problem,
    quota_problem,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_VERSION = "1"
_TOP = ("version", "capacity", "quotas")
_ENTRY = ("names", "defaults", "set", "remove")
_TYPES = (USER, CLIENT_ID, IP)
_YAML = "tag:yaml.org,2002:"
_UNTAGGED = frozenset(
    _YAML + kind for kind in ["map", "seq", "str", "int", "float", "bool", "null", "timestamp", "merge", "value"]
)
_SHOWN = 20
_LAST_OF_FOUR_DIGITS = 0xFFFF


@dataclass(frozen=True, slots=True)
class FileEntry:
    """What the file says of one entity.

    Attributes:
        entity: whose quotas.
        wanted: what shall be set.
        unwanted: what shall not be there.
        line: where the entry begins.
    """

    entity: ClientQuotaEntity
    wanted: Mapping[QuotaUnit, float]
    unwanted: frozenset[QuotaUnit]
    line: int


@dataclass(frozen=True, slots=True)
class QuotaFile:
    """A checked file.

    Attributes:
        entries: one per entity.
        capacity: by quota, what one broker has to share out.
    """

    entries: tuple[FileEntry, ...] = ()
    capacity: Mapping[str, float] = field(default_factory=dict)


def parse_quota_file(text: str, name: str) -> QuotaFile:
    """Read and check a file.

    Args:
        text: its content.
        name: for messages.

    Raises:
        ConfigError: it is no such file; a line for everything that is wrong, as `name:line: what and how to mend it`.
    """
    reader = _Reader()
    read = reader.file(yaml_node(text, name))
    if reader.problems:
        lines = [f"{name}:{line}: {words}" for line, words in sorted(reader.problems)]
        hidden = len(lines) - _SHOWN
        raise ConfigError("\n".join(lines[:_SHOWN] + ([f"{name}: and {hidden} more"] if hidden > 0 else [])))
    return read


class _Reader:
    """Walks YAML's nodes, since only these know their lines; collects problems instead of stopping at the first."""

    def __init__(self) -> None:
        self.problems: list[tuple[int, str]] = []

    def file(self, root: yaml.Node | None) -> QuotaFile:
        if root is None:
            self.problems.append((1, "the file is empty; begin with version: 1"))
            return QuotaFile()
        parts = self._mapping(root, "the file", _TOP)
        version = parts.get("version")
        if version is None or self._text(version, "version") != _VERSION:
            self._wrong(version or root, "version: write version: 1, the only one there is")
        capacity = {
            key: value
            for quota, value in self._values(parts.get("capacity"), "capacity", _capacity_of)
            for key in (quota.key,)
        }
        entries: dict[ClientQuotaEntity, FileEntry] = {}
        for node in self._sequence(parts.get("quotas"), "quotas"):
            entry = self._entry(node)
            if entry is None:
                continue
            if entry.entity in entries:
                self._wrong(node, f"{entry.entity} stands in line {entries[entry.entity].line} already; write it once")
            entries.setdefault(entry.entity, entry)
        self._check_capacity(entries.values(), capacity)
        return QuotaFile(tuple(entries.values()), capacity)

    def _check_capacity(self, entries: Iterable[FileEntry], capacity: Mapping[str, float]) -> None:
        for entry in entries:
            for quota in entry.wanted:
                if quota.unit == SHARES and quota.key not in capacity:
                    words = f"{quota}: shares need a capacity; write capacity: {{{quota.key}: NUMBER}} (per broker)"
                    self.problems.append((entry.line, words))

    def _entry(self, node: yaml.Node) -> FileEntry | None:
        parts = self._mapping(node, "an entry of quotas", _ENTRY)
        names = self._names(parts)
        count = len(self.problems)
        wanted = dict(self._values(parts.get("set"), "set", parse_quota))
        unwanted = frozenset(
            quota
            for each in self._sequence(parts.get("remove"), "remove")
            if (quota := self._quota(each, "remove", parse_quota)) is not None
        )
        if not names:
            if "names" not in parts and "defaults" not in parts and isinstance(node, yaml.MappingNode):
                self._wrong(node, "an entry needs names: {user: ...}, defaults: [user], or both")
            return None
        if not wanted and not unwanted and len(self.problems) == count:
            self._wrong(node, "an entry needs set: {producer_byte_rate: NUMBER}, remove: [...], or both")
        for quota in sorted(unwanted & set(wanted)):
            self._wrong(parts["remove"], f"remove: {quota} is set as well; write one of the two")
        self._check_entity(node, parts, names, wanted, unwanted)
        ordered = sorted(names, key=lambda kind: kind == CLIENT_ID)
        return FileEntry(ClientQuotaEntity({kind: names[kind] for kind in ordered}), wanted, unwanted, _line(node))

    def _names(self, parts: Mapping[str, yaml.Node]) -> dict[str, Name]:
        names: dict[str, Name] = {}
        node = parts.get("names")
        for key, value in self._pairs(node, "names") if node is not None else ():
            text = self._text(value, f"names.{key}")
            if text is not None:
                if problem := name_problem(key, text):
                    self._wrong(value, f"names: {problem}")
                    continue
                if not text or _is_null(value):
                    words = f"names.{key}: a name is missing; for the default entity write defaults: [{key}]"
                    self._wrong(value, words)
                names[key] = text
        for each in self._sequence(parts.get("defaults"), "defaults"):
            kind = self._text(each, "defaults")
            if kind is not None and kind in names:
                self._wrong(each, f"defaults: {kind} has a name already; write one of the two")
            elif kind:
                names[kind] = DEFAULT
        return names

    def _check_entity(
        self,
        node: yaml.Node,
        parts: Mapping[str, yaml.Node],
        names: Mapping[str, Name],
        wanted: Mapping[QuotaUnit, float],
        unwanted: Iterable[QuotaUnit],
    ) -> None:
        unknown = [kind for kind in names if kind not in _TYPES]
        for kind in unknown:
            near = get_close_matches(kind, _TYPES, 1)
            where = parts["names" if isinstance(names[kind], str) else "defaults"]
            remedy = f"write {near[0]}" if near else f"its types are {', '.join(_TYPES)}"
            self._wrong(where, f"{kind}: Kafka has no such type of entity; {remedy}", at=kind)
        if unknown:
            return
        on_the_wire = [(kind, None if name is DEFAULT else name) for kind, name in names.items()]
        problem = entity_problem(on_the_wire, resolves=_may_be_host)
        if problem:
            self._wrong(node, problem)
        for quota, value in wanted.items():
            problem = quota_problem(names, quota.key, value if quota.is_enforced else 1.0)
            if problem:
                self._wrong(parts["set"], f"set.{quota}: {problem}", at=str(quota))
        for quota in sorted(unwanted):  # a misspelt one would leave in place what is to go
            if problem := quota_problem(names, quota.key, 1.0):
                self._wrong(parts["remove"], f"remove: {problem}")

    # -- YAML

    def _values(
        self, node: yaml.Node | None, where: str, read: Callable[[str], QuotaUnit]
    ) -> Iterator[tuple[QuotaUnit, float]]:
        seen: set[QuotaUnit] = set()
        for key_node, value_node in self._items(node, where) if node is not None else ():
            quota = self._quota(key_node, where, read)
            text = self._text(value_node, f"{where}.{quota}")
            if quota is None or text is None:
                continue
            if quota in seen:
                self._wrong(key_node, f"{where}: {quota} stands in it twice")
            seen.add(quota)
            try:
                yield quota, parse_value(quota, text.replace("_", ""))
            except ConfigError as error:
                self._wrong(value_node, f"{where}: {error}")

    def _quota(self, node: yaml.Node, where: str, read: Callable[[str], QuotaUnit]) -> QuotaUnit | None:
        text = self._text(node, where)
        try:
            return None if text is None else read(text)
        except ConfigError as error:
            self._wrong(node, f"{where}: {error}")
            return None

    def _mapping(self, node: yaml.Node, where: str, known: tuple[str, ...]) -> dict[str, yaml.Node]:
        parts = {}
        for key, value in self._pairs(node, where):
            if key in known:
                parts[key] = value
            else:
                self._wrong(value, f"{where} has no field {key!r}; its fields are {', '.join(known)}")
        return parts

    def _pairs(self, node: yaml.Node, where: str) -> Iterator[tuple[str, yaml.Node]]:
        seen: set[str] = set()
        for key_node, value in self._items(node, where):
            key = self._text(key_node, where)
            if key is None:
                continue
            if key in seen:
                self._wrong(key_node, f"{where}: {key} stands in it twice")
            seen.add(key)
            yield key, value

    def _items(self, node: yaml.Node, where: str) -> list[tuple[yaml.Node, yaml.Node]]:
        self._check_tag(node, where)
        if isinstance(node, yaml.MappingNode):
            return list(node.value)
        if not _is_null(node):
            self._wrong(node, f"{where}: fields with values are wanted here, such as name: value")
        return []

    def _sequence(self, node: yaml.Node | None, where: str) -> list[yaml.Node]:
        if node is None:
            return []
        self._check_tag(node, where)
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        if not _is_null(node):
            self._wrong(node, f"{where}: a list is wanted here; begin each element with a dash")
        return []

    def _text(self, node: yaml.Node, where: str) -> str | None:
        self._check_tag(node, where)
        if isinstance(node, yaml.ScalarNode):
            return str(node.value)
        self._wrong(node, f"{where}: a single value is wanted here")
        return None

    def _check_tag(self, node: yaml.Node, where: str) -> None:
        # a value is read as it stands, which is not what somebody meant who has given it a tag
        if node.tag not in _UNTAGGED:
            tag = node.tag.replace(_YAML, "!!")
            self._wrong(node, f"{where}: the tag {tag} has no meaning here; leave it out")

    def _wrong(self, node: yaml.Node, words: str, *, at: str | None = None) -> None:
        """A problem of a node, or in a mapping of the line of the key `at`."""
        keys = [key for key, _ in node.value] if at and isinstance(node, yaml.MappingNode) else []
        wanted = {at, (at or "").partition(":")[0]}
        found = next((key for key in keys if key.value in wanted), node)
        self.problems.append((_line(found), words))


def _may_be_host(address: str) -> bool:
    """Whether a controller, who looks hosts up, may know such a one: not of a network, as Kafka counts by address."""
    return not re.search(r"[/\s]", address)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == f"{_YAML}null"


def _capacity_of(text: str) -> QuotaUnit:
    if SHARES not in UNITS.get(text, ()):
        shareable = ", ".join(key for key, units in UNITS.items() if SHARES in units)
        raise ConfigError(f"{text} cannot be shared out; these can: {shareable}")
    return QuotaUnit(text, SHARES)


def format_quota_file(
    asked: Configured,
    capacity: Mapping[str, float],
    order: Callable[[ClientQuotaEntity], Any],
    *,
    is_ascii: bool = False,
) -> str:
    """The file that describes what is configured; reading it gives the same back, escaped in ASCII as well."""
    document = quota_document(asked, capacity, order)
    return yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=not is_ascii, default_flow_style=None, width=120
    )


def quota_document(
    asked: Configured, capacity: Mapping[str, float], order: Callable[[ClientQuotaEntity], Any]
) -> dict[str, Any]:
    """The same as a document; written as JSON it is such a file, too."""
    document: dict[str, Any] = {"version": 1}
    if capacity:
        document["capacity"] = {key: _number(value) for key, value in sorted(capacity.items())}
    document["quotas"] = [_exported(entity, asked[entity]) for entity in sorted(asked, key=order)]
    return document


def readable_json(text: str) -> str:
    """JSON that `parse_quota_file`, which reads it as YAML, reads as JSON does.

    YAML takes three characters that JSON leaves as they are for line ends, and makes blanks of them; others it refuses.
    """
    return re.sub(r"[^\n -~]", lambda found: found[0] if found[0].isprintable() else _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}" if ord(character) <= _LAST_OF_FOUR_DIGITS else character


class _Dumper(yaml.SafeDumper):
    """Quotes what would not read back as it is: YAML takes some control characters for line ends."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if data.isprintable() else '"')


_Dumper.add_representer(str, _Dumper.represent_str)


def _exported(entity: ClientQuotaEntity, values: Mapping[QuotaUnit, float]) -> dict[str, Any]:
    names = {kind: name for kind, name in entity.entries.items() if name is not DEFAULT}
    defaults = [kind for kind, name in entity.entries.items() if name is DEFAULT]
    parts: dict[str, Any] = {"names": names} if names else {}
    if defaults:
        parts["defaults"] = defaults
    parts["set"] = {
        quota.key if quota.is_enforced else str(quota): _number(value) for quota, value in sorted(values.items())
    }
    return parts


def _number(value: float) -> float | int:
    return int(value) if value.is_integer() else value
