"""Consumers of one process under one quota: what each may have of it, alone on paper and in a world of brokers."""

import itertools
from collections import deque
from collections.abc import Sequence

import pytest

from kclient_quota.pacing.fetching.fetch_sizes import sizes_for
from kclient_quota.pacing.neighbours import NEEDED_MS, Need, Neighbours, Part
from kclient_quota.simulation.rates import jain_index
from tests.unit.pacing.fetch_world import ROUND_TRIP_MS, Broker, Quota, World, run_together

LIMIT = 100_000
WINDOW_MS = 11_000


class Who:
    """A consumer."""


class Slow(World):
    """One whose application takes a message of 1,000 bytes ten times a second, whatever there is."""

    def _take(self) -> None:
        if self.now_ms % 100:
            return
        others = self.queue
        self.queue = deque(itertools.islice(others, 1))
        had = len(self.queue)
        super()._take()
        for _ in range(had - len(self.queue)):
            others.popleft()
        self.queue = others


def world(neighbours: Neighbours | None, quota: Quota, batch: int, kind: type[World] = World) -> World:
    limit = quota.byte_rate
    return kind(
        [Broker(1, quota, batch, 1_000)],
        limit,
        sizes=sizes_for(limit, ROUND_TRIP_MS, batch + 61),
        neighbours=neighbours,
    )


def taken(worlds: Sequence[World], from_ms: int) -> list[int]:
    return [sum(at >= from_ms for at in each.taken_at_ms) for each in worlds]


def throttles(worlds: Sequence[World], from_ms: int) -> list[int]:
    return [ms for each in worlds for broker in each.brokers for at, ms in broker.throttles if at >= from_ms]


# On paper ---------------------------------------------------------------------------------------------------------


def test_who_waits_has_an_equal_part_of_what_the_others_leave() -> None:
    neighbours = Neighbours()
    light, first, second = Who(), Who(), Who()
    assert neighbours.part(light, 1, Need(False, 10_000, 0), LIMIT) == Part(LIMIT, 1)
    assert neighbours.part(first, 1, Need(True, 0, 0), LIMIT) == Part(90_000, 1)
    assert neighbours.part(second, 1, Need(True, 0, 0), LIMIT) == Part(45_000, 2)
    assert neighbours.part(first, 1, Need(True, 0, 0), LIMIT) == Part(45_000, 2)
    # it may take an equal part itself, should it need more
    assert neighbours.part(light, 1, Need(False, 10_000, 0), LIMIT) == Part(LIMIT / 3, 3)
    assert neighbours.part(first, 2, Need(True, 0, 0), LIMIT) == Part(LIMIT, 1)


def test_nobody_gets_less_than_an_equal_part_for_somebody_who_takes_more() -> None:
    neighbours = Neighbours()
    greedy, other = Who(), Who()
    neighbours.part(greedy, 1, Need(False, 95_000, 0), LIMIT)
    assert neighbours.part(other, 1, Need(True, 0, 0), LIMIT) == Part(LIMIT / 2, 1)


def test_one_that_knows_no_broker_yet_may_need_any() -> None:
    neighbours = Neighbours()
    new, other = Who(), Who()
    neighbours.part(new, None, Need(True, 0, 0), LIMIT)
    for broker in (1, 2):
        assert neighbours.part(other, broker, Need(True, 0, 0), LIMIT) == Part(LIMIT / 2, 2)
    neighbours.part(new, 2, Need(True, 0, 0), LIMIT)
    assert neighbours.part(other, 1, Need(True, 0, 0), LIMIT) == Part(LIMIT, 1)


def test_who_leaves_or_is_not_heard_of_needs_nothing() -> None:
    neighbours = Neighbours()
    gone, silent, other = Who(), Who(), Who()
    for who in (gone, silent, other):
        neighbours.part(who, 1, Need(True, 0, 0), LIMIT)
    neighbours.leave(gone)
    neighbours.leave(gone)
    assert neighbours.part(other, 1, Need(True, 0, NEEDED_MS - 1), LIMIT).sharers == 2
    assert neighbours.part(other, 1, Need(True, 0, NEEDED_MS), LIMIT) == Part(LIMIT, 1)
    del silent
    assert neighbours.part(other, 1, Need(True, 0, 0), LIMIT) == Part(LIMIT, 1)


# In a world of brokers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "count"), [(4_000, 4), (16_000, 2)])
def test_several_use_the_quota_evenly_without_throttles(batch: int, count: int) -> None:
    """Others: `tests/grids/test_fetch_grid.py`."""
    several_use_the_quota_evenly(batch, count, 0.97)


