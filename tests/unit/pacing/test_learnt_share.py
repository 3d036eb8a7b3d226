"""The pacing law without a limit: learnt from throttle times, in virtual time, against the broker's exact window.

The largest quota, too: `tests/grids/test_learnt_share_grid.py`.
"""

import pytest

from kclient_quota.pacing.learnt_share import LearntShare
from tests.unit.pacing.pacing_world import World

QUOTAS = (20_000, 51_200, 1_048_576)
CALM, DISTURBED = {}, {"jitter_ms": 5, "late_ms": 3, "skew": 0.0005}


def utilisation_of_last(world, last_ms):
    last = [row for row in world.sent if row[0] >= world.now - last_ms]
    return sum(row[2] for row in last) / (world.quota * last_ms / 1000)


@pytest.mark.parametrize(
    ("quota", "disturbed"),
    [*((quota, CALM) for quota in QUOTAS), *((quota, DISTURBED) for quota in QUOTAS[:2])],
    ids=[*(f"calm-{quota}" for quota in QUOTAS), *(f"jitter-{quota}" for quota in QUOTAS[:2])],
)
def test_alone_the_quota_is_found_and_used(quota, disturbed):
    alone_the_quota_is_found(quota, disturbed)


def alone_the_quota_is_found(quota, disturbed):
    world = World(quota, told=False, **disturbed).run(180_000)
    assert world.utilisation(60_000) >= 0.97
    assert max(world.throttles(60_000)) <= 300
    assert world.pacers[0]._share.learnt == pytest.approx(quota, rel=0.02)
    assert world.pacers[0].limit is None


@pytest.mark.parametrize("quota", QUOTAS[:2])
@pytest.mark.parametrize("clients", [2, 8])
def test_strangers_leave_nothing_unused_and_come_to_fair_shares(quota, clients):
    strangers_come_to_fair_shares(quota, clients)


def strangers_come_to_fair_shares(quota, clients):
    world = World(quota, clients=clients, told=False).run(240_000)
    assert world.jain(180_000) >= 0.9
    assert world.utilisation(60_000) >= 0.93
    assert max(world.throttles(60_000)) <= 5_000


def test_raised_quota_is_found_within_a_minute():
    world = World(50_000, told=False).run(90_000)
    world.quota = 500_000
    world.run(60_000)
    assert utilisation_of_last(world, 10_000) >= 0.9


def test_quota_taken_away_is_found():
    world = World(50_000, told=False).run(90_000)
    world.quota = 1e9
    while world.now < world.start_ms + 150_000 and world.pacers[0].rate() < 1_000_000:
        world.run(1_000)
    assert world.pacers[0].rate() >= 1_000_000


def test_lowered_quota_is_followed():
    world = World(500_000, told=False).run(60_000)
    world.quota = 50_000
    world.run(180_000)
    assert utilisation_of_last(world, 60_000) >= 0.9
    assert max(row[3] for row in world.sent if row[0] >= world.now - 60_000) <= 4_000


def test_neighbour_that_leaves_is_noticed_within_a_minute():
    world = World(51_200, clients=2, told=False, demand=lambda client, at_ms: client == 0 or at_ms < 120_000)
    world.run(180_000)
    assert utilisation_of_last(world, 10_000) >= 0.9


def test_strangers_make_a_share_less_than_whole():
    share = LearntShare()
    share.on_throttle(200_000, 10_000, 10_000, 0)
    assert share.learnt == 10_000
    for at_ms in (20_000, 40_000, 60_000):
        share.on_throttle(103_000, 10_000, 301, at_ms)
    assert share.is_whole
    assert share.rate <= 10_000
    share.on_throttle(103_000, 10_000, 500, 80_000)
    assert not share.is_whole


def test_bytes_of_others_alone_teach_nothing():
    share = LearntShare()
    share.on_throttle(0, 10_000, 5_000, 0)
    assert share.learnt is None


@pytest.mark.parametrize("late_ms", [50, 100])
def test_callers_who_come_late_keep_most_of_it(late_ms):
    for told in (True, False):
        world = World(51_200, told=told, late_ms=late_ms).run(180_000)
        assert world.utilisation(60_000) >= 0.85
        assert max(world.throttles(60_000), default=0) <= 300


def test_throttles_of_a_first_burst_do_not_bring_the_rate_to_nothing():
    share, burst = LearntShare(), 12_000_000.0
    for now_ms in range(0, 10_000, 1_000):  # ten seconds' worth was sent at once, and is counted for ten seconds
        share.on_throttle(burst, 10_000 + now_ms % 1_000, 1_400, now_ms)
        share.grow(now_ms + 900, busy=True)
    assert share.rate >= 0.4 * share.learnt
