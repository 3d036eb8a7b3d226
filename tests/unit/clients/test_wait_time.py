"""Time spent waiting for the quota."""

import logging

import pytest

from kclient_quota.clients.wait_time import WaitLog, WaitTime
from kclient_quota.metrics import MetricName


def test_waits_add_up_and_a_clock_that_jumps_back_takes_nothing_away() -> None:
    waited = WaitTime()
    for took_ms in (100, 0, -50, 25):
        waited.add(took_ms)
    name = MetricName("quota-wait-time-total", "consumer-metrics", (("client-id", "app"),))
    assert waited.metrics("consumer", "app") == {name: 125.0}


def test_long_waits_are_told_of_once_a_minute_and_short_ones_never(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kclient_quota")
    log = WaitLog("app")
    log.on_wait(999, 999)
    log.on_end(999)
    assert not caplog.records
    for begin_ms in (10_000, 40_000, 71_000):
        for waited_ms in (50, 1_000, 1_050):
            log.on_wait(waited_ms, begin_ms + waited_ms)
        log.on_end(2_000)
    assert [record.waited_ms for record in caplog.records] == [1_000, 2_000, 1_000, 2_000]
    assert {record.levelno for record in caplog.records} == {logging.INFO}
    assert all("'app'" in record.getMessage() for record in caplog.records)
