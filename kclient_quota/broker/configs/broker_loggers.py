"""The embedded broker's loggers by Kafka's BROKER_LOGGER resources (KIP-412): names, levels, and setting them.

Kafka's `root` is the logger of the broker's package here, not that of the whole process, whose logging is its own.
"""

import logging
from collections.abc import Mapping
from typing import Final

_ROOT_PACKAGE: Final = "kclient_quota.broker"
ROOT: Final = "root"
LEVELS: Final[Mapping[str, int]] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
"""log4j's names and Python's numbers."""


def logger_names() -> list[str]:
    """Every logger of the broker, `root` first."""
    names = logging.getLogger().manager.loggerDict
    return [ROOT, *sorted(name for name in names if name.startswith(f"{_ROOT_PACKAGE}."))]


def level_of(name: str) -> str:
    """The level that holds for a logger, in log4j's words."""
    number = _logger(name).getEffectiveLevel()
    return next((word for word, level in LEVELS.items() if level <= number), "TRACE")


def set_level(name: str, level: str | None) -> None:
    """Set a logger's level; None lets it follow the loggers above it again."""
    _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(_ROOT_PACKAGE if name == ROOT else name)
