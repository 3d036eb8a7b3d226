"""The clients that this process has open, for those who watch them (OpenTelemetry)."""

from typing import Any
from weakref import WeakSet

_open: WeakSet[Any] = WeakSet()


def opened(client: Any) -> None:
    """Called by a client at the end of its construction; it is forgotten when it is gone."""
    _open.add(client)


def clients() -> list[Any]:
    """Producers and consumers, in no order; some may be closed."""
    return list(_open)
