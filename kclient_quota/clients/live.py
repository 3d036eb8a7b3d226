"""The clients that this process has open, for those who watch them (OpenTelemetry)."""

from typing import Any
from weakref import WeakValueDictionary

# By their ids: a subclass that says what equals it, a dataclass for one, has no hash.
_open: WeakValueDictionary[int, Any] = WeakValueDictionary()


def opened(client: Any) -> None:
    """Called by a client at the end of its construction; it is forgotten when it is gone."""
    _open[id(client)] = client


def clients() -> list[Any]:
    """Producers and consumers, in no order; some may be closed."""
    return list(_open.values())
