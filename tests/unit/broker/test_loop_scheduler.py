"""A machine that has slept: its date goes on, its clock does not."""

import asyncio

import pytest

from kclient_quota.broker.network import loop_scheduler
from kclient_quota.broker.network.loop_scheduler import LoopScheduler
from kclient_quota.clock import SystemClock
from kclient_quota.testing.clock import ManualClock


@pytest.mark.parametrize(("slept_ms", "behind_ms"), [(7_200_000, 7_200_000), (-7_200_000, 0)])
def test_records_are_dated_by_the_date_and_waits_go_by_the_clock(monkeypatch, slept_ms, behind_ms):
    dates = [1_700_000_000_000]
    monkeypatch.setattr(loop_scheduler, "unix_ms", lambda: dates[0])
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: 5_000)
    loop = asyncio.new_event_loop()
    scheduler = LoopScheduler(loop, SystemClock())
    by_hand = LoopScheduler(loop, ManualClock())
    dates[0] += slept_ms
    assert scheduler.now_ms() == 1_700_000_000_000
    assert scheduler.date_ms() == scheduler.now_ms() + behind_ms
    assert by_hand.date_ms() == by_hand.now_ms() == 1_700_000_000_000
    loop.close()
