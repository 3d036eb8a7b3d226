"""Whoever was idle, or used little, gets the quota from then on, and no throttle that anybody would notice."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.room import sustainable_rate
from kclient_quota.quota.rate import SampledRate
from tests.property.examples import examples
from tests.unit.pacing.pacing_world import World

BUSY_MS = 30_000
QUOTAS = (20_000, 51_200, 120_000, 1_048_576)


def sliding(world, from_ms, span_ms=15_000):
    """Parts of the quota recorded in every span that begins after a time, second by second."""
    first = world.start_ms + from_ms
    for begin in range(first, world.now - span_ms, 1_000):
        sent = sum(row[2] for row in world.sent if begin <= row[0] < begin + span_ms)
        yield sent / (world.quota * span_ms / 1000)


@given(
    st.lists(st.tuples(st.integers(200, 14_000), st.floats(0, 0.9)), min_size=1, max_size=5),
    st.sampled_from(QUOTAS),
    st.integers(0, 10),
)
@settings(max_examples=examples(20, 40), deadline=None)
def test_any_fifteen_seconds_after_little_use_have_the_quota(before, quota, late_ms):
    """`before`: for so long, such a part of the quota is wanted."""
    ends, end = [], 0
    for duration_ms, _ in before:
        end += duration_ms
        ends.append(end)

    def demand(_client, at_ms):
        if at_ms >= end:
            return True
        phase = next(number for number, until in enumerate(ends) if at_ms < until)
        begun = ends[phase - 1] if phase else 0
        return (
            sum(row[2] for row in world.sent if row[0] - world.start_ms >= begun)
            < quota * before[phase][1] * (at_ms - begun) / 1000
        )

    world = World(quota, late_ms=late_ms, demand=demand)
    world.run(end + BUSY_MS)
    assert max(world.throttles(), default=0) <= 200
    assert min(sliding(world, end + 100)) >= 0.95


@given(st.integers(0, 20_000), st.sampled_from([(40_000, 120_000), (20_000, 51_200), (100_000, 1_000_000)]))
@settings(max_examples=examples(12, 20), deadline=None)
def test_raised_limit_is_used_at_once_and_evenly(idle_ms, limits):
    low, high = limits
    world = World(low, demand=lambda _, at_ms: not 20_000 <= at_ms < 20_000 + idle_ms).run(20_000 + idle_ms // 2)
    world.quota = high
    world.pacers[0].set_limit(high, world.client_time(world.now))
    world.run(BUSY_MS + idle_ms - idle_ms // 2)
    assert max(world.throttles(), default=0) <= 200
    from_ms = 20_000 + idle_ms + 100
    assert min(sliding(world, from_ms)) >= 0.95
    # Evenly: no second has more than the burst beside the quota, none much less.
    assert max(sliding(world, from_ms, 1_000)) <= 1.75
    assert min(sliding(world, from_ms, 2_000)) >= 0.8


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 40_000)), max_size=40),
    st.integers(0, 15_000),
    st.integers(0, 30_000),
)
@settings(max_examples=examples(120, 300), deadline=None)
def test_sustainable_rate_is_what_the_broker_tolerates_and_no_less(history, idle_ms, at_once):
    """Against the window itself: what is sustainable is never over the limit, and a little more is."""
    limit, step_ms = 20_000, 10
    mirror, now = SampledRate(), 1_000_000
    for gap_ms, nbytes in history:
        now += gap_ms
        mirror.record(nbytes, now)
    now += idle_ms
    rate = sustainable_rate(mirror, limit, at_once, now)
    if rate <= 0:
        moments = mirror.forgetting(now)
        assert any(total + at_once > limit * window / 1000 * 0.999 for _, total, window in moments)
        return
    remembered = [(at - now, total, window) for at, total, window in mirror.forgetting(now)]
    remembered.append((10_000, 0, 10_000))
    for later in range(0, 10_000, step_ms):
        total, window_ms = mirror.project(now + later)
        assert total + at_once + rate * later / 1000 <= limit * window_ms / 1000 * 1.002 + 1
    tight = [
        total + at_once + 1.02 * rate * later / 1000 > limit * window / 1000 for later, total, window in remembered
    ]
    assert any(tight)


def test_what_was_sent_evenly_before_costs_nothing():
    mirror = SampledRate()
    for at_ms in range(0, 20_000, 100):
        mirror.record(500, at_ms)
    assert sustainable_rate(mirror, 10_000, 0, 20_000) == 10_000
    # Half a second's worth at once is paid back within ten seconds.
    assert sustainable_rate(mirror, 10_000, 5_000, 20_000) == 9_500


def test_pauses_are_made_up_for_by_less_than_half_a_second():
    pacer = Pacer(10_000)
    now, times = 1_000_000, []
    for _ in range(3):
        now += 60_000
        while pacer.admit_at_ms(100, now) <= now:
            pacer.on_sent(100, now)
            times.append(now)
    at_once = [sum(1 for each in times if each == at) for at in sorted(set(times))]
    assert all(30 <= each <= 48 for each in at_once[1:])
    assert all(later - sooner == 60_000 for sooner, later in pairwise(sorted(set(times))))
