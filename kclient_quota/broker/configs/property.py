"""One key of a configuration: its type, its default and what may be set (Kafka's `ConfigDef`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = range(1, 10)
"""Kafka's `ConfigDef.Type` ids as DescribeConfigs gives them."""
_NUMBERS: Mapping[int, tuple[str, Callable[[str], float], float]] = {
    INT: ("INT", int, 2**31),
    SHORT: ("SHORT", int, 2**15),
    LONG: ("LONG", int, 2**63),
    DOUBLE: ("DOUBLE", float, inf),
}
"""Of each type its name, how it is read and what its numbers stay below."""


@dataclass(frozen=True, slots=True)
class Property:
    """One key of Kafka's configuration.

    Attributes:
        default: Kafka's, or ours where the card of the embedded broker says so.
        type: `BOOLEAN`, `INT`, ...
        least: smallest value of a number.
        is_dynamic: whether it may be altered while the broker runs.
        has_default: False where Kafka has none.
        most: largest value of a number, or None.
        besides: one more that a number may be, outside those bounds, or None.
        words: what a text, or each of a list, has to be one of; empty: anything.
    """

    default: str
    type: int
    least: int = 0
    is_dynamic: bool = False
    has_default: bool = True
    most: int | None = None
    besides: int | None = None
    words: tuple[str, ...] = ()


def is_true(value: str) -> bool:
    """A boolean's value, in whatever case it is written."""
    return value.strip().lower() == "true"


def value_problem(key: str, value: str, known: Property) -> str | None:
    """What is wrong with a value, in Kafka's words, or None."""
    if known.type == BOOLEAN and value.strip().lower() not in {"true", "false"}:
        return f"Invalid value {value} for configuration {key}: Expected value to be either true or false"
    if known.type in _NUMBERS:
        return _number_problem(key, value, known)
    if known.words:
        return _word_problem(key, value, known)
    return None


def _number_problem(key: str, value: str, known: Property) -> str | None:
    name, parse, bound = _NUMBERS[known.type]
    try:
        number = inf if "_" in value else parse(value)  # Python's digits may be grouped, Java's not
    except ValueError:
        number = inf
    most = inf if known.most is None else known.most
    if not -bound <= number < bound:
        must = f"Not a number of type {name}"
    elif known.least <= number <= most or number == known.besides:
        return None
    elif known.besides is not None:
        must = f"Value must be between {known.least} and {most} or equal to {known.besides}"
    else:
        must = f"Value must be {f'at least {known.least}' if number < known.least else f'no more than {most}'}"
    return f"Invalid value {value} for configuration {key}: {must}"


def _word_problem(key: str, value: str, known: Property) -> str | None:
    given = [word.strip() for word in value.split(",") if word.strip()] if known.type == LIST else [value]
    wrong = next((word for word in given if word not in known.words), None)
    if wrong is None:
        return None
    return f"Invalid value {wrong} for configuration {key}: String must be one of: {', '.join(known.words)}"
