"""What consumers miss or read again when something breaks, and applications in transactions; beside plain ones."""

from statistics import fmean
from typing import Any

import pytest

from kclient_quota.testing.proxies import Proxies
from tests.faults.breaking import Fault, half_open_connections, kill_all_brokers, kill_the_controller
from tests.faults.conftest import Table
from tests.faults.reading import WORKLOADS, play_reading

pytestmark = pytest.mark.timeout(600)
KINDS = ("ours", "plain")
SLOWER_S = 10.0
"""Ours may go on so much later than plain, whose lumps under a quota are seconds apart."""
CHANCY = {half_open_connections, kill_all_brokers, kill_the_controller}
"""Where one application says nothing. Which connections librdkafka uses one after the other, to ask who coordinates for
one, is its chance, and each that is dead costs `socket.timeout.ms`: plain ones go on after 10 to 40 s. So is which
request is under way when a broker that coordinates is killed: some stand until it is back, some are answered before,
and of seven kills each of ours and plain was up to nine seconds ahead of the other in some."""


@pytest.mark.parametrize("workload", WORKLOADS)
def test_nothing_is_lost_and_only_what_was_not_committed_is_repeated(
    behind_proxies: tuple[Any, Proxies], fault: Fault, workload: str, table: Table
) -> None:
    numbers = ["", "-2", "-3"] if fault in CHANCY and workload == "transactions" else [""]
    seen = play_reading(*behind_proxies, fault, workload, [kind + number for number in numbers for kind in KINDS])
    table.add(fault.__name__, workload, seen)
    ours, plain = ([seen[kind + number] for number in numbers] for kind in KINDS)
    for one in ours:
        assert (one.lost, one.reordered, one.stuck) == (0, 0, 0), seen
        if workload == "transactions":
            assert one.repeated == 0, seen
    assert fmean(one.resumed_s for one in ours) <= fmean(one.resumed_s for one in plain) + SLOWER_S, seen
