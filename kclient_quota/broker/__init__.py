"""An embedded, quota-enforcing Kafka broker."""

from kclient_quota.broker.manners import MANNERS, Delay, ThrottleManner
from kclient_quota.broker.request.faults import HANG_UP, IGNORE, Intercepted, SeenRequest
from kclient_quota.broker.server import EmbeddedBroker

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
