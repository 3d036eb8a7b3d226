"""`quota-wait-time-total`: how long an application's calls have waited for the quota, in ms."""

import threading

from kclient_quota.metrics import MetricName


class WaitTime:
    """Of one client; its calls may wait in several threads at once, whose times add up."""

    def __init__(self) -> None:
        self.total_ms = 0
        self._lock = threading.Lock()

    def add(self, waited_ms: int) -> None:
        """A call has waited."""
        if waited_ms > 0:
            with self._lock:
                self.total_ms += waited_ms

    def metrics(self, kind: str, client_id: str) -> dict[MetricName, float]:
        """The total by name, in the group `producer-metrics` or `consumer-metrics`."""
        name = MetricName("quota-wait-time-total", f"{kind}-metrics", (("client-id", client_id),))
        return {name: float(self.total_ms)}
