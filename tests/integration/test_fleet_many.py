"""Many clients on one quota, unknown to each other, in virtual time."""

import random

import pytest

from kclient_quota.simulation import Change, Scenario, figures, parts, simulate

QUOTAS = (51_200, 1_048_576, 52_428_800)


def fleet(**scenario):
    made = Scenario(**{"seconds": 120, "warm_up_ms": 60_000, **scenario})
    return figures(made, [simulate(made, part, random.Random(f"1/{part.brokers}")) for part in parts(made)])


@pytest.mark.parametrize("quota", QUOTAS)
@pytest.mark.parametrize("clients", [2, 8, 32])
def test_who_knows_the_quota_shares_all_of_it_equally(quota, clients):
    found = fleet(quota=quota, clients=clients, seconds=180)
    assert found.utilisation >= 0.95
    assert found.jain >= (0.99 if clients <= 8 else 0.98)
    if clients <= 8:
        assert found.throttle_p99_ms <= 500


@pytest.mark.parametrize(("clients", "more"), [(4, 4), (7, 1), (1, 1), (8, -4), (2, -1)])
def test_arrivals_and_departures_settle_within_half_a_minute(clients, more):
    found = fleet(quota=1_048_576, clients=clients, seconds=180, changes=(Change(120_000, more),))
    after_ms = found.settling[-1].after_ms
    assert after_ms is not None
    assert after_ms <= 30_000


@pytest.mark.parametrize("clients", [2, 8])
def test_who_learns_a_small_quota_shares_it_too(clients):
    found = fleet(quota=51_200, clients=clients, told=False)
    assert found.utilisation >= 0.95
    assert found.jain >= 0.9
    assert found.least_share >= 0.5


@pytest.mark.parametrize("quota", QUOTAS)
@pytest.mark.parametrize("clients", [2, 8, 32])
def test_who_learns_leaves_nothing_unused(quota, clients):
    assert fleet(quota=quota, clients=clients, told=False).utilisation >= 0.95
