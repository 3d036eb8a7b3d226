"""Options of `format("kclient_quota")`, checked: what is misspelt or cannot be used is one clear error."""

from collections.abc import Iterable, Mapping

from kclient_quota.errors import ConfigError

_PREFIX = "kafka."
_OF_SPARK = ("checkpointlocation", "queryname", "outputmode", "path")  # which it hands over with the others
_WORDS = {"true": True, "false": False}


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
