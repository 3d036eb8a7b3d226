"""A consumer that its request quota keeps from its group, told apart from one that fetches too much.

Every request of a client counts against `request_percentage`, and once it is used up every answer is throttled, for one
quota window at most (Kafka's `ClientRequestQuotaManager`). Finding the coordinator, joining and fetching offsets take a
dozen answers, so that a small percentage delays joining by as many seconds, in which a consumer seems to do nothing.
"""

from typing import Final

from kclient_quota.clients.limits import Limit
from kclient_quota.clients.throttle_log import request_words

PATIENCE_MS: Final = 5_000
"""How long a consumer may be held up before it is told."""


def is_request_throttle(throttle_ms: int, limit: Limit, *, fetches: bool) -> bool:
    """Whether a consumer's throttle must be a request quota's.

    Args:
        throttle_ms: what the broker said.
        limit: what is known.
        fetches: whether the consumer fetches from any partition: a byte quota throttles nothing else.
    """
    if throttle_ms > limit.window_ms:
        return False
    return not fetches or limit.only_requests or throttle_ms == limit.window_ms


class JoinWatch:
    """Watches one consumer from its first request throttle until it fetches, and says once what keeps it."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._since_ms: int | None = None
        self._count = 0
        self._total_ms = 0
        self._is_over = False

    def on_throttle(self, throttle_ms: int, now_ms: int) -> None:
        """An answer was throttled by a request quota."""
        if self._since_ms is None:
            self._since_ms = now_ms
        self._count += 1
        self._total_ms += throttle_ms

    def check(self, limit: Limit, now_ms: int, *, fetches: bool) -> str | None:
        """What holds the consumer up, in words, once, when it has been held up for long."""
        self._is_over = self._is_over or fetches
        if self._is_over or self._since_ms is None or now_ms - self._since_ms < PATIENCE_MS:
            return None
        self._is_over = True
        return (
            f"Client {self._client_id!r} fetches nothing yet: a request quota ({request_words(limit)}) holds up "
            f"joining its group, brokers have throttled {self._count} answers for {self._total_ms} ms in all; have "
            "request_percentage raised"
        )
