"""What is claimed of a limit, throttle by throttle, in exact numbers."""

from math import sqrt

import pytest

from kclient_quota.pacing.claim import Claim

T0 = 1_000_000


def claiming(part=0.1, *, usual_ms=1_000.0, mean_ms=1_000.0, since_ms=T0 - 40_000):
    """A claim of so much whose last throttle ends now."""
    claim = Claim()
    claim.part = part
    claim._since_ms, claim._ended_ms, claim._mean_ms, claim._usual_ms = since_ms, T0, mean_ms, usual_ms
    return claim


def exactly(number):
    return pytest.approx(number, rel=1e-12)


def test_nothing_is_claimed_at_first():
    claim = Claim()
    assert (claim.part, claim.every_ms, claim._since_ms, claim._mean_ms, claim._usual_ms) == (0.0, 0.0, 0, 0.0, 0.0)
    claim.on_throttle(700, 0.1, 0.9, 0)
    assert (claim.part, claim._since_ms, claim._mean_ms, claim._ended_ms) == (0.0, 0, 700, 700)


@pytest.mark.parametrize(
    ("mean_ms", "every_ms"), [(0.0, 0.0), (29_999.0, 29_999.0), (30_000.0, 30_000), (30_001.0, 30_000)]
)
def test_requests_are_as_far_apart_as_throttles_are_long(mean_ms, every_ms):
    assert claiming(mean_ms=mean_ms).every_ms == every_ms
    assert claiming(0.0, mean_ms=mean_ms).every_ms == 0.0


@pytest.mark.parametrize(("after_ms", "is_let_off"), [(4_999, False), (5_000, True), (9_000, True), (0, False)])
def test_half_a_window_without_a_throttle_begins_anew(after_ms, is_let_off):
    claim = claiming(0.1)
    claim.on_throttle(300, 0.1, 0.9, T0 + after_ms)
    assert (claim.part == 0.0) == is_let_off
    assert claim._since_ms == (T0 + after_ms if is_let_off else T0 - 40_000)
    assert claim._mean_ms == exactly(300.0 if is_let_off else 860.0)
    assert claim._ended_ms == T0 + after_ms + 300


def test_a_shorter_throttle_does_not_end_a_longer_one():
    claim = claiming()
    claim.on_throttle(300, 0.1, 0.9, T0 - 1_000)
    assert claim._ended_ms == T0
    claim.on_throttle(1_001, 0.1, 0.9, T0 - 1_000)
    assert claim._ended_ms == T0 + 1


@pytest.mark.parametrize(
    ("had", "since_ms", "part"),
    [
        (0.25, T0 - 30_000, 0.25),
        (0.2501, T0 - 30_000, 0.0),
        (0.1, T0 - 29_999, 0.0),
        (0.1, T0 - 30_000, 0.1),
        (0.1, T0 - 299_999, 0.1),
        (0.1, T0 - 300_000, 0.0),
    ],
)
def test_who_is_muted_for_half_a_minute_claims_what_was_had(had, since_ms, part):
    """Of an aim of all, a quarter or less."""
    claim = claiming(0.0, since_ms=since_ms, usual_ms=0.0)
    claim.on_throttle(2_000, had, 1.0, T0)
    assert claim.part == part
    assert claim._usual_ms == (1_200.0 if part else 0.0)
    assert claim._since_ms == (T0 if had > 0.25 or since_ms == T0 - 300_000 else since_ms)


def test_who_claims_may_have_much():
    claim = claiming(0.2)
    claim.on_throttle(1_000, 0.9, 1.0, T0)
    assert claim.part == exactly(0.2 + 0.02 * sqrt(0.2))


@pytest.mark.parametrize(
    ("part", "had", "after"),
    [
        (0.16, 0.0801, 0.168),
        (0.16, 0.08, 0.16),
        (0.16, 0.0, 0.16),
        (0.2401, 0.2, 0.2401 + 0.02 * 0.49),
        (0.245, 0.2, 0.25),
        (0.25, 0.25, 0.25),
    ],
)
def test_what_is_used_grows_by_steps_up_to_a_quarter(part, had, after):
    claim = claiming(part)
    claim.on_throttle(1_000, had, 0.9, T0)
    assert claim.part == exactly(after)


@pytest.mark.parametrize(
    ("throttle_ms", "after"), [(6_000, 0.168), (6_001, 0.16 / sqrt(2)), (20_000, 0.16 / sqrt(2)), (1, 0.168)]
)
def test_throttles_twice_as_long_as_they_were_take_some_of_it(throttle_ms, after):
    """A fifth of five seconds more makes the mean two seconds."""
    claim = claiming(0.16)
    claim.on_throttle(throttle_ms, 0.16, 0.9, T0)
    assert claim.part == exactly(after)


@pytest.mark.parametrize(("since_ms", "part"), [(T0 - 299_999, 0.168), (T0 - 300_000, 0.0)])
def test_after_five_minutes_it_is_given_up(since_ms, part):
    claim = claiming(0.16, since_ms=since_ms)
    claim.on_throttle(1_000, 0.16, 0.9, T0)
    assert claim.part == exactly(part)


def test_before_half_a_minute_is_over_nothing_moves():
    claim = claiming(0.16, since_ms=T0 - 29_999)
    claim.on_throttle(90_000, 0.16, 0.9, T0)
    assert claim.part == 0.16


def test_it_jumps_with_the_clock():
    claim = claiming()
    claim.rebase(-500)
    assert (claim._since_ms, claim._ended_ms, claim._mean_ms, claim.part) == (T0 - 40_500, T0 - 500, 1_000.0, 0.1)
