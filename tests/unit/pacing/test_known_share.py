"""The pacing law under a known limit, in virtual time, against the broker's exact window.

`make grids` plays the cells between these by the same functions, in `tests/grids/test_known_share_grid.py`.
"""

import pytest

from kclient_quota.pacing.known_share import CALM_DOUBLING_MS, CALM_MS, KnownShare
from tests.unit.pacing.pacing_world import World

QUOTAS = (20_000, 51_200, 1_048_576)
WARM_MS = 15_000


@pytest.mark.parametrize("quota", QUOTAS)
@pytest.mark.parametrize("grant", [0, 5], ids=["message by message", "grants of five"])
def test_one_client_gets_the_quota_and_is_never_throttled(quota, grant):
    world = World(quota, grant=grant).run(120_000)
    assert world.throttles() == []
    assert world.utilisation(WARM_MS) >= 0.97
    assert world.utilisation(0) >= 0.97


def skew_jitter_and_late_callers_cost_no_throttle(quota, skew, late_ms, seed):
    """Framing is learnt and charged for by `SendPace`; what a pacer is not told of costs a little, see below."""
    world = World(quota, skew=skew, late_ms=late_ms, jitter_ms=5, seed=seed).run(120_000)
    assert world.throttles() == []
    assert world.utilisation(WARM_MS) >= 0.97


@pytest.mark.parametrize("quota", QUOTAS[:2])
@pytest.mark.parametrize("skew", [0.001, -0.001], ids=["client clock fast", "client clock slow"])
@pytest.mark.parametrize(("late_ms", "seed"), [(0, 1), (20, 2)])
def test_skew_jitter_and_late_callers_cost_no_throttle(quota, skew, late_ms, seed):
    skew_jitter_and_late_callers_cost_no_throttle(quota, skew, late_ms, seed)


def bytes_that_nobody_told_of_cost_little(quota, framing):
    world = World(quota, framing=framing).run(180_000)
    assert world.utilisation(WARM_MS) >= 0.97
    late = world.throttles(60_000)
    assert len(late) < 0.15 * len(world.after(60_000))
    assert max(late, default=0) <= 500


@pytest.mark.parametrize(("quota", "framing"), [(20_000, 0.005), (20_000, 0.12), (51_200, 0.03), (1_048_576, 0.12)])
def test_bytes_that_nobody_told_of_cost_little(quota, framing):
    bytes_that_nobody_told_of_cost_little(quota, framing)


def strangers_come_to_equal_shares(quota, clients):
    world = World(quota, clients=clients).run(180_000)
    assert world.jain(60_000) >= 0.99
    assert world.utilisation(60_000) >= 0.96
    throttles = sorted(world.throttles(60_000))
    assert throttles[int(0.95 * len(throttles))] <= 3_000


@pytest.mark.parametrize(("quota", "clients"), [(20_000, 2), (20_000, 32), (1_048_576, 2)])
def test_strangers_come_to_equal_shares(quota, clients):
    strangers_come_to_equal_shares(quota, clients)


def test_newcomer_gets_its_share_and_leaves_it_again():
    quota = 51_200
    world = World(quota, clients=2, demand=lambda client, at_ms: client == 0 or 60_000 <= at_ms < 180_000)
    world.run(240_000)
    assert share(world, 1, 120_000, 180_000) == pytest.approx(0.5, abs=0.06)
    assert share(world, 0, 120_000, 180_000) == pytest.approx(0.5, abs=0.06)
    # Found within a minute of the neighbour's leaving.
    assert share(world, 0, 225_000, 240_000) >= 0.95


def share(world, client, from_ms, to_ms):
    start = world.start_ms
    sent = sum(row[2] for row in world.sent if row[1] == client and from_ms <= row[0] - start < to_ms)
    return sent / (world.quota * (to_ms - from_ms) / 1000)


@pytest.mark.parametrize("quota", QUOTAS)
def test_lumps_of_an_idle_client_go_at_once(quota):
    """Half a second's worth every two seconds: a quarter of the quota, and hardly a wait.

    More at once could not be paid back without leaving less than 0.95 of the quota for what follows.
    """
    lump = quota // 2000 * 1000

    def demand(client, at_ms):
        return sent_until(at_ms) + 1000 <= (at_ms // 2000 + 1) * lump

    def sent_until(_at_ms):
        return sum(row[2] for row in world.sent) + world.outstanding[0]

    world = World(quota, demand=demand)
    world.run(60_000)
    assert world.throttles() == []
    # The last message of a lump leaves a few tenths of a second after the first.
    for lump_at in range(8_000, 56_000, 2_000):
        times = [row[0] - world.start_ms - lump_at for row in world.sent]
        inside = [at for at in times if 0 <= at < 2_000]
        assert inside
        assert max(inside) <= 450


def test_burst_of_a_client_that_was_idle_then_steady_work_meets_no_throttle():
    for idle_ms in (1_000, 5_000, 11_500, 30_000):
        quota = 51_200
        world = World(quota, demand=lambda _, at_ms, idle_ms=idle_ms: not 20_000 <= at_ms < 20_000 + idle_ms)
        world.run(80_000)
        assert world.throttles() == [], idle_ms
        assert world.utilisation(40_000 + idle_ms) >= 0.97


def test_lowered_quota_is_followed_without_a_throttle():
    world = World(200_000).run(30_000)
    world.quota = 100_000
    world.pacers[0].set_limit(100_000, world.client_time(world.now))
    world.run(60_000)
    assert world.throttles() == []
    last = [row for row in world.sent if row[0] >= world.now - 30_000]
    assert sum(row[2] for row in last) / (100_000 * 30) >= 0.97


def test_raised_quota_is_used_at_once():
    world = World(50_000).run(30_000)
    world.quota = 100_000
    world.pacers[0].set_limit(100_000, world.client_time(world.now))
    world.run(20_000)
    assert world.throttles() == []
    last = [row for row in world.sent if row[0] >= world.now - 19_000]
    assert sum(row[2] for row in last) / (100_000 * 19) >= 0.97


@pytest.mark.parametrize(
    ("window", "told"),
    [((4, 250), True), ((11, 100), False), ((6, 1_000), True), ((6, 1_000), False)],
    ids=str,
)
def test_other_windows_of_the_broker(window, told):
    another_window(window, told)


def test_a_window_of_a_minute_of_the_broker():
    """Whoever is not told: `tests/grids/test_known_share_grid.py`."""
    another_window((2, 30_000), told=True)


def another_window(window, told):
    span = (window[0] + 1) * window[1]
    world = World(1_048_576, window=window, told=told)
    world.run(5 * span + 90_000)
    assert world.utilisation(2 * span + 60_000) >= (0.97 if told else 0.9)
    if told:
        assert world.throttles() == []
    else:
        assert max(world.throttles(2 * span + 60_000), default=0) <= span / 8


def test_the_longer_no_throttle_comes_the_faster_a_share_is_regained():
    share = KnownShare(1_000_000.0)
    share.grow(0, busy=True)
    now = 60_000
    for _ in range(8):
        share.on_throttle(1_000_000.0, 10_000, 500, now)
        now += 3_000
    gained = []
    calm_at = now - 3_000 + 500 + CALM_MS
    for after_ms in (0, 2 * CALM_DOUBLING_MS):
        share.grow(calm_at + after_ms, busy=True)
        before = share.rate
        share.grow(calm_at + after_ms + 100, busy=True)
        gained.append((share.rate - before) / before**0.5)
    assert gained[1] / gained[0] == pytest.approx(4, rel=0.02)
