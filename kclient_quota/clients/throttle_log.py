"""What the log says about a client's throttling: its beginning and its end, and not more often than once a minute."""

import logging
from typing import Final

from kclient_quota.clients.limits import Limit
from kclient_quota.config import Backoff

logger = logging.getLogger("kclient_quota")

WARN_EVERY_MS: Final = 60_000
QUIET_MS: Final = 5_000
"""Throttles that come closer than this are one stretch of throttling to the log."""
ASK_AGAIN_MS: Final = 30_000
"""How often throttles have the limit asked for again."""


class ThrottleLog:
    """One client's stretches of throttling.

    Args:
        client_id: for the log.
        effect: what the client does about a throttle, in words.
        backoff: whether it does.

    Attributes:
        last_ms: when the latest throttle ends or ended; None before the first.
    """

    def __init__(self, client_id: str, effect: str, backoff: Backoff = Backoff.BLOCK) -> None:
        self.last_ms: int | None = None
        self._client_id = client_id
        self._effect = "nothing is done about it, as quota.backoff is off" if backoff is Backoff.OFF else effect
        self._throttling = False
        self._said = False
        self._warned_at_ms: int | None = None
        self._asked_at_ms: int | None = None

    def on_throttle(self, broker_name: str, throttle_ms: int, limit: Limit, now_ms: int) -> None:
        """A broker throttles for `throttle_ms`."""
        self.last_ms = now_ms + throttle_ms
        if self._throttling:
            return
        self._throttling = True
        self._said = self._warned_at_ms is None or now_ms - self._warned_at_ms >= WARN_EVERY_MS
        if self._said:
            self._warned_at_ms = now_ms
            logger.warning(
                "Broker %s throttles client %r for %d ms: %s (quota: %s)",
                broker_name,
                self._client_id,
                throttle_ms,
                self._effect,
                words(limit),
            )

    def on_time(self, now_ms: int) -> None:
        """Time has passed; a stretch may have ended, which is told if its beginning was."""
        if self._throttling and self.last_ms is not None and now_ms - self.last_ms >= QUIET_MS:
            self._throttling = False
            if self._said:
                logger.info("Throttling of client %r has ended", self._client_id)

    def asks(self, now_ms: int) -> bool:
        """Whether it is time to have the limit asked for again, supposing that it will be."""
        if self._asked_at_ms is not None and now_ms - self._asked_at_ms < ASK_AGAIN_MS:
            return False
        self._asked_at_ms = now_ms
        return True


def words(limit: Limit) -> str:
    """A limit in words."""
    if limit.byte_rate is not None:
        by = f", {limit.decided_by}" if limit.decided_by else ""
        return f"{limit.byte_rate:,.0f} B/s per broker, from {limit.source}{by}"
    if limit.request_percentage is not None:
        return request_words(limit)
    return "none" if limit.unlimited else "not known, being learnt"


def request_words(limit: Limit) -> str:
    """A request quota in words."""
    if limit.request_percentage is None:
        return "request_percentage, its value is not known"
    by = f", {limit.decided_by}" if limit.decided_by else ""
    return f"request_percentage={limit.request_percentage:g} per broker, from {limit.source}{by}"
