"""The journal of `apply`: what it is about to do, written down before, then what it has done, so as to undo it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kclient_quota.admin.sources import put, records_of
from kclient_quota.admin.units import Sources
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kclient_quota.admin.unit_quotas import QuotaState, Target

Slot = tuple[ClientQuotaEntity, str]
"""An entity and Kafka's key."""


@dataclass(slots=True)
class Applied:
    """One run of `apply`, as the journal has it.

    Attributes:
        number: counts the runs of one journal.
        cluster: the cluster's id.
        at: when it began, as ISO 8601.
        before: what brokers had, None where nothing was set.
        after: what they were to have, None where a quota was removed.
        sources: what was kept beside them before and after.
        done: the entities that were altered for certain.
        is_undone: whether a later run took it back.
        undoes: the run that this one took back, or None.
    """

    number: int
    cluster: str
    at: str
    before: dict[Slot, float | None]
    after: dict[Slot, float | None]
    sources: tuple[Sources, Sources]
    done: set[ClientQuotaEntity] = field(default_factory=set)
    is_undone: bool = False
    undoes: int | None = None


class Journal:
    """A file of JSON lines, only ever appended to.

    Args:
        path: created when there is first something to write.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def begin(self, state: QuotaState, target: Target, *, cluster: str, at: str, undoes: int | None = None) -> int:
        """Write down what is about to be done.

        Returns:
            the run's number, for `done`.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        number = len(self.read()) + 1
        changes = [
            {"entity": _names(entity), "key": key, "before": state.written.get(entity, {}).get(key), "after": value}
            for entity, ops in target.changes.items()
            for key, value in ops.items()
        ]
        sources = {"before": _records(state.sources), "after": _records(target.sources)}
        line = {"apply": number, "cluster": cluster, "at": at, "changes": changes, "sources": sources}
        self._append(line if undoes is None else {**line, "undoes": undoes})
        return number

    def done(self, number: int, entities: Iterable[ClientQuotaEntity]) -> None:
        """Write down what has been done of a run.

        Raises:
            ConfigError: the file cannot be written.
        """
        self._append({"done": number, "entities": [_names(entity) for entity in entities]})

    def read(self) -> list[Applied]:
        """All runs, oldest first.

        Raises:
            ConfigError: the file cannot be read, or is no journal.
        """
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(f"journal {self._path}: {error.strerror}; name a file that can be read") from error
        runs: list[Applied] = []
        for number, line in enumerate(lines, start=1):
            try:
                _read(runs, json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                if number == len(lines) and not line.endswith("}"):
                    break  # cut short when a machine died; what it was about to say had not begun
                raise ConfigError(f"journal {self._path}:{number}: this is no journal of quotas: {error!r}") from error
        return runs

    def _append(self, line: Mapping[str, Any]) -> None:
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ConfigError(f"journal {self._path}: {error.strerror}; name a file that can be written") from error


def _read(runs: list[Applied], line: Mapping[str, Any]) -> None:
    if "done" in line:
        runs[line["done"] - 1].done.update(_entity(names) for names in line["entities"])
        return
    changes = [(_entity(change["entity"]), change["key"], change) for change in line["changes"]]
    runs.append(
        Applied(
            line["apply"],
            line["cluster"],
            line["at"],
            {(entity, key): change["before"] for entity, key, change in changes},
            {(entity, key): change["after"] for entity, key, change in changes},
            (_sources(line["sources"]["before"]), _sources(line["sources"]["after"])),
            undoes=line.get("undoes"),
        )
    )
    if "undoes" in line:
        runs[line["undoes"] - 1].is_undone = True


def _names(entity: ClientQuotaEntity) -> dict[str, str | None]:
    return dict(entity.wire_entries())


def _entity(names: Mapping[str, str | None]) -> ClientQuotaEntity:
    return ClientQuotaEntity({kind: DEFAULT if name is None else name for kind, name in names.items()})


def _records(sources: Sources) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in records_of(sources)]


def _sources(records: Iterable[Mapping[str, Any]]) -> Sources:
    sources = Sources()
    for record in records:
        put(sources, record["key"], record["value"])
    return sources
