"""Many clients on one quota, unknown to each other, in virtual time."""

import random

import pytest

from kclient_quota.simulation import Change, Scenario, figures, parts, simulate
from tests.unit.simulation.test_simulated_fairness import (
    newcomers_soon_have_their_share,
    who_knows_has_an_equal_share,
    who_learns_has_nearly_an_equal_share,
)

QUOTAS = (51_200, 1_048_576, 52_428_800)


def fleet(seed=1, **scenario):
    made = Scenario(**{"seconds": 120, "warm_up_ms": 60_000, **scenario})
    return figures(made, [simulate(made, part, random.Random(f"{seed}/{part.brokers}")) for part in parts(made)])


@pytest.mark.parametrize("quota", [*QUOTAS, 5_242_880])
@pytest.mark.parametrize("clients", [2, 8, 32])
def test_who_knows_the_quota_shares_all_of_it_equally(quota, clients):
    found = fleet(quota=quota, clients=clients, seconds=180)
    assert found.utilisation >= 0.95
    assert found.jain >= 0.99
    if clients <= 8:
        assert found.throttle_p99_ms <= 500


@pytest.mark.parametrize("quota", QUOTAS)
def test_a_crowd_that_arrives_at_once_settles_within_half_a_minute(quota):
    found = fleet(quota=quota, clients=16, seconds=100, changes=(Change(60_000, 16),))
    after_ms = found.settling[-1].after_ms
    assert after_ms is not None
    assert after_ms <= 15_000


@pytest.mark.parametrize("quota", [5_242_880, 52_428_800])
def test_newcomers_to_a_large_quota_soon_have_their_share(quota):
    found = fleet(101, quota=quota, clients=16, seconds=90, changes=(Change(50_000, 16),))
    after_ms = found.settling[-1].after_ms
    assert after_ms is not None
    assert after_ms <= 20_000


@pytest.mark.parametrize(("clients", "more"), [(4, 4), (7, 1), (1, 1), (8, -4), (2, -1)])
def test_arrivals_and_departures_settle_within_half_a_minute(clients, more):
    found = fleet(quota=1_048_576, clients=clients, seconds=180, changes=(Change(120_000, more),))
    after_ms = found.settling[-1].after_ms
    assert after_ms is not None
    assert after_ms <= 30_000


@pytest.mark.parametrize("quota", QUOTAS)
@pytest.mark.parametrize("clients", [2, 8, 32])
@pytest.mark.parametrize("seed", [1, 2])
def test_who_learns_the_quota_shares_all_of_it_too(quota, clients, seed):
    found = fleet(seed, quota=quota, clients=clients, told=False)
    assert found.utilisation >= 0.95
    assert found.jain >= 0.9
    assert found.least_share >= 0.5


@pytest.mark.parametrize(("quota", "message_bytes"), [(51_200, 100), (1_048_576, 10_000), (52_428_800, 10_000)])
def test_who_learns_shares_whatever_the_messages(quota, message_bytes):
    found = fleet(quota=quota, clients=8, message_bytes=message_bytes, told=False)
    assert found.utilisation >= 0.95
    assert found.jain >= 0.9
    assert found.least_share >= 0.5


@pytest.mark.parametrize("quota", QUOTAS)
@pytest.mark.parametrize(("clients", "more"), [(4, 4), (1, 7), (8, -4), (2, -1)])
def test_who_learns_makes_room_for_newcomers_and_fills_it_again(quota, clients, more):
    found = fleet(quota=quota, clients=clients, seconds=180, told=False, changes=(Change(120_000, more),))
    after_ms = found.settling[-1].after_ms
    assert after_ms is not None
    assert after_ms <= 35_000


def test_who_learns_late_comes_to_what_the_rest_has():
    found = fleet(quota=1_048_576, clients=8, ramp_ms=30_000, seconds=150, told=False)
    assert found.jain >= 0.9
    assert found.least_share >= 0.5


@pytest.mark.parametrize("quota", QUOTAS[:2])
def test_who_learns_and_wants_less_waits_for_nobody(quota):
    found = fleet(quota=quota, clients=8, demands=(quota / 16,), told=False)
    assert found.throttle_p99_ms == 0
    assert found.jain >= 0.99


@pytest.mark.parametrize(("clients", "batch_messages"), [(2, 1), (2, 4), (8, 1), (8, 4), (32, 4)])
def test_consumers_that_know_the_quota_share_all_of_it_equally(clients, batch_messages):
    found = fleet(quota=51_200, batch_messages=batch_messages, clients=clients, consume=True)
    assert found.utilisation >= 0.95
    assert found.jain >= 0.99
    if clients <= 8:
        assert found.throttle_p99_ms <= 500


LEARNING_CONSUMERS = [
    *((51_200, messages, clients) for messages in (1, 4) for clients in (1, 2, 8, 32)),
    *((1_048_576, 16, clients) for clients in (2, 8, 32)),
    (52_428_800, 256, 8),
]


@pytest.mark.parametrize(("quota", "batch_messages", "clients"), LEARNING_CONSUMERS)
def test_consumers_that_learn_the_quota_share_all_of_it_too(quota, batch_messages, clients):
    """Fetches bring one batch, a round trip is 3 ms: who writes 50 MiB/s writes batches of 256 messages and more."""
    found = fleet(quota=quota, batch_messages=batch_messages, clients=clients, told=False, consume=True)
    assert found.utilisation >= 0.95
    assert found.jain >= 0.9
    assert found.least_share >= 0.5


@pytest.mark.parametrize(("quota", "batch_messages"), [(51_200, 1), (1_048_576, 16)])
@pytest.mark.parametrize(("clients", "more"), [(1, 7), (8, -4)])
def test_consumers_that_learn_make_room_for_newcomers_and_fill_it_again(quota, batch_messages, clients, more):
    changes = (Change(120_000, more),)
    found = fleet(
        quota=quota,
        batch_messages=batch_messages,
        clients=clients,
        seconds=180,
        told=False,
        consume=True,
        changes=changes,
    )
    after_ms = found.settling[-1].after_ms
    assert after_ms is not None
    assert after_ms <= 35_000


@pytest.mark.parametrize(("clients", "quota", "seed"), [(2, 51_200, 2), (8, 51_200, 6), (32, 51_200, 2)])
def test_who_knows_the_quota_has_an_equal_share_in_the_second_minute(clients, quota, seed):
    who_knows_has_an_equal_share(clients, quota, seed)


@pytest.mark.parametrize(
    ("clients", "quota", "seed"),
    [
        (8, 1_048_576, 105),
        (8, 52_428_800, 3),
        (32, 51_200, 1),
        (32, 51_200, 2),
        (32, 51_200, 3),
        (32, 51_200, 1006),
    ],
)
def test_who_learns_the_quota_has_nearly_an_equal_share_in_the_second_minute(clients, quota, seed):
    who_learns_has_nearly_an_equal_share(clients, quota, seed)


def test_newcomers_that_know_the_quota_soon_have_their_share():
    newcomers_soon_have_their_share(4, 4, 1_048_576)
