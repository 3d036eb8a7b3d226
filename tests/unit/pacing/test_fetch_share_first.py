"""What the first throttle tells of a limit that nobody knows: of a fetch of unknown size, before statistics came."""

import pytest

from kclient_quota.pacing.fetching.fetch_share import FetchShare, _LearntShare
from tests.unit.pacing.test_fetch_share_edges import LIMIT


def guesser() -> _LearntShare:
    """Who was refused a fetch of up to 1,100,000 bytes, or of as little as 20,000, for a second in the fifth."""
    share = _LearntShare()
    share.on_throttle(110_000, 10_000, 1_000, 5_000, 20_000, 1_120_000)
    return share


def test_who_does_not_know_how_large_a_fetch_was_refused_doubles_each_second_until_he_does() -> None:
    """A megabyte of each of twelve partitions: he took 185 kB/s for all that was his of 500, for twenty seconds."""
    share = guesser()
    assert (share.learnt, share.rate) == (10_000, 10_000)
    for second, rate in ((6, 20_000), (7, 40_000), (8, 80_000)):
        share.grow(second * 1_000, busy=True)
        assert share.rate == pytest.approx(rate)
    share.on_throttle(880_000, 10_000, 1_000, 9_000, 20_000, 1)
    share._price.begin(share._expected_ms(), 9_000)
    share.grow(10_000, busy=True)
    assert (share.learnt, share.rate) == (80_000, pytest.approx(80_000))


def test_who_does_not_know_that_goes_no_further_than_twice_what_it_may_have_been() -> None:
    share = guesser()
    for second in range(6, 15):
        share.grow(second * 1_000, busy=True)
    assert share.rate == pytest.approx(2 * 110_000)


def test_and_not_before_the_throttle_is_over_or_where_it_was_of_little_more() -> None:
    share = guesser()
    share._quiet_since_ms = 6_001
    share.grow(6_000, busy=True)
    assert share.rate < 15_000
    share = _LearntShare()
    share.on_throttle(110_000, 10_000, 1_000, 5_000, 20_000, 130_000)
    share.grow(6_000, busy=True)
    assert share.rate < 15_000


def test_what_is_told_of_within_a_second_has_brought_about_the_first_throttle() -> None:
    """The next statistics told of megabytes: he took 512 bytes a second for his."""
    share = _LearntShare()
    share.on_late_count(1_000_000, 4_000)
    assert share.learnt is None
    share.on_throttle(100, 10_999, 1, 5_000, 0)
    assert share.rate == 512
    share.on_late_count(1_100_000, 6_000)
    assert (share.learnt, share.rate) == (100_000, 100_000)
    share.on_late_count(50, 6_000)
    share.on_late_count(2_200_000, 6_001)
    assert (share.learnt, share.rate) == (100_000, 100_000)


def test_what_is_told_late_says_nothing_of_a_further_throttle_or_where_the_limit_is_known() -> None:
    share = _LearntShare()
    share.on_throttle(110_000, 10_999, 1, 5_000, 0)
    share.on_throttle(220_000, 10_999, 1, 6_500, 0)
    share.on_late_count(1_100_000, 6_600)
    assert share.learnt == 20_000
    known = FetchShare(LIMIT)
    known.on_late_count(10**9, 0)
    assert known.rate == FetchShare(LIMIT).rate
