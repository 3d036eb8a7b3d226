"""Figures of outcomes made by hand."""

import random
from collections import Counter

import pytest

from kclient_quota.simulation import Change, Kind, KindFigures, Outcome, Part, Scenario, Settling, Throttles, figures
from kclient_quota.simulation.rates import jain_index, percentile


def outcome(rows, throttles=None, brokers=(0,), clients=None):
    clients = tuple(range(len(rows))) if clients is None else clients
    gaps = [100 * (client + 1) for client in clients]
    noted = {
        Kind.KNOWN: Throttles(Counter(throttles or {}), 3),
        Kind.LEARNING: Throttles(Counter({20: 100}), 11),
        Kind.PLAIN: Throttles(Counter({5: 2}), 9),
    }
    return Outcome(Part(brokers, clients), rows, gaps, noted, 7)


def test_jain_index():
    assert jain_index([5, 5, 5]) == 1
    assert jain_index([9, 0, 0]) == pytest.approx(1 / 3)
    assert jain_index([1, 3]) == pytest.approx(16 / 20)
    assert jain_index([0, 0]) == jain_index([]) == 1


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("part", [0.0, 0.5, 0.95, 0.99, 1.0])
def test_percentile_against_a_sorted_list(seed, part):
    generator = random.Random(seed)
    values = sorted(generator.randrange(20) for _ in range(generator.randint(1, 300)))
    found = percentile(Counter(values), part)
    assert sum(value <= found for value in values) >= part * len(values)
    assert sum(value < found for value in values) <= part * len(values)


def test_figures_of_two_clients():
    scenario = Scenario(clients=2, quota=100, seconds=40, warm_up_ms=10_000)
    found = figures(scenario, [outcome([[60] * 40, [20] * 40], {0: 90, 100: 8, 700: 2})])
    assert found.utilisation == pytest.approx(0.8)
    assert found.bytes_per_second == pytest.approx(80)
    assert found.jain == pytest.approx(80**2 / (2 * (60**2 + 20**2)))
    assert found.least_share == pytest.approx(0.5)
    assert found.throttled == pytest.approx(0.1)
    assert (found.throttle_p50_ms, found.throttle_p99_ms, found.throttle_max_ms) == (0, 700, 700)
    assert (found.requests, found.first_throttle_ms) == (7, 3)
    assert found.longest_gap_ms == 200
    assert found.plain is None
    assert found.settling == (Settling(0, None),)
    assert found.as_dict()["throttle_times"] == {0: 90, 100: 8, 700: 2}


def test_plain_clients_are_told_apart():
    scenario = Scenario(clients=2, plain=1, quota=100, seconds=40, warm_up_ms=10_000)
    found = figures(scenario, [outcome([[20] * 40, [20] * 40, [40] * 40], {0: 90, 100: 10})])
    assert found.utilisation == pytest.approx(0.8)
    assert (found.jain, found.least_share) == (1, 1)
    assert (found.throttled, found.first_throttle_ms, found.longest_gap_ms) == (pytest.approx(0.1), 3, 200)
    assert found.plain == KindFigures(0.5, 5, 5, 5, 300, 1, pytest.approx(1.5), 1, 1)
    assert found.as_dict()["plain"]["used"] == 0.5


def test_those_who_know_and_those_who_learn_are_told_apart():
    scenario = Scenario(clients=4, learning=2, plain=1, quota=100, seconds=40, warm_up_ms=10_000)
    rows = [[10] * 40, [20] * 40, [15] * 40, [5] * 40, [50] * 40]
    found = figures(scenario, [outcome(rows, {0: 90, 100: 10})])
    assert found.known == KindFigures(0.3, 0, 100, 100, 200, 2, pytest.approx(0.75), pytest.approx(0.9), 2 / 3)
    assert found.learning == KindFigures(0.2, 20, 20, 20, 400, 2, pytest.approx(0.5), pytest.approx(0.8), 0.5)
    assert found.plain is not None
    assert (found.plain.used, found.plain.share) == (0.5, pytest.approx(2.5))
    # The rest is of those who know and those who learn together.
    assert found.jain == pytest.approx(50**2 / (4 * (10**2 + 20**2 + 15**2 + 5**2)))
    assert (found.throttled, found.throttle_p50_ms, found.first_throttle_ms) == (pytest.approx(110 / 200), 20, 11)
    assert found.longest_gap_ms == 400


def test_where_everybody_learns_nobody_is_told_apart():
    scenario = Scenario(clients=2, learning=1, told=False, quota=100, seconds=40, warm_up_ms=10_000)
    found = figures(scenario, [outcome([[60] * 40, [20] * 40])])
    assert (found.known, found.learning, found.plain) == (None, None, None)
    assert found.throttle_p50_ms == 20


def test_where_all_are_plain_they_are_all_there_is():
    scenario = Scenario(clients=0, plain=2, quota=100, seconds=40, warm_up_ms=10_000)
    found = figures(scenario, [outcome([[60] * 40, [20] * 40])])
    assert found.plain is None
    assert (found.throttle_p50_ms, found.first_throttle_ms) == (5, 9)
    assert found.least_share == pytest.approx(0.5)


def test_parts_count_together():
    scenario = Scenario(brokers=3, clients=2, quota=100, seconds=40, leaders=((0,), (2,)))
    halves = [outcome([[50] * 40], {0: 1}, (0,), (0,)), outcome([[100] * 40], {9: 1}, (2,), (1,))]
    found = figures(scenario, halves)
    assert found.utilisation == pytest.approx(0.75)
    assert found.throttled == pytest.approx(0.5)
    assert found.requests == 14


def test_fairness_is_of_those_who_were_there():
    scenario = Scenario(clients=2, quota=100, seconds=100, changes=(Change(70_000, 1), Change(70_000, -1)))
    rows = [[90] * 70 + [0] * 30, [10] * 70 + [50] * 30, [0] * 70 + [50] * 30]
    found = figures(scenario, [outcome(rows)])
    assert found.jain == 1
    assert found.least_share == 1


def test_settling_after_the_start_and_after_changes():
    scenario = Scenario(clients=1, quota=100, seconds=100, changes=(Change(40_000, 1), Change(80_000, -1)))
    first = [0] * 7 + [100] * 40 + [50] * 33 + [0] * 20
    second = [0] * 47 + [50] * 33 + [50] * 13 + [100] * 7
    found = figures(scenario, [outcome([first, second])])
    # A second of ten may be missed; 650 to 350 is fair enough (0.917), 700 to 300 is not (0.862).
    assert [(at.at_ms, at.after_ms) for at in found.settling] == [(0, 6_000), (40_000, 4_000), (80_000, None)]


def test_who_wants_less_settles_with_less():
    scenario = Scenario(clients=2, quota=100, seconds=40, demands=(10.0,))
    assert figures(scenario, [outcome([[10] * 40, [10] * 40])]).settling == (Settling(0, 0),)


def test_nothing_sent():
    found = figures(Scenario(quota=100, seconds=40), [outcome([[0] * 40])])
    assert (found.utilisation, found.throttled, found.throttle_max_ms, found.least_share) == (0, 0, 0, 0)
