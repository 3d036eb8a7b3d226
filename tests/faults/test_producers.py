"""What a producer loses, doubles or re-orders when something breaks, beside a plain one with the same settings."""

from typing import Any

import pytest

from kclient_quota.testing.proxies import Proxies
from tests.faults.breaking import Fault, cut_connections
from tests.faults.conftest import Table
from tests.faults.producing import play

pytestmark = pytest.mark.timeout(600)
SLOWER_S = 5.0
"""Ours may go on so much later than plain: what it admits next has to wait for the quota's window. And of a half-open
connection both hear `socket.timeout.ms` after the first request that has no answer: of ours, which stand behind no
throttle, that is the first one after the break (10.2 s), of plain's it was sent up to 2 s before (8.2 to 9.2 s)."""


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "at-least-once"])
def test_nothing_is_lost_or_stuck(
    behind_proxies: tuple[Any, Proxies], fault: Fault, idempotent: bool, table: Table
) -> None:
    # How long a cut lasts depends on what is under way: ours is compared with plain at the same rate, too.
    kinds = ["ours", "plain", *(["paced"] if fault is cut_connections else [])]
    seen = play(*behind_proxies, fault, idempotent=idempotent, kinds=kinds)
    table.add(fault.__name__, "producer, idempotent" if idempotent else "producer", seen)
    ours, plain = seen["ours"], seen["plain"]
    assert (ours.lost, ours.stuck) == (0, 0), seen
    if idempotent:
        assert (ours.failed, ours.duplicated, ours.reordered) == (0, 0, 0), seen
    else:
        assert ours.failed <= plain.failed, seen
    assert ours.resumed_s <= plain.resumed_s + SLOWER_S, seen
