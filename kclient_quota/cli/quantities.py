"""Numbers as people write them: `10MB`, `1MiB/s`, seconds, counts; for argparse's `type`."""

import argparse
import math
from collections.abc import Callable

from kclient_quota.config import quantity
from kclient_quota.errors import ConfigError

_MOST = 2**53
_MOST_SECONDS = 1_000_000_000
"""Thirty years; three hundred are more than sockets and locks can wait for."""


def seconds(text: str) -> float:
    """Seconds above 0."""
    value = _number(text, "seconds", float)
    if value > _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r}: write seconds, {_MOST_SECONDS} at most")
    return value


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


def servers(text: str) -> str:
    """`HOST:PORT`, several separated by commas: as it is, but a port is one.

    librdkafka takes one modulo 65536, and passes over what stands behind its digits.
    """
    for part in text.split(","):
        host, colon, number = part.rpartition("://")[2].partition("/")[0].rpartition(":")
        if colon and (":" not in host or host.endswith("]")):
            port(number.strip())
    return text


def _number(text: str, what: str, read: Callable[[str], float]) -> float:
    try:
        value = float(read(text))
    except (ValueError, ConfigError):
        value = math.nan
    if not 0 < value <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: write {what}, greater than 0")
    return value
