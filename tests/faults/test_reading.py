"""What consumers miss or read again when something breaks, and applications in transactions; beside plain ones."""

from typing import Any

import pytest

from kclient_quota.testing.proxies import Proxies
from tests.faults.conftest import Table
from tests.faults.played import BROKERS, CLOCKS, NETWORK, PROCESSES, Fault, is_apache
from tests.faults.reading import WORKLOADS, play_reading

pytestmark = pytest.mark.timeout(500)
SLOWER_S = 10.0


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("fault", [*NETWORK, *BROKERS, *CLOCKS, *PROCESSES])
def test_nothing_is_lost_and_only_what_was_not_committed_is_repeated(
    behind_proxies: tuple[Any, Proxies], fault: Fault, workload: str, table: Table
) -> None:
    cluster, proxies = behind_proxies
    if fault in PROCESSES and not is_apache(cluster):
        pytest.skip("the embedded broker's process is this one")
    seen = play_reading(cluster, proxies, fault, workload)
    table.add(fault.__name__, workload, "Apache" if is_apache(cluster) else "embedded", seen)
    ours, plain = seen["ours"], seen["plain"]
    assert (ours.lost, ours.reordered, ours.stuck) == (0, 0, 0), (ours.row(), plain.row())
    if workload == "transactions":
        assert ours.repeated == 0, (ours.row(), plain.row())
    assert ours.resumed_s <= plain.resumed_s + SLOWER_S, (ours.row(), plain.row())
