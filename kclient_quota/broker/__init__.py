"""An embedded, quota-enforcing Kafka broker. Names are loaded when they are first used, so that `--help` is quick."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kclient_quota.broker.manners import MANNERS, Delay, ThrottleManner
    from kclient_quota.broker.request.controls import HANG_UP, IGNORE, Intercepted, SeenRequest
    from kclient_quota.broker.server import EmbeddedBroker

_HOMES = {
    "Delay": "manners",
    "EmbeddedBroker": "server",
    "HANG_UP": "request.controls",
    "IGNORE": "request.controls",
    "Intercepted": "request.controls",
    "MANNERS": "manners",
    "SeenRequest": "request.controls",
    "ThrottleManner": "manners",
}

__all__ = [
    "HANG_UP",
    "IGNORE",
    "MANNERS",
    "Delay",
    "EmbeddedBroker",
    "Intercepted",
    "SeenRequest",
    "ThrottleManner",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
