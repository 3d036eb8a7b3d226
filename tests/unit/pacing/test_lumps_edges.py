"""Lumps of share consumers in exact numbers: batches of 15,000 bytes at 20,000 a second, three quarters of one each."""

from math import ceil

import pytest

from kclient_quota.pacing.fetching.lumps import Lumps

T0 = 1_000_000
RATE, BATCH = 20_000.0, 15_000.0
EVERY_MS = 1_394


def begun(*, level=0.0, at_ms=T0, due_ms=T0 + EVERY_MS, heard_ms=T0, slow_until_ms=0):
    lumps = Lumps(11, 1_000)
    lumps._level, lumps._at_ms, lumps._due_ms, lumps._heard_ms = level, at_ms, due_ms, heard_ms
    lumps._slow_until_ms = slow_until_ms
    return lumps


@pytest.mark.parametrize(
    ("batch_ms", "every_ms"),
    # 14 of 769 ms, and 13 of 828, last for 9.84 s in seven lumps, but for a second's less and 80 ms
    [(750, 1_394), (769, 1_407), (770, 1_394), (800, 1_394), (828, 1_407), (829, 1_394), (5_000, 1_394), (200, 1_394)],
)
def test_eight_lumps_last_a_little_longer_than_a_sample_is_kept(batch_ms, every_ms):
    assert Lumps(11, 1_000).every_ms(RATE, batch_ms * 20.0) == every_ms
    most = 10_770 // batch_ms * batch_ms
    assert every_ms == max(ceil(11_150 / 8), ceil((most - 1_000 + 80) / 7))


@pytest.mark.parametrize(
    ("samples", "window_ms", "batch_ms", "most"),
    [
        (11, 1_000, 750.0, 14.0),
        (11, 1_000, 10_770.0, 1.0),
        (11, 1_000, 10_771.0, 0.0),
        (11, 1_000, 0.5, 10_770.0),
        (21, 500, 1_000.0, 10.0),
    ],
)
def test_how_many_batches_a_window_takes(samples, window_ms, batch_ms, most):
    assert Lumps(samples, window_ms)._most(batch_ms) == most


@pytest.mark.parametrize(
    ("samples", "batch_ms", "are"),
    [
        (11, 168, False),  # nor smaller ones: 64 of them
        (11, 358, False),
        (11, 359, True),
        (11, 398, True),
        (11, 412, True),
        (11, 741, False),
        (11, 742, True),
        (11, 769, True),
        (11, 770, False),
        (11, 1_115, True),
        (11, 1_114, False),
        (11, 5_385, True),
        (11, 5_386, False),
        (11, 10_770, True),
        (11, 10_771, False),
        (9, 759, False),
        (9, 760, True),
        (9, 797, True),
        (9, 798, False),
        (8, 742, False),
        (8, 2_500, False),
    ],
)
def test_lumps_are_for_large_batches_that_fill_the_window_better_so(samples, batch_ms, are):
    assert Lumps(samples, 1_000).are_for(RATE, batch_ms * 20.0) == are
    kept_ms = samples * 1_000
    share = (kept_ms - 230) // batch_ms * batch_ms / (kept_ms + 150)
    better = share >= (kept_ms - 1_000) / (kept_ms - 1_000 + batch_ms)
    assert are == (better and samples > 8)


