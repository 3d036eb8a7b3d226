"""What `tests/unit/simulation/test_simulation_consumers.py` has of small quotas, for larger ones and more consumers."""

import pytest

from tests.unit.simulation.test_simulation_consumers import (
    consumers_share_what_they_know,
    consumers_share_what_they_must_learn,
    one_gets_what_it_gets_by_brute_force,
)


@pytest.mark.parametrize(("quota", "message", "batch"), [(500_000, 1_000, 40)])
def test_one_consumer_gets_what_it_gets_millisecond_by_millisecond(quota, message, batch):
    one_gets_what_it_gets_by_brute_force(quota, message, batch)


@pytest.mark.parametrize(("clients", "quota"), [(8, 51_200), (2, 1_048_576), (8, 1_048_576)])
def test_consumers_share_a_quota_that_they_must_learn(clients, quota):
    consumers_share_what_they_must_learn(clients, quota)


def test_consumers_share_a_quota_that_they_know():
    consumers_share_what_they_know(8)