def several_use_the_quota_evenly(batch: int, count: int, least: float) -> None:
    quota, neighbours = Quota(LIMIT), Neighbours()
    worlds = [world(neighbours, quota, batch) for _ in range(count)]
    run_together(worlds, 90_000)
    begin_ms, end_ms = 35_000, worlds[0].now_ms
    assert quota.utilisation(begin_ms, end_ms) > least
    assert jain_index(taken(worlds, begin_ms)) > 0.99
    most_ms = 100 if batch < 16_000 else batch * 1_100 // LIMIT  # a batch that comes too early is put off by its size
    assert max(throttles(worlds, begin_ms), default=0) <= most_ms


def test_without_knowing_of_each_other_they_are_throttled_again_and_again() -> None:
    quota = Quota(LIMIT)
    worlds = [world(None, quota, 4_000) for _ in range(4)]
    run_together(worlds, 60_000)
    assert len(throttles(worlds, 35_000)) > 100


def test_what_one_does_not_need_is_the_others() -> None:
    quota, neighbours = Quota(LIMIT), Neighbours()
    worlds = [*(world(neighbours, quota, 4_000) for _ in range(3)), world(neighbours, quota, 4_000, Slow)]
    run_together(worlds, 70_000)
    begin_ms, end_ms = 35_000, worlds[0].now_ms
    assert quota.utilisation(begin_ms, end_ms) > 0.97
    *busy, light = taken(worlds, begin_ms)
    assert 9.5 <= light * 1_000 / (end_ms - begin_ms) <= 10.5
    assert jain_index(busy) > 0.999
    assert max(throttles(worlds, begin_ms), default=0) <= 100


def test_one_that_comes_later_has_its_part_and_leaves_it() -> None:
    quota, neighbours = Quota(LIMIT), Neighbours()
    early = [world(neighbours, quota, 4_000) for _ in range(3)]
    run_together(early, 30_000)
    late = world(neighbours, quota, 4_000)
    late.now_ms = early[0].now_ms
    came_ms = early[0].now_ms
    run_together([*early, late], 30_000)
    settled_ms = came_ms + WINDOW_MS
    assert jain_index(taken([*early, late], settled_ms)) > 0.99
    assert max(throttles([*early, late], came_ms)) <= 100
    left_ms = early[0].now_ms
    late.pacer.leave()
    run_together(early, 30_000)
    assert quota.utilisation(left_ms + WINDOW_MS, early[0].now_ms) > 0.97
    assert not throttles(early, left_ms)


def test_a_limit_that_changes_is_shared_anew() -> None:
    quota, neighbours = Quota(LIMIT), Neighbours()
    worlds = [world(neighbours, quota, 4_000) for _ in range(4)]
    run_together(worlds, 30_000)
    quota.byte_rate = LIMIT * 2
    for each in worlds:
        each.pacer.set_limit(LIMIT * 2)
    changed_ms = worlds[0].now_ms
    run_together(worlds, 40_000)
    assert quota.utilisation(changed_ms + WINDOW_MS, worlds[0].now_ms) > 0.97
    assert jain_index(taken(worlds, changed_ms + WINDOW_MS)) > 0.99
    assert not throttles(worlds, changed_ms)


def test_what_strangers_took_stays_theirs_when_neighbours_come_and_go() -> None:
    """A process of two beside one of one: three clients, and whoever is alone in its process is no worse off."""
    quota, neighbours = Quota(LIMIT), Neighbours()
    ours = [world(neighbours, quota, 4_000) for _ in range(2)]
    stranger = world(None, quota, 4_000)
    run_together([*ours, stranger], 120_000)
    begin_ms = 60_000
    assert quota.utilisation(begin_ms, stranger.now_ms) > 0.95
    counts = taken([*ours, stranger], begin_ms)
    assert min(counts) * 3 > 0.5 * sum(counts)


def test_the_first_messages_are_no_burst() -> None:
    """A consumer that waits for its group has saved nothing up, and ten seconds later nothing is to be paid back."""
    quota = Quota(LIMIT)
    lone = world(None, quota, 4_000)
    granted, _ = lone.pacer.grant(lone.now_ms, {})
    lone.now_ms += 10_000
    lone.pacer.grant(lone.now_ms, {})
    assert granted <= 1
    run_together([lone], 60_000)
    assert not throttles([lone], 0)
