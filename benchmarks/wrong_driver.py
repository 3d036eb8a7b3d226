"""A driver of `kclient-quota certify` that fails every scene on purpose: what no scene fails, no scene would find.

It reports what it never sent, receives nothing, ends when nobody told it to, and asks for telemetry in mid-throttle
without ever pushing any.
"""

import time

from kclient_quota.certify.drivers.telling import Assignment, tell
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.errors import ClusterError
from kclient_quota.wire.connection import Connection
from kclient_quota.wire.endpoint import ConnectionSettings
from kclient_quota.wire.messages import GetTelemetrySubscriptionsRequest

_TOLD = 50
_PAUSE_S = 0.6


def _ask_for_telemetry(task: Assignment) -> None:
    host, _, port = task.bootstrap_servers.split(",")[0].rpartition(":")
    settings = ConnectionSettings(host, int(port), client_id=task.client_id)
    for _ in range(2):
        with Connection(settings, SYSTEM_CLOCK) as connection:
            connection.send(GetTelemetrySubscriptionsRequest(), version=0, timeout_ms=10_000)
        time.sleep(_PAUSE_S)


def main() -> None:
    """Whatever it is asked, it does it wrongly."""
    task = Assignment()
    if task.config.get("enable.metrics.push"):
        try:
            _ask_for_telemetry(task)
        except ClusterError as error:
            tell("said", error=error)
    if task.role in {"produce", "transact"}:
        for number in range(_TOLD):
            tell("sent", number)
            tell("acknowledged", number)


if __name__ == "__main__":
    main()