def test_lumps_of_more_batches_than_the_window_holds_lumps_are_for_nothing():
    """64 batches of 1.7 s fill a window of 100 s in eight lumps, and 65 that are a little smaller."""
    lumps = Lumps(11, 10_000)
    assert lumps.are_for(RATE, 20.0 * (109_770 // 64))
    assert not lumps.are_for(RATE, 20.0 * (109_770 // 65))


def test_the_first_batch_comes_at_once_and_begins_with_two_saved():
    lumps = Lumps(11, 1_000)
    assert (lumps._level, lumps._at_ms, lumps._due_ms, lumps._heard_ms, lumps._slow_until_ms) == (0.0, 0, None, 0, 0)
    assert lumps.wait_ms(RATE, BATCH, T0) == 0
    lumps.took(15_000, RATE, BATCH, T0)
    assert (lumps._level, lumps._at_ms, lumps._due_ms, lumps._heard_ms) == (15_000.0, T0, T0 + EVERY_MS, T0)
    lumps.took(14_000, RATE, BATCH, T0 + 5)
    assert (lumps._level, lumps._at_ms, lumps._due_ms, lumps._heard_ms) == (1_000.0, T0, T0 + EVERY_MS, T0 + 5)


@pytest.mark.parametrize(
    ("level", "after_ms", "wait_ms"),
    [
        (0.0, 0, 0),
        (0.0, 849, 0),
        (0.0, 850, EVERY_MS - 850),
        (-1.0, 10, EVERY_MS - 10),
        (-1.0, EVERY_MS - 1, 1),
        (-27_880.0, EVERY_MS, 0),
        (-27_881.0, EVERY_MS, 1),
        (-28_000.0, EVERY_MS, 6),
        (-28_001.0, EVERY_MS, 7),
        (-127_880.0, EVERY_MS, 5_000),
        (-1e6, -1_000, EVERY_MS + 1_000),
        (-1e6, -1_001, 0),
    ],
)
def test_what_a_lump_may_have_is_taken_while_its_sample_is_open(level, after_ms, wait_ms):
    lumps = begun(level=level, heard_ms=T0 + after_ms)
    assert lumps.wait_ms(RATE, BATCH, T0 + after_ms) == wait_ms


@pytest.mark.parametrize(
    ("level", "after_ms", "is_more"),
    [(0.0, 849, True), (-1.0, 849, False), (0.0, 850, False), (14_999.0, 850, False), (15_000.0, 850, True)],
)
def test_one_that_is_slow_has_what_it_saved_a_batch_for_at_any_time(level, after_ms, is_more):
    lumps = begun(level=level, heard_ms=T0 + after_ms, slow_until_ms=T0 + after_ms + 1)
    assert (lumps.wait_ms(RATE, BATCH, T0 + after_ms) == 0) == is_more
    assert begun(level=level, slow_until_ms=T0 + after_ms)._is_more(BATCH, T0 + after_ms) == (
        is_more and after_ms < 850
    )


@pytest.mark.parametrize(("silent_ms", "slow_until_ms"), [(150, 7), (151, T0 + 11_151), (0, 7)])
def test_who_asks_less_often_than_a_busy_machine_does_is_slow_for_a_window(silent_ms, slow_until_ms):
    lumps = begun(slow_until_ms=7)
    lumps.wait_ms(RATE, BATCH, T0 + silent_ms)
    assert (lumps._slow_until_ms, lumps._heard_ms) == (slow_until_ms, T0 + silent_ms)


@pytest.mark.parametrize(
    ("late_ms", "level", "at_ms", "due_ms"),
    [
        (-1, -5_000.0, T0, T0 + EVERY_MS),
        (0, 17_880.0, T0 + EVERY_MS, T0 + 2 * EVERY_MS),
        (20, 18_280.0, T0 + EVERY_MS + 20, T0 + 2 * EVERY_MS),
        (150, 20_880.0, T0 + EVERY_MS + 150, T0 + 2 * EVERY_MS),
        (151, 20_900.0, T0 + EVERY_MS + 151, T0 + 2 * EVERY_MS + 151),
        (606, 25_000.0, T0 + 2_000, T0 + 2_000 + EVERY_MS),
        (607, 25_000.0, T0 + 2_001, T0 + 2_001 + EVERY_MS),
    ],
)
def test_a_lump_that_comes_late_makes_not_all_that_follow_later(late_ms, level, at_ms, due_ms):
    """Of two batches saved at most, 5,000 bytes come."""
    now_ms = T0 + EVERY_MS + late_ms
    lumps = begun(level=0.0 if late_ms < 0 else -5_000.0 + 0.0)
    lumps.took(5_000, RATE, BATCH, now_ms)
    assert (lumps._level, lumps._at_ms, lumps._due_ms, lumps._heard_ms) == (level, at_ms, due_ms, now_ms)


@pytest.mark.parametrize(("back_ms", "begins"), [(1_000, False), (1_001, True)])
def test_another_time_begins_anew(back_ms, begins):
    lumps = begun(level=-7.0)
    lumps.took(5_000, RATE, BATCH, T0 - back_ms)
    assert lumps._level == (25_000.0 if begins else -5_007.0)
    assert lumps._at_ms == (T0 - back_ms if begins else T0)


def test_as_much_is_saved_as_two_batches_or_a_lump():
    assert begun(level=1e9)._saved(RATE, BATCH, T0) == 30_000.0
    assert begun(level=1e9)._saved(RATE, 10_000.0, T0) == RATE * Lumps(11, 1_000).every_ms(RATE, 10_000.0) / 1_000
    assert begun(level=-100.0)._saved(RATE, BATCH, T0 + 50) == 900.0
