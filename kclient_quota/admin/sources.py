"""Where the source values of `bps` and `shares` live: nowhere, in a file, or (`topic_store`) in a compacted topic."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kclient_quota.admin.units import QuotaUnit, Sources, parse_quota
from kclient_quota.errors import ClusterError, ConfigError, misread
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_VERSION = 1


class SourceKey(NamedTuple):
    """Which source: a quota of an entity in a unit, or (without an entity) the capacity of one broker."""

    entity: ClientQuotaEntity | None
    name: str
    unit: str


class StoreDeniedError(ClusterError):
    """The cluster does not let us see, or change, where source values live."""


class SourceStore(Protocol):
    """Keeps source values."""

    def load(self) -> Sources:
        """What is kept; empty at first.

        Raises:
            StoreDeniedError: the right to look is missing.
        """
        ...

    def save(self, before: Sources, after: Sources) -> None:
        """Keep `after` instead of `before`, what `load` returned."""
        ...


class NoStore:
    """For clusters on which every quota is set in the unit that brokers enforce."""

    def load(self) -> Sources:
        """Nothing."""
        return Sources()

    def save(self, _before: Sources, after: Sources) -> None:
        """Refuse what would be lost.

        Raises:
            ConfigError: there is something to keep.
        """
        if after:
            raise ConfigError(
                "units bps and shares need a place for their source values: give --units-store topic or a file's path"
            )


class FileStore:
    """A JSON file, replaced as a whole.

    Args:
        path: created when there is first something to keep.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Sources:
        """What the file says.

        Raises:
            ConfigError: it cannot be read.
        """
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return Sources()
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror}; name a file that can be read") from error
        except ValueError as error:  # no text
            raise ConfigError(f"{self._path}: this is no file of quota sources: {error}; name another") from error
        sources = Sources()
        try:
            document = json.loads(text)
            if document["version"] != _VERSION:
                raise ConfigError(f"{self._path}: version {document['version']!r} is not known; this is {_VERSION}")
            for record in document["records"]:
                put(sources, key_of(record["key"]), float(record["value"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(
                f"{self._path}: this is no file of quota sources: {misread(error)}; name another"
            ) from error
        return sources

    def save(self, _before: Sources, after: Sources) -> None:
        """Write the file anew.

        Raises:
            ConfigError: it cannot be written.
        """
        records = [{"key": key_record(key), "value": value} for key, value in records_of(after).items()]
        text = json.dumps({"version": _VERSION, "records": records}, indent=1) + "\n"
        scratch = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            with scratch.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(self._path)
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror}; name a file that can be written") from error


def records_of(sources: Sources) -> dict[SourceKey, float]:
    """The sources as single values, each of which can be kept and put back by itself."""
    values = {
        SourceKey(entity, quota.key, quota.unit): value
        for entity, values in sources.values.items()
        for quota, value in values.items()
    }
    return values | {SourceKey(None, key, ""): value for key, value in sources.capacity.items()}


def key_record(key: SourceKey) -> dict[str, Any]:
    """A key as JSON can hold it; a default entity's name is null."""
    if key.entity is None:
        return {"capacity": key.name}
    return {"entity": dict(key.entity.wire_entries()), "name": key.name, "unit": key.unit}


def key_of(record: Mapping[str, Any]) -> SourceKey:
    """What `key_record` made.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is no such record.
    """
    if "capacity" in record:
        return SourceKey(None, str(record["capacity"]), "")
    names = {str(kind): DEFAULT if name is None else str(name) for kind, name in record["entity"].items()}
    quota = parse_quota(":".join(part for part in (record["name"], record["unit"]) if part))
    return SourceKey(ClientQuotaEntity(names), quota.key, quota.unit)


def put(sources: Sources, key: SourceKey, value: float | None) -> None:
    """Set one source; None takes it away."""
    if key.entity is None:
        _set(sources.capacity, key.name, value)
        return
    values = sources.values.setdefault(key.entity, {})
    _set(values, QuotaUnit(key.name, key.unit), value)
    if not values:
        del sources.values[key.entity]


def _set(values: dict[Any, float], key: str | QuotaUnit, value: float | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = float(value)
