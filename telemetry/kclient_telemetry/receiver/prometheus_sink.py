"""Pushes for the page that Prometheus scrapes: small ones at once, what takes long in a thread of its own.

A megabyte holds 20,000 points, which take a third of a second: whoever is answered by the thread that pushes come by
would wait for that.
"""

import threading
import time

from kclient_telemetry.receiver.fanout import ReceivedPush
from kclient_telemetry.receiver.prometheus import PrometheusStore
from kclient_telemetry.receiver.queued import QueuedSink

_SMALL_BYTES = 16 * 1024  # some five hundred points, ten milliseconds; what clients push by themselves is less
_BREATH_S = 0.001


class PrometheusSink:
    """A sink that lets nobody wait for a store.

    Args:
        store: takes the pushes, those of one client in the order in which they came.
    """

    def __init__(self, store: PrometheusStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._queued: QueuedSink | None = None

    @property
    def held_bytes(self) -> int:
        """About how much memory those take that are not on the page yet."""
        return 0 if self._queued is None else self._queued.held_bytes

    def accept(self, push: ReceivedPush) -> None:
        """Take over the values of `push`, now or a little later."""
        with self._lock:
            queued = self._queued
            is_next = queued is None or not queued.held_bytes
            if is_next and len(push.payload.data) <= _SMALL_BYTES and self._store.accept_at_once(push):
                return
            if queued is None:
                queued = self._queued = QueuedSink(_Writer(self._store), is_kept=False)
            queued.accept(push)

    def close(self, timeout_ms: int) -> None:
        """Take over what is waiting, within `timeout_ms`."""
        if self._queued is not None:
            self._queued.close(timeout_ms)


class _Writer:
    def __init__(self, store: PrometheusStore) -> None:
        self._store = store

    def write(self, push: ReceivedPush) -> None:
        """A little at a time: Python runs one thread at once, and the store is the scraper's between the steps."""
        for _ in self._store.steps(push):
            time.sleep(_BREATH_S)

    def tick(self, now_unix_ms: int) -> None:
        """Nothing is due by time."""

    def close(self) -> None:
        """Nothing has been begun."""
