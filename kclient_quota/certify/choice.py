"""Choosing scenes and rows by how their names begin."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from kclient_quota.errors import ConfigError


class Named(Protocol):
    """What has a name."""

    @property
    def name(self) -> str:
        """It."""
        ...


Item = TypeVar("Item", bound=Named)


def chosen(kind: str, known: Iterable[Item], names: Sequence[str]) -> list[Item]:
    """Those whose names begin with one of `names`; all of them when there is none.

    Raises:
        ConfigError: a name fits none.
    """
    every = list(known)
    for name in names:
        if not any(item.name.startswith(name) for item in every):
            raise ConfigError(f"no {kind} {name!r}; known: {', '.join(item.name for item in every)}")
    return [item for item in every if not names or item.name.startswith(tuple(names))]
