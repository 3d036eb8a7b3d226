"""What a producer loses, doubles or re-orders when something breaks, beside a plain one with the same settings."""

from typing import Any

import pytest

from kclient_quota.testing.proxies import Proxies
from tests.faults.conftest import Table
from tests.faults.played import BROKERS, CLOCKS, NETWORK, PROCESSES, Fault, is_apache, play

pytestmark = pytest.mark.timeout(400)
SLOWER_S = 5.0
"""Ours may go on so much later than plain: what it admits next has to wait for the quota's window."""


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "at-least-once"])
@pytest.mark.parametrize("fault", [*NETWORK, *BROKERS, *CLOCKS, *PROCESSES])
def test_nothing_is_lost_or_stuck(
    behind_proxies: tuple[Any, Proxies], fault: Fault, idempotent: bool, table: Table
) -> None:
    cluster, proxies = behind_proxies
    if fault in PROCESSES and not is_apache(cluster):
        pytest.skip("the embedded broker's process is this one")
    seen = play(cluster, proxies, fault, idempotent=idempotent)
    broker = "Apache" if is_apache(cluster) else "embedded"
    table.add(fault.__name__, "producer, idempotent" if idempotent else "producer", broker, seen)
    ours, plain = seen["ours"], seen["plain"]
    assert (ours.lost, ours.stuck) == (0, 0), (ours.row(), plain.row())
    if idempotent:
        assert (ours.failed, ours.duplicated, ours.reordered) == (0, 0, 0), (ours.row(), plain.row())
    assert ours.resumed_s <= plain.resumed_s + SLOWER_S, (ours.row(), plain.row())
