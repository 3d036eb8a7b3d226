"""Where the source values of `bps` and `shares` live: nowhere, in a file, or (`topic_store`) in a compacted topic."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Protocol

from kclient_quota.admin.units import QuotaUnit, Sources, parse_quota
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity

if TYPE_CHECKING:
    from pathlib import Path

_VERSION = 1


class SourceStore(Protocol):
    """Keeps source values."""

    def load(self) -> Sources:
        """What is kept; empty at first."""
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
        sources = Sources()
        try:
            document = json.loads(text)
            if document["version"] != _VERSION:
                raise ConfigError(f"{self._path}: version {document['version']!r} is not known; this is {_VERSION}")
            for record in document["records"]:
                put(sources, record["key"], record["value"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{self._path}: this is no file of quota sources: {error!r}") from error
        return sources

    def save(self, _before: Sources, after: Sources) -> None:
        """Write the file anew.

        Raises:
            ConfigError: it cannot be written.
        """
        records = [{"key": key, "value": value} for key, value in records_of(after)]
        text = json.dumps({"version": _VERSION, "records": records}, indent=1, ensure_ascii=False) + "\n"
        scratch = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            scratch.write_text(text, encoding="utf-8")
            scratch.replace(self._path)
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror}; name a file that can be written") from error


def records_of(sources: Sources) -> list[tuple[dict[str, Any], float]]:
    """The sources as keys and values that JSON can hold; a default entity's name is null."""
    records = [
        ({"entity": dict(entity.wire_entries()), "name": quota.key, "unit": quota.unit}, value)
        for entity, values in sources.values.items()
        for quota, value in values.items()
    ]
    return [*records, *(({"capacity": key}, value) for key, value in sources.capacity.items())]


def put(sources: Sources, key: dict[str, Any], value: float | None) -> None:
    """Add one record to the sources; None takes it away.

    Raises:
        KeyError, TypeError, ValueError: it is no such record.
    """
    if "capacity" in key:
        _set(sources.capacity, str(key["capacity"]), value)
        return
    names = {str(kind): DEFAULT if name is None else str(name) for kind, name in key["entity"].items()}
    entity = ClientQuotaEntity(names)
    quota = parse_quota(":".join(part for part in (key["name"], key["unit"]) if part))
    values = sources.values.setdefault(entity, {})
    _set(values, quota, value)
    if not values:
        del sources.values[entity]


def _set(values: dict[Any, float], key: str | QuotaUnit, value: float | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = float(value)
