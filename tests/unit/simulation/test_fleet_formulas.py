"""The article's formulas for planners, against simulated fleets: quotas are per broker.

More cells of each: `tests/grids/test_fleet_formulas_grid.py`.
"""

import random
from math import inf

import pytest

from kclient_quota.admin.capacity import effective_rate, keyed_rate, mixed_rate, shared_rates
from kclient_quota.simulation import Scenario, figures, parts, simulate
from kclient_quota.simulation.rates import shares

QUOTA = 102_400
BROKERS = 3
FROM_MS, TO_MS = 60_000, 180_000


def rates(**scenario):
    """Bytes per second that each client had, in its order, two minutes long."""
    made = Scenario(brokers=BROKERS, quota=QUOTA, seconds=180, **scenario)
    outcomes = [simulate(made, part, random.Random(f"1/{part.brokers}")) for part in parts(made)]
    assert figures(made, outcomes).requests > 0
    clients = [client for outcome in outcomes for client in outcome.part.clients]
    had = shares(made.presence(), outcomes, FROM_MS, TO_MS)
    return [had[clients.index(number)] * 1000 / (TO_MS - FROM_MS) for number in range(made.total_clients)]


def spread(partitions):
    return tuple(number % BROKERS for number in range(partitions))


@pytest.mark.parametrize(("partitions", "clients"), [(3, 1), (1, 2)])
def test_the_smaller_of_brokers_and_partitions_times_the_quota_by_clients(partitions, clients):
    have_the_smaller_by_clients(partitions, clients)


def have_the_smaller_by_clients(partitions, clients):
    had = rates(clients=clients, leaders=(spread(partitions),))
    planned = effective_rate(QUOTA, BROKERS, partitions, clients=clients)
    assert sum(had) / clients == pytest.approx(planned, rel=0.05)
    assert min(had) >= 0.9 * planned


def test_keyed_messages_get_as_much_where_leaders_are_even():
    keyed_messages_get_as_much(6)


def keyed_messages_get_as_much(partitions):
    (had,) = rates(clients=1, leaders=(spread(partitions),), keyed=True)
    assert had == pytest.approx(effective_rate(QUOTA, BROKERS, partitions), rel=0.06)


def test_uneven_leaders_hold_keyed_messages_back():
    uneven_leaders_hold_back((0, 0, 1))


def uneven_leaders_hold_back(leaders):
    (had,) = rates(clients=1, leaders=(leaders,), keyed=True)
    counts = [leaders.count(broker) for broker in range(BROKERS)]
    assert had == pytest.approx(keyed_rate(QUOTA, counts), rel=0.06)


def test_uneven_leaders_cost_steered_messages_nothing():
    (had,) = rates(clients=1, leaders=((0, 0, 0, 1, 1, 2),))
    assert had == pytest.approx(effective_rate(QUOTA, BROKERS, 6), rel=0.05)


def test_two_topics_on_brokers_of_their_own_get_the_mean_of_both():
    """The article's (x + y) / 2: what the two producers of one client-id have on average."""
    had = rates(clients=2, leaders=((0, 1), (2,)))
    assert sum(had) / 2 == pytest.approx(mixed_rate(QUOTA, 2, 1), rel=0.05)
    assert had == pytest.approx([2 * QUOTA, QUOTA], rel=0.05)


def test_topics_that_share_brokers_divide_each_of_them():
    topics_divide_brokers((2, 1, 1))


def topics_divide_brokers(topics):
    had = rates(clients=len(topics), leaders=tuple(spread(partitions) for partitions in topics))
    assert had == pytest.approx(shared_rates(QUOTA, BROKERS, topics), rel=0.12)
    assert sum(had) == pytest.approx(max(topics) * QUOTA, rel=0.05)


def test_what_one_leaves_the_other_gets():
    """The article's 256 and 768 kB/s."""
    one_gets_what_the_other_leaves(0.25)


def one_gets_what_the_other_leaves(part):
    modest, greedy = rates(clients=2, leaders=((0,),), demands=(part * QUOTA, inf), message_bytes=10_000)
    # Who was late at the start catches up.
    assert modest == pytest.approx(part * QUOTA, rel=0.1)
    assert greedy == pytest.approx((1 - part) * QUOTA, rel=0.15)
