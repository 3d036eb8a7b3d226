"""The article's first formula, for planners, in every cell; `make test` has the small ones."""

import pytest

from kclient_quota.admin.capacity import effective_rate
from tests.unit.simulation.test_fleet_formulas import BROKERS, QUOTA, rates, spread


@pytest.mark.parametrize("partitions", [1, 3, 6])
@pytest.mark.parametrize("clients", [1, 2, 4])
def test_the_smaller_of_brokers_and_partitions_times_the_quota_by_clients(partitions, clients):
    had = rates(clients=clients, leaders=(spread(partitions),))
    planned = effective_rate(QUOTA, BROKERS, partitions, clients=clients)
    assert sum(had) / clients == pytest.approx(planned, rel=0.05)
    assert min(had) >= 0.9 * planned
