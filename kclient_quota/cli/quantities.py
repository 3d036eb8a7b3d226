"""Numbers as people write them: `10MB`, `1MiB/s`, seconds, counts; for argparse's `type`."""

import argparse
import math
from collections.abc import Callable

from kclient_quota.config import quantity
from kclient_quota.errors import ConfigError

_MOST = 2**53


def seconds(text: str) -> float:
    """A finite number of seconds above 0."""
    return _number(text, "seconds", float)


def rate(text: str) -> float:
    """Bytes, or bytes per second, above 0."""
    return _number(text, "a number such as 1048576, 10MB or 1MiB/s", quantity)


def size(text: str) -> int:
    """Whole bytes above 0."""
    return math.ceil(rate(text))


def count(text: str) -> int:
    """A whole number above 0."""
    value = _number(text, "a whole number", float)
    if not value.is_integer():
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number")
    return int(value)


def port(text: str) -> int:
    """0 to 65535."""
    if not text.isascii() or not text.isdecimal() or int(text) > 65_535:  # noqa: PLR2004 - the largest there is
        raise argparse.ArgumentTypeError(f"{text!r}: write a port, 0 to 65535")
    return int(text)


def _number(text: str, what: str, read: Callable[[str], float]) -> float:
    try:
        value = float(read(text))
    except (ValueError, ConfigError):
        value = math.nan
    if not 0 < value <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: write {what}, greater than 0")
    return value
