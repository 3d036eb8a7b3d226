"""How long an application's calls have waited for the quota, in ms: `quota-wait-time-total`, `-avg`, `-max`."""

import logging
from typing import Final

from kclient_telemetry.locks import reentrant_lock

from kclient_quota.clients.calls import briefly
from kclient_quota.metrics import MetricName, Times

logger = logging.getLogger("kclient_quota")

LONG_MS: Final = 1_000
"""A call that waits for longer is told of."""
EVERY_MS: Final = 60_000


class WaitTime:
    """Of one client; its calls may wait in several threads at once, whose times add up."""

    def __init__(self) -> None:
        self.total_ms = 0
        self._times = Times()
        self._lock = reentrant_lock()

    def add(self, waited_ms: int, now_ms: int | None = None) -> None:
        """A call has waited, until `now_ms`; without that it counts for the total only."""
        if waited_ms <= 0:
            return
        with briefly(self._lock):
            self.total_ms += waited_ms
            if now_ms is not None:
                self._times.record(1, waited_ms, waited_ms, now_ms)

    def metrics(self, kind: str, client_id: str, now_ms: int | None = None) -> dict[MetricName, float]:
        """By name, in the group `producer-metrics` or `consumer-metrics`.

        Returns:
            the total since the beginning and, with `now_ms`, average and longest of the calls that have waited within
            the last minute.
        """
        with briefly(self._lock):
            found = {"total": float(self.total_ms)}
            if now_ms is not None:
                found["avg"], found["max"] = self._times.figures(now_ms)
        tags = (("client-id", client_id),)
        return {MetricName(f"quota-wait-time-{name}", f"{kind}-metrics", tags): value for name, value in found.items()}


class WaitLog:
    """Says that calls wait for the quota, and when that ends; not more often than once a minute."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._said_at_ms: int | None = None
        self._is_said = False

    def on_wait(self, waited_ms: int, now_ms: int) -> None:
        """A call has waited for so long, and goes on."""
        if waited_ms < LONG_MS or self._is_said:
            return
        if self._said_at_ms is None or now_ms - self._said_at_ms >= EVERY_MS:
            self._said_at_ms, self._is_said = now_ms, True
            text = (
                "produce() of client %r has waited %d ms for the quota and goes on waiting; metrics(): quota-wait-time"
            )
            logger.info(text, self._client_id, waited_ms, extra=self._extra(waited_ms))

    def on_end(self, waited_ms: int) -> None:
        """A call that has waited for so long has ended."""
        if self._is_said and waited_ms >= LONG_MS:
            self._is_said = False
            text = "produce() of client %r goes on after %d ms of waiting for the quota"
            logger.info(text, self._client_id, waited_ms, extra=self._extra(waited_ms))

    def _extra(self, waited_ms: int) -> dict[str, object]:
        return {"client_id": self._client_id, "waited_ms": waited_ms}
