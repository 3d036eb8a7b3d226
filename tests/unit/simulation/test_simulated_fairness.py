"""Producers that share one quota, unknown to each other, in virtual time.

More of them: `tests/grids/test_fleet_many.py`.
"""

import random

import pytest

from kclient_quota.simulation import Change, Scenario, figures, parts, simulate


def fleet(seed, **scenario):
    made = Scenario(**{"seconds": 120, "warm_up_ms": 60_000, **scenario})
    return figures(made, [simulate(made, part, random.Random(f"{seed}/{part.brokers[0]}")) for part in parts(made)])


@pytest.mark.parametrize(
    ("clients", "quota", "seed"),
    [
        (2, 51_200, 1),
        (8, 51_200, 5),
    ],
)
def test_who_knows_the_quota_has_an_equal_share_in_the_second_minute(clients, quota, seed):
    who_knows_has_an_equal_share(clients, quota, seed)


def who_knows_has_an_equal_share(clients, quota, seed):
    found = fleet(seed, clients=clients, quota=quota)
    assert found.utilisation >= 0.95
    assert found.jain >= 0.99
    if clients <= 8:
        assert found.throttle_p99_ms <= 500


@pytest.mark.parametrize(("clients", "plain", "quota"), [(1, 1, 51_200), (1, 1, 1_048_576), (1, 3, 1_048_576)])
def test_who_knows_the_quota_is_left_something_by_plain_clients(clients, plain, quota):
    found = fleet(1, clients=clients, plain=plain, quota=quota, seconds=280, warm_up_ms=180_000)
    assert found.plain is not None
    assert 0.3 <= (1 - found.plain.used) * (clients + plain) / clients <= 1.2


def test_newcomers_that_know_the_quota_soon_have_their_share():
    newcomers_soon_have_their_share(1, 7, 1_048_576)


def newcomers_soon_have_their_share(clients, newcomers, quota):
    found = fleet(101, clients=clients, quota=quota, seconds=90, changes=(Change(50_000, newcomers),))
    after_ms = found.settling[-1].after_ms
    assert after_ms is not None
    assert after_ms <= 20_000


@pytest.mark.parametrize(
    ("clients", "quota", "seed"),
    [
        (2, 1_048_576, 1),
        (8, 51_200, 1),
        (32, 51_200, 2015),
    ],
)
def test_who_learns_the_quota_has_nearly_an_equal_share_in_the_second_minute(clients, quota, seed):
    who_learns_has_nearly_an_equal_share(clients, quota, seed)


def who_learns_has_nearly_an_equal_share(clients, quota, seed):
    found = fleet(seed, clients=clients, quota=quota, told=False)
    assert found.utilisation >= 0.95
    assert found.jain >= 0.9
    assert found.least_share >= 0.5


@pytest.mark.parametrize("seed", [1, 2])
def test_messages_worth_a_second_of_a_learnt_share_starve_nobody(seed):
    found = fleet(seed, clients=8, quota=1_048_576, message_bytes=100_000, told=False)
    assert found.utilisation >= 0.75
    assert found.jain >= 0.75
    assert found.least_share >= 0.3
