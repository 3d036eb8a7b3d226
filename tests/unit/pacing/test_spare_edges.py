"""What callers may hand over themselves, to the byte: of 40 MB/s a part of a half, 20 MB of it at once."""

import pytest

from kclient_quota.pacing.spare import LEAST_BESIDE_OTHERS, Spare

MB = 1_000_000.0


def limited(spare, limit, members=1):
    spare.set_limit(limit, members, is_alone=False)
    return spare


def given():
    """A spare that has given 20 MB at 0 ms."""
    spare = limited(Spare(), 40 * MB)
    assert spare.step(0, 0.0, 0, may=True) == 20 * MB
    return spare


@pytest.mark.parametrize(
    ("limit", "members", "most"),
    [
        (LEAST_BESIDE_OTHERS, 1, LEAST_BESIDE_OTHERS / 2),
        (LEAST_BESIDE_OTHERS - 1, 1, 0.0),
        (None, 1, 0.0),
        (40 * MB, 1, 20 * MB),
        (40 * MB, 3, 20 * MB / 3),
        (40 * MB, 8, 2.5 * MB),
    ],
)
def test_half_of_a_large_quota_s_second_is_there_at_first(limit, members, most):
    spare = Spare()
    assert not spare.is_due
    assert (spare.step(5, 99.0, 0, may=True), spare.is_due) == (0.0, False)
    limited(spare, limit, members)
    assert spare.step(10_000, 99.0, 0, may=True) == most
    assert not spare.is_due


def test_the_same_limit_gives_nothing_anew():
    spare = given()
    limited(spare, 40 * MB, 1)
    assert spare.step(0, 3.0, 0, may=True) == 3.0


def test_another_limit_begins_with_its_own_second():
    spare = given()
    limited(spare, None, 1)
    assert (spare.step(0, 3.0, 0, may=True), spare.is_due) == (0.0, False)
    limited(spare, 20 * MB, 1)
    assert spare.step(0, 3.0, 0, may=True) == 10 * MB


@pytest.mark.parametrize(
    ("left", "queued", "after_ms", "free"),
    [
        (5 * MB, 0, 0, 5 * MB),
        (5 * MB, 1_000_000, 100, 6 * MB),
        (5 * MB, 0, 1, 5 * MB + 20_000),
        (5 * MB, 0, 750, 20 * MB),
        (5 * MB, 0, 751, 20 * MB),
        (5 * MB, 5_000_000, 0, 0.0),
        (1.0, 0, 0, 1.0),
        (19 * MB, 2_000_000, 100, 19 * MB),
    ],
)
def test_what_is_left_and_what_time_brings_less_what_passed_the_queue(left, queued, after_ms, free):
    spare = given()
    assert spare.step(after_ms, left, queued, may=True) == free
    assert not spare.is_due


@pytest.mark.parametrize(
    ("left", "after_ms", "free"),
    [
        (-1.0, 500, 0.0),
        (-1.0, 501, 10 * MB + 20_000 - 1),
        (-2 * MB, 599, 0.0),
        (-2 * MB, 600, 10 * MB),
        (-90 * MB, 1_499, 0.0),
        (-90 * MB, 1_500, 10 * MB),  # no more than a second's worth is owed
    ],
)
def test_who_owes_waits_until_half_of_a_second_s_worth_is_there(left, after_ms, free):
    spare = given()
    assert (spare.step(0, left, 0, may=True), spare.is_due) == (0.0, False)
    assert spare.step(after_ms, 77.0, 0, may=True) == free


@pytest.mark.parametrize(("left", "free"), [(0.5, 20_000.0), (0.0, 0.0), (-0.5, 0.0), (-1.0, 0.0)])
def test_who_has_used_it_up_waits(left, free):
    spare = given()
    spare.step(0, left, 0, may=True)
    assert spare.step(1, 0.0, 0, may=True) == free


def test_what_could_overtake_is_due():
    spare = given()
    assert (spare.step(0, 5 * MB, 0, may=False), spare.is_due) == (0.0, True)
    assert (spare.step(0, 99 * MB, 0, may=True), spare.is_due) == (0.0, False), "half of it is not there"
    assert (spare.step(250, 0.0, 0, may=False), spare.is_due) == (0.0, True)
    assert (spare.step(250, 0.0, 0, may=True), spare.is_due) == (10 * MB, False)
    assert (spare.step(250, -1.0, 0, may=False), spare.is_due) == (0.0, False)
    spare.is_due = True
    limited(spare, None, 1)
    spare.step(250, 0.0, 0, may=False)
    assert not spare.is_due


def test_without_a_limit_what_was_given_is_forgotten():
    spare = given()
    limited(spare, None, 1)
    spare.step(0, 3.0, 0, may=True)
    limited(spare, 40 * MB, 1)
    assert spare.step(0, 3.0, 10_000_000, may=True) == 10 * MB
    spare = given()
    limited(spare, None, 1)
    spare.step(0, 3.0, 0, may=True)
    limited(spare, 40 * MB, 1)
    assert spare.step(0, 3.0, 10_000_001, may=True) == 0.0
