"""What may be simulated, who is there when, and what has nothing to do with what."""

import random

import pytest

from kclient_quota.errors import ConfigError
from kclient_quota.simulation import Change, Kind, Part, Scenario, parts


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"brokers": 0}, "brokers"),
        ({"message_bytes": 0}, "message_bytes"),
        ({"seconds": 0}, "seconds"),
        ({"quota": 0}, "quota"),
        ({"quota": float("nan")}, "quota"),
        ({"demands": (5.0, 0.0)}, "demands"),
        ({"demands": ()}, "demands"),
        ({"clients": 0}, "clients"),
        ({"clients": -1}, "clients"),
        ({"plain": -1}, "plain"),
        ({"learning": -1}, "learning"),
        ({"clients": 2, "learning": 3, "changes": (Change(5_000, 2),)}, "learning"),
        ({"batch_messages": 0}, "batch_messages"),
        ({"warm_up_ms": 120_000}, "warm_up_ms"),
        ({"leaders": ((1,),)}, "leaders"),
        ({"leaders": ((),)}, "leaders"),
        ({"changes": (Change(120_000, 1),)}, "change"),
        ({"changes": (Change(1_000, -2), Change(2_000, 5))}, "depart"),
    ],
    ids=str,
)
def test_scenarios_that_cannot_be_are_refused(wrong, says):
    with pytest.raises(ConfigError, match=says):
        Scenario(**wrong)


def test_who_came_first_goes_first():
    scenario = Scenario(clients=2, changes=(Change(60_000, -3), Change(30_000, 2), Change(90_000, 1)))
    assert scenario.presence() == [(0, 60_000), (0, 60_000), (30_000, 60_000), (30_000, 120_000), (90_000, 120_000)]
    assert scenario.total_clients == 5


def test_plain_clients_come_last_and_stay():
    scenario = Scenario(clients=1, plain=2, changes=(Change(30_000, 1), Change(60_000, -2)))
    assert scenario.presence() == [(0, 60_000), (30_000, 60_000), (0, 120_000), (0, 120_000)]
    assert [scenario.is_plain(client) for client in range(scenario.total_clients)] == [False, False, True, True]


def test_the_last_of_the_start_learn():
    scenario = Scenario(clients=3, learning=2, plain=1, changes=(Change(30_000, 1),))
    kinds = [Kind.KNOWN, Kind.LEARNING, Kind.LEARNING, Kind.KNOWN, Kind.PLAIN]
    assert [scenario.kind(client) for client in range(scenario.total_clients)] == kinds
    assert Scenario(clients=1, told=False, changes=(Change(30_000, 1),)).learns(1)


def test_everybody_may_come_later():
    scenario = Scenario(clients=0, changes=(Change(5_000, 2),))
    assert scenario.presence() == [(5_000, 120_000)] * 2


def test_clients_of_different_brokers_are_parts_of_their_own():
    assert parts(Scenario(brokers=3, clients=5)) == [Part((0,), (0, 3)), Part((1,), (1, 4)), Part((2,), (2,))]


def test_brokers_that_share_a_client_are_one_part():
    scenario = Scenario(brokers=6, clients=4, leaders=((3,), (4, 1), (5, 3, 5), (1,)))
    assert parts(scenario) == [Part((1, 4), (1, 3)), Part((3, 5), (0, 2))]


def test_topics_that_nobody_writes_to_join_nothing():
    assert parts(Scenario(brokers=2, clients=1, leaders=((0,), (0, 1)))) == [Part((0,), (0,))]


@pytest.mark.parametrize("seed", range(20))
def test_parts_against_brute_force(seed):
    generator = random.Random(seed)
    leaders = tuple(tuple(generator.choices(range(8), k=generator.randint(1, 3))) for _ in range(6))
    scenario = Scenario(brokers=8, clients=generator.randint(1, 12), leaders=leaders)
    groups = [set(scenario.partitions(client)) for client in range(scenario.clients)]
    for _ in groups:
        for mine in groups:
            for other in groups:
                if mine & other:
                    mine.update(other)
    found = parts(scenario)
    assert sorted(client for part in found for client in part.clients) == list(range(scenario.clients))
    for part in found:
        for client in part.clients:
            assert set(part.brokers) == groups[client]
