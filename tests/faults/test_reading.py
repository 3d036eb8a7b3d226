"""What consumers miss or read again when something breaks, and applications in transactions; beside plain ones."""

from typing import Any

import pytest

from kclient_quota.testing.proxies import Proxies
from tests.faults.breaking import Fault
from tests.faults.conftest import Table
from tests.faults.reading import WORKLOADS, play_reading

pytestmark = pytest.mark.timeout(600)
SLOWER_S = 10.0
"""Ours may go on so much later than plain, whose lumps under a quota are seconds apart."""


@pytest.mark.parametrize("workload", WORKLOADS)
def test_nothing_is_lost_and_only_what_was_not_committed_is_repeated(
    behind_proxies: tuple[Any, Proxies], fault: Fault, workload: str, table: Table
) -> None:
    seen = play_reading(*behind_proxies, fault, workload)
    table.add(fault.__name__, workload, seen)
    ours, plain = seen["ours"], seen["plain"]
    assert (ours.lost, ours.reordered, ours.stuck) == (0, 0, 0), seen
    if workload == "transactions":
        assert ours.repeated == 0, seen
    assert ours.resumed_s <= plain.resumed_s + SLOWER_S, seen
