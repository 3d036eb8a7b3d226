"""Time spent waiting for the quota."""

from kclient_quota.clients.wait_time import WaitTime
from kclient_quota.metrics import MetricName


def test_waits_add_up_and_a_clock_that_jumps_back_takes_nothing_away() -> None:
    waited = WaitTime()
    for took_ms in (100, 0, -50, 25):
        waited.add(took_ms)
    name = MetricName("quota-wait-time-total", "consumer-metrics", (("client-id", "app"),))
    assert waited.metrics("consumer", "app") == {name: 125.0}
