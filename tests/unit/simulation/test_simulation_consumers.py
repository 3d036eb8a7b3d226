"""Simulated consumers: beside a world of brute force, and what is known of plain ones.

Larger quotas, and more of them: `tests/grids/test_consumers_grid.py`.
"""

import random
from itertools import pairwise

import pytest

from kclient_quota.pacing.fetching.fetch_sizes import FetchSizes
from kclient_quota.quota.managers import QuotaManagers
from kclient_quota.simulation import Change, Scenario, figures, parts, simulate
from kclient_quota.simulation.consumers import BATCH_WIRE_BYTES, RESPONSE_WIRE_BYTES
from kclient_quota.simulation.outcome import BIN_MS, START_MS
from tests.unit.pacing.fetch_world import Broker, Quota, World


def play(scenario, seed=1):
    return [simulate(scenario, part, random.Random(f"{seed}/{part.brokers[0]}")) for part in parts(scenario)]


def played(seed=1, **scenario):
    made = Scenario(consume=True, **scenario)
    return figures(made, play(made, seed))


def test_the_same_seed_is_the_same_simulation():
    scenario = Scenario(clients=2, plain=1, brokers=2, consume=True, quota=51_200, told=False, seconds=40)
    assert play(scenario) == play(scenario)
    assert play(scenario) != play(scenario, seed=2)


@pytest.mark.parametrize(("quota", "message", "batch"), [(100_000, 1_000, 16), (100_000, 10_000, 47)])
def test_one_consumer_gets_what_it_gets_millisecond_by_millisecond(quota, message, batch):
    one_gets_what_it_gets_by_brute_force(quota, message, batch)


def one_gets_what_it_gets_by_brute_force(quota, message, batch):
    brute = Quota(quota)
    world = World([Broker(1, brute, batch * message, message)], quota)
    world.run(90_000)
    found = played(quota=quota, message_bytes=message, batch_messages=batch, seconds=90)
    assert found.utilisation == pytest.approx(brute.utilisation(35_000, 95_000), rel=0.03)
    assert abs(found.longest_gap_ms - world.longest_gap_ms(35_000)) <= 1_000


def test_a_plain_consumer_gets_what_it_gets_millisecond_by_millisecond():
    """Half of the quota, 20 s apart, as plain consumers have been seen to on Apache Kafka."""
    brute = Quota(100_000)
    sizes = FetchSizes(1_048_576, 65_536 * 1024)
    world = World([Broker(1, brute, 16_000, 1_000)], None, sizes=sizes)
    world.run(130_000)
    found = played(clients=0, plain=1, quota=100_000, batch_messages=16, seconds=130)
    assert found.utilisation < 0.7
    assert found.utilisation == pytest.approx(brute.utilisation(35_000, 135_000), rel=0.1)
    assert found.longest_gap_ms == pytest.approx(world.longest_gap_ms(35_000), rel=0.1)


def test_consumers_share_a_quota_that_they_know():
    consumers_share_what_they_know(2)


def consumers_share_what_they_know(clients):
    found = played(clients=clients, quota=51_200, seconds=120, warm_up_ms=60_000)
    assert found.utilisation >= 0.95
    assert found.jain >= 0.99
    assert found.throttle_p99_ms <= 500


def test_who_comes_while_the_burst_of_others_is_paid_back_has_an_equal_share_all_the_same():
    """All that it asks for at first is refused: 2 % came of it for 20 s, and the others left a quarter unused."""
    found = played(
        clients=2, quota=100_000, batch_messages=20, changes=(Change(8_000, 1),), seconds=40, warm_up_ms=12_000
    )
    assert found.utilisation >= 0.9
    assert found.least_share >= 0.9


def test_consumers_share_a_quota_that_they_must_learn():
    consumers_share_what_they_must_learn(2, 51_200)


def consumers_share_what_they_must_learn(clients, quota):
    found = played(clients=clients, quota=quota, told=False, seconds=120, warm_up_ms=60_000)
    assert found.utilisation >= 0.95
    assert found.jain >= 0.95
    assert found.least_share >= 0.6


def test_newcomers_are_not_shut_out_by_those_who_have_learnt():
    found = played(clients=4, quota=204_800, told=False, seconds=120, changes=(Change(40_000, 4),))
    assert found.least_share >= 0.4
    assert found.utilisation >= 0.93


def test_newcomers_get_their_share():
    changes = (Change(40_000, 4), Change(80_000, -4))
    found = played(clients=4, quota=204_800, seconds=120, changes=changes)
    assert all(at.after_ms is not None and at.after_ms <= 30_000 for at in found.settling)


@pytest.fixture
def recorded(monkeypatch):
    """Every fetch that a broker looks at: (time, bytes, throttle time)."""
    rows = []
    on_fetch = QuotaManagers.on_fetch

    def noting(self, principal, client_id, nbytes, nanos, now_ms):
        throttle = on_fetch(self, principal, client_id, nbytes, nanos, now_ms)
        rows.append((now_ms - START_MS, nbytes, throttle.time_ms))
        return throttle

    monkeypatch.setattr(QuotaManagers, "on_fetch", noting)
    return rows


def test_only_what_is_answered_is_counted_and_a_muted_connection_is_not_read(recorded):
    scenario = Scenario(clients=0, plain=1, consume=True, quota=20_000, seconds=60)
    (outcome,) = play(scenario)
    for second in range(60):
        here = sum(nbytes for at_ms, nbytes, throttle_ms in recorded if at_ms // BIN_MS == second and not throttle_ms)
        assert outcome.bytes_by_bin[0][second] == here
    for (at_ms, _, throttle_ms), (next_ms, _, _) in pairwise(recorded):
        assert next_ms >= at_ms + throttle_ms
    # A fetch is cut to what the quota allows in ten seconds.
    assert {nbytes for _, nbytes, _ in recorded} == {200_000 + RESPONSE_WIRE_BYTES}


def test_who_has_less_to_read_reads_that():
    found = played(clients=2, quota=51_200, demands=(5_000.0,), batch_messages=1, seconds=90)
    one = 1_010 + BATCH_WIRE_BYTES + RESPONSE_WIRE_BYTES  # every message is a fetch of its own
    assert found.utilisation == pytest.approx(2 * 5 * one / 51_200, rel=0.02)
    assert found.throttle_max_ms == 0
    assert found.longest_gap_ms < 500


def test_a_consumer_of_two_brokers_gets_both_quotas():
    found = played(brokers=2, clients=1, quota=102_400, leaders=((0, 1),), seconds=60)
    assert found.utilisation >= 0.9


def test_leaders_are_asked_each_in_its_own_time():
    """All must be asked before a batch of one leader fills the queue: real ones get 0.91 to 0.97 of three quotas."""
    scenario = Scenario(consume=True, brokers=3, clients=1, quota=51_200, leaders=((0, 1, 2),), seconds=60)
    one = figures(scenario, play(scenario))
    assert 0.95 <= one.utilisation <= 1.0
    assert one.throttle_p99_ms <= 100


def test_a_batch_larger_than_quota_times_window_never_comes():
    found = played(clients=1, quota=10_000, message_bytes=120_000, batch_messages=1, seconds=60)
    assert found.utilisation == 0
    assert found.longest_gap_ms == 30_000
