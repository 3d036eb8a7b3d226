"""Options of `format("kclient_quota")`, checked: what is misspelt or cannot be used is one clear error."""

import re
from collections.abc import Iterable, Mapping

from kclient_quota.errors import ConfigError

_PREFIX = "kafka."
_OF_SPARK = ("checkpointlocation", "queryname", "outputmode", "path")  # which it hands over with the others
_WORDS = {"true": True, "false": False}
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class Options:
    """The options of a source or a sink; names are the same in whatever case, as everywhere in Spark.

    Args:
        given: as Spark hands them over.
        known: names beside those that begin with `kafka.`.

    Raises:
        ConfigError: one is not known.
    """

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        names = {name.lower(): name for name in known}
        self.given = {key.lower(): value for key, value in given.items()}
        unknown = sorted(key for key in self.given if not key.startswith(_PREFIX) and key not in {*names, *_OF_SPARK})
        if unknown:
            there = ", ".join(sorted(names.values()))
            raise ConfigError(f"option {unknown[0]} is unknown; there are {there} and {_PREFIX}*")

    def text(self, name: str, default: str = "") -> str:
        """As given."""
        return self.given.get(name.lower(), default)

    def number(self, name: str) -> int | None:
        """A whole number above zero, None when it is not given.

        Raises:
            ConfigError: it is something else.
        """
        text = self.given.get(name.lower())
        if text is None:
            return None
        if not text.isdigit() or int(text) < 1:
            raise ConfigError(f"{name} {text}: write a whole number above zero")
        return int(text)

    def duration_ms(self, name: str) -> int | None:
        """A time as Spark writes it (`500ms`, `10s`, `15m`, `1h`, `1d`), None when it is not given.

        Raises:
            ConfigError: it is something else.
        """
        text = self.given.get(name.lower())
        if text is None:
            return None
        found = re.fullmatch(r"(\d+)\s*([a-z]+)", text.strip().lower())
        if found is None or found[2] not in _UNIT_MS:
            raise ConfigError(f"{name} {text}: write a whole number and a unit of {', '.join(_UNIT_MS)}, such as 15m")
        return int(found[1]) * _UNIT_MS[found[2]]

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false.

        Raises:
            ConfigError: it is neither.
        """
        text = self.given.get(name.lower())
        if text is None:
            return default
        if text.lower() not in _WORDS:
            raise ConfigError(f"{name} {text}: write true or false")
        return _WORDS[text.lower()]
