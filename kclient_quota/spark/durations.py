"""Lengths of time as Spark writes them: `5 minutes`, `90 s`, `1 hour 30 minutes`."""

import re
from typing import Final

from kclient_quota.errors import ConfigError

_UNITS_MS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("week", "weeks"), 604_800_000),
}
_PART: Final = re.compile(r"(\d+)\s*([a-z]+)\s*")


def duration_ms(name: str, text: str) -> int:
    """A length of time in ms.

    Args:
        name: of what is asked for; for the message.
        text: whole numbers with units, added up.

    Raises:
        ConfigError: it is something else.
    """
    rest = text.strip().lower().removeprefix("interval ")
    parts = _PART.findall(rest)
    if not parts or _PART.sub("", rest) or any(unit not in _UNITS_MS for _, unit in parts):
        raise ConfigError(f"{name} {text}: write whole numbers with units, such as 90 seconds, 5 minutes or 15m")
    return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)


def told(length_ms: float) -> str:
    """A length of time for people: in the largest unit that leaves no fraction."""
    for unit, each in (("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if length_ms >= each and length_ms % each == 0:
            return f"{length_ms / each:,.0f} {unit}"
    return f"{length_ms / 1000:,g} s"


def spark_words(length_ms: int) -> str:
    """The same as Spark takes it."""
    return f"{length_ms} milliseconds"
