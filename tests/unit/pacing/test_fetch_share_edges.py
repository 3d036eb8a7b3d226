"""A consumer's share, number by number: with fetches of 20,000 B a rate of 9,600 B/s stands for half a second."""

from math import cbrt, exp, inf, log
from typing import Any

import pytest

from kclient_quota.pacing.fetching.fetch_share import FetchShare, _LearntShare

NOW_MS = 100_000
LIMIT = 100_000.0

# Learnt


def learner(
    change: float, rate: float = 9_600.0, learnt: float = 1e12, *, quiet_ago_ms: int = 0, fetch_bytes: float = 20_000.0
) -> _LearntShare:
    """One that has learnt, and wants to change by so much per second on a logarithmic scale."""
    share = _LearntShare()
    share.learnt, share.rate = learnt, rate
    share._fetch_bytes = fetch_bytes
    share._quiet_since_ms = NOW_MS - quiet_ago_ms
    share._price.begin(1_000 * cbrt(0.06 * fetch_bytes / rate) * exp(-change / 0.3), NOW_MS)
    return share


def grown(share: _LearntShare, elapsed_ms: int = 1_000, *, busy: bool = True) -> float:
    share._grown_at_ms = NOW_MS - elapsed_ms
    share.grow(NOW_MS, busy=busy)
    assert share._grown_at_ms == max(NOW_MS, NOW_MS - elapsed_ms)
    return share.rate


OF_THE_FIRST = {"_price", "_more", "_span_ms", "_told_until_ms"}


def told(share: _LearntShare) -> dict[str, Any]:
    return {name: getattr(share, name) for name in share.__slots__ if name not in OF_THE_FIRST}


def test_before_anything_was_refused_nothing_limits() -> None:
    share = _LearntShare()
    share.on_free(7)
    assert (share.limit, share.is_whole, share._price.paid_at_ms) == (None, False, 0)
    assert told(share) == {
        "_fetch_bytes": 1_000.0, "_grown_at_ms": 0, "_quiet_since_ms": 0, "learnt": None, "rate": inf
    }  # fmt: skip


@pytest.mark.parametrize(
    ("own_bytes", "throttle_ms", "fetch", "rate", "price_ms"),
    [
        (110_000, 1_000, 20_000, 10_000.0, 1_000 * cbrt(0.12)),
        (101_000, 100, 20_000, 10_000.0, 100),
        (11_000_000, 1_000, 20_000, 1_000_000.0, 1_000 * cbrt(0.0012)),
        (5_632, 1_000, 20_000, 512.0, 1_000),
        (5_621, 1_000, 20_000, 512.0, 1_000),
        (11, 1_000, 0, 512.0, 1_000 * cbrt(60 / 512)),
        (11, 1_000, 999, 512.0, 1_000 * cbrt(60 / 512)),
        (11, 1_000, 1_001, 512.0, 1_000 * cbrt(60.06 / 512)),
    ],
)
def test_the_first_refusal_tells_what_is_ours(
    own_bytes: float, throttle_ms: int, fetch: float, rate: float, price_ms: float
) -> None:
    share = _LearntShare()
    share.on_throttle(own_bytes, 10_000, throttle_ms, 5_000, fetch)
    assert told(share) == {
        "_fetch_bytes": max(fetch, 1_000.0),
        "_grown_at_ms": 5_000,
        "_quiet_since_ms": 5_000 + throttle_ms,
        "learnt": pytest.approx(own_bytes * 1_000 / (10_000 + throttle_ms)),
        "rate": pytest.approx(rate),
    }
    assert share._price.throttle_ms == pytest.approx(price_ms)
    assert share._price.paid_at_ms == 5_000


def test_nothing_of_our_own_tells_nothing() -> None:
    for own_bytes in (0, -1):
        share = _LearntShare()
        share.on_throttle(own_bytes, 10_000, 1_000, 5_000, 20_000)
        assert told(share) == told(_LearntShare())


def test_nothing_of_our_own_tells_nothing_however_much_may_have_been_asked_for_where_a_rate_was_learnt() -> None:
    share = learner(0.0, learnt=10_000.0)
    share.on_throttle(0, 10_000, 1_000, 5_000, 0, 1_000_000)
    assert (share.learnt, share.rate, share._more) == (10_000, 9_600, 0)


def test_a_further_one_is_a_price_and_leaves_the_rate_to_it() -> None:
    weight = 1 - exp(-1 / 2)
    share = learner(0.0)
    share._grown_at_ms = 3
    share.on_throttle(300_000, 10_000, 2_000, NOW_MS + 1_000, 5_000)
    assert told(share) == {
        "_fetch_bytes": 5_000,
        "_grown_at_ms": 3,
        "_quiet_since_ms": NOW_MS + 3_000,
        "learnt": 25_000.0,
        "rate": 9_600.0,
    }
    assert share._price.throttle_ms == pytest.approx(500 + 1_500 * weight)
    share.on_free(NOW_MS + 2_000)
    assert share._price.throttle_ms == pytest.approx((500 + 1_500 * weight) * exp(-1 / 2))


@pytest.mark.parametrize(
    ("change", "comes"),
    [(0.0, 0.0), (0.1, 0.1), (0.25, 0.3 * log(2)), (-0.2, -0.2), (-0.25, -0.3 * log(2)), (-0.4, -0.3 * log(2))],
)
@pytest.mark.parametrize(("elapsed_ms", "elapsed_s"), [(1_000, 1.0), (250, 0.25), (1_700, 1.0), (1, 0.001)])
def test_a_rate_drifts_as_if_the_price_were_off_by_twice_at_most(
    change: float, comes: float, elapsed_ms: int, elapsed_s: float
) -> None:
    assert grown(learner(change), elapsed_ms) == pytest.approx(9_600 * exp(comes * elapsed_s), rel=1e-9)


def test_without_time_use_or_a_refusal_nothing_drifts() -> None:
    for elapsed_ms in (0, -1):
        share = learner(0.1)
        share._grown_at_ms = NOW_MS - elapsed_ms
        share.grow(NOW_MS, busy=True)
        assert (share.rate, share._grown_at_ms) == (9_600, NOW_MS - elapsed_ms)
    assert grown(learner(0.1), busy=False) == 9_600
    share = learner(0.1)
    share.learnt = None
    assert grown(share) == 9_600


@pytest.mark.parametrize(
    ("change", "calm_ms", "comes"),
    [
        (0.05, -1, 0.05),
        (0.05, 0, 0.05),
        (0.05, 2_999, 0.05),
        (0.05, 3_000, 0.1),
        (0.05, 5_999, 0.1),
        (0.05, 6_000, 0.2),
        (0.05, 12_000, log(2)),
        (0.3, 3_000, 0.6 * log(2)),
        (0.0001, 29_999, 0.0512),
        (0.0001, 30_000, 0.1024),
        (0.0001, 6_000_000, 0.1024),
        (-0.1, 3_000, -0.1),
        (-0.1, 30_000, -0.1),
    ],
)
def test_after_a_calm_window_only_rises_double_every_three_seconds(change: float, calm_ms: int, comes: float) -> None:
    share = learner(change, quiet_ago_ms=10_000 + calm_ms)
    assert grown(share) == pytest.approx(9_600 * exp(comes), rel=1e-9)


def test_after_a_calm_window_the_price_falls_of_itself() -> None:
    for quiet_ago_ms, price_ms in ((10_000, 500), (10_001, 500 * exp(-1))):
        share = learner(0.0, quiet_ago_ms=quiet_ago_ms)
        share._price.paid_at_ms = NOW_MS - 2_000
        grown(share)
        assert share._price.throttle_ms == pytest.approx(price_ms)


def test_until_then_a_rate_is_no_more_than_twice_what_came() -> None:
    assert grown(learner(0.2, learnt=5_000.0, quiet_ago_ms=9_999)) == 10_000
    assert grown(learner(0.2, learnt=3_000.0, quiet_ago_ms=9_999)) == 6_000
    assert grown(learner(0.2, learnt=100.0, quiet_ago_ms=9_999)) == 512
    assert grown(learner(0.2, learnt=5_000.0, quiet_ago_ms=10_000)) == pytest.approx(9_600 * exp(0.2))


def test_a_rate_falls_to_the_least_and_rises_to_none() -> None:
    assert grown(learner(-0.3, 600.0)) == 512
    share = learner(0.0, 1e10, quiet_ago_ms=10_000)
    share._price.throttle_ms = share._expected_ms()
    assert grown(share) == 1e10
    assert share.learnt == 1e12
    share = learner(0.0, 1e10 + 0.5, quiet_ago_ms=10_000)
    share._price.throttle_ms = share._expected_ms()
    assert grown(share) == inf
    assert grown(learner(0.1, 1e10, quiet_ago_ms=9_999)) == pytest.approx(1e10 * exp(0.1))
    share = learner(0.001, 1e10, quiet_ago_ms=10_000)
    assert grown(share) == inf
    assert share.learnt is None


def test_a_clock_that_jumps_moves_what_was_learnt() -> None:
    share = _LearntShare()
    share.on_throttle(110_000, 10_000, 1_000, 5_000, 20_000)
    share.rebase(300)
    assert (share._grown_at_ms, share._quiet_since_ms, share._price.paid_at_ms) == (5_300, 6_300, 5_300)


# Known or learnt


def test_a_known_limit_is_aimed_at_a_hundredth_below_as_long_as_it_is_all_ours() -> None:
    share = FetchShare(LIMIT)
    assert (share.limit, share.learnt, share.ceiling) == (LIMIT, None, LIMIT)
    assert share.rate == pytest.approx(99_000, rel=1e-12)
    share.on_throttle(0, 10_000, 1_500, 60_000)
    assert share.rate == 49_000
    assert share.learnt == 0.0


def test_an_unknown_one_is_none() -> None:
    share = FetchShare(None)
    assert (share.limit, share.learnt, share.rate, share.ceiling) == (None, None, inf, inf)
    share.scale(50_000)
    assert share.rate == inf
    share.on_throttle(110_000, 10_000, 1_000, 0, refused=20_000)
    assert (share.limit, share.learnt, share.rate, share.ceiling) == (None, 10_000, 10_000, inf)
    assert share._share._fetch_bytes == 20_000  # type: ignore[union-attr]
    share.on_throttle(110_000, 10_000, 1_000, 0)
    assert share._share._fetch_bytes == 1_000  # type: ignore[union-attr]
    share._share._price.paid_at_ms = 0  # type: ignore[union-attr]
    before = share._share._price.throttle_ms  # type: ignore[union-attr]
    share.on_free(2_000)
    assert share._share._price.throttle_ms == pytest.approx(before * exp(-1))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("own_bytes", "throttle_ms", "refused", "left"),
    [
        (880_000, 1_500, 0.0, 99_000.0),
        (1_012_000, 1_500, 0.0, 99_000.0),
        (1_200_000, 1_500, 0.0, 99_000.0),
        (1_011_999, 1_500, 0.0, 49_000.0),
        (0, 1_500, 0.0, 49_000.0),
        (0, 750, 0.0, 98_000 * (1 - 0.5 * 0.98**0.5)),
        (0, 1_000, 25_000.0, 98_000 * (1 - 0.5 * 0.98**0.5)),
        (0, 1_000, 25_099.0, 98_000 * (1 - 0.5 * 0.98**0.5)),
        (0, 1_000, 25_100.0, 98_000 * (1 - 749 / 1_500 * 0.98**0.5)),
        (0, 1_000, 500_000.0, 98_000 * (1 - 0.12 * 0.98**0.5)),
    ],
)
def test_a_throttle_that_our_own_bytes_do_not_explain_is_a_crowds_but_for_the_part_of_the_fetch(
    own_bytes: float, throttle_ms: int, refused: float, left: float
) -> None:
    share = FetchShare(LIMIT)
    share._share._grown_at_ms = 60_000
    if own_bytes == 880_000:
        share.on_throttle(own_bytes, 8_500, throttle_ms, 60_000, refused=refused)
    else:
        share.on_throttle(own_bytes, 10_000, throttle_ms, 60_000, refused=refused)
    assert share.rate == pytest.approx(left, rel=1e-12)


@pytest.mark.parametrize(("refused", "left"), [(0.0, 49_000.0), (1.0, 900 * (1 - 4_000 / 1_500 * 0.009**0.5))])
def test_a_newcomer_of_which_all_was_refused_yields_from_what_it_aims_at(refused: float, left: float) -> None:
    share = FetchShare(LIMIT)
    share.grow(58_000, busy=True)
    share.grow(59_000, busy=True)
    share.on_throttle(900 * 5, 10_000, 4_000, 59_000, refused=refused)
    assert share.rate == pytest.approx(left, rel=1e-3)


def test_without_a_word_of_the_fetch_all_of_a_throttle_is_the_crowds() -> None:
    share = FetchShare(100.0)
    share.on_throttle(0, 10_000, 750, 60_000)
    assert share.rate == pytest.approx(98 * (1 - 0.5 * 0.98**0.5), rel=1e-12)


def test_a_throttle_that_the_fetch_alone_explains_is_one_millisecond() -> None:
    share = FetchShare(LIMIT)
    for refused in (100_000.0, 99_999.0, 1e9):
        share = FetchShare(LIMIT)
        share.on_throttle(50_000, 9_999, 1_000, 60_000, refused=refused)
        assert share.learnt == pytest.approx(5_000)
        assert share._share._hold_until_ms == 61_001  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("whole_at_ms", "grown_at_ms", "limit", "rate"),
    [
        (1_000, 91_000, 50_000, 49_500.0),
        (1_000, 50_000, 50_000, 49_500.0),
        (1_000, 200_000, 50_000, 10_000.0),
        (1_000, 91_001, 50_000, 10_000.0),
        (None, 0, 50_000, 10_000.0),
        (0, 90_000, 200_000, 198_000.0),
        (0, 90_001, 200_000, 40_000.0),
    ],
)
def test_what_was_given_up_in_a_minute_and_a_half_is_given_back_with_another_limit(
    whole_at_ms: int | None, grown_at_ms: int, limit: float, rate: float
) -> None:
    share = FetchShare(LIMIT)
    if whole_at_ms is not None:
        share.grow(whole_at_ms, busy=True)
        assert share._whole_at_ms == whole_at_ms
    share._share.rate = 20_000.0
    share._share._grown_at_ms = grown_at_ms
    share.grow(grown_at_ms, busy=True)
    assert share._whole_at_ms == whole_at_ms
    share.set_limit(limit)
    assert share.rate == pytest.approx(rate)
    assert share.limit == limit


def test_another_limit_is_followed_as_of_the_last_time_that_was_asked() -> None:
    for since_ms, rate in ((9_999, 38_000.0), (10_000, 10_000.0)):
        share = FetchShare(LIMIT)
        share._share.rate, share._share.learnt = 20_000.0, 38_000.0
        share._share._grown_at_ms = 60_000
        share._share._quiet_since_ms = 60_000 - since_ms
        share.grow(60_000, busy=True)
        share.set_limit(50_000)
        if since_ms == 9_999:
            assert share.learnt == rate
        assert share.rate == pytest.approx(rate)


def test_as_long_as_nobody_has_asked_it_is_the_beginning() -> None:
    for quiet_since_ms, rate in ((-9_999, 38_000.0), (-10_000, 10_000.0)):
        share = FetchShare(LIMIT)
        share._share.rate, share._share.learnt = 20_000.0, 38_000.0
        share._share._quiet_since_ms = quiet_since_ms
        share.set_limit(50_000)
        assert share.rate == pytest.approx(rate)


def test_a_limit_that_is_not_known_any_more_is_learnt_anew_and_the_other_way_round() -> None:
    share = FetchShare(LIMIT)
    share.set_limit(None)
    assert (share.limit, share.rate) == (None, inf)
    share.on_throttle(110_000, 10_000, 1_000, 0)
    share.set_limit(None)
    assert (share.learnt, share.rate) == (None, inf)
    share.set_limit(50_000)
    assert share.limit == 50_000
    assert share.rate == pytest.approx(49_500)
    share.scale(20_000)
    assert share.limit == 20_000
    assert share.rate == pytest.approx(19_800)


def test_a_clock_that_jumps_moves_the_share_and_nobody_knows_when_it_was_whole() -> None:
    share = FetchShare(LIMIT)
    share.grow(1_000, busy=True)
    share.rebase(-400)
    assert (share._share._grown_at_ms, share._whole_at_ms) == (600, None)


def test_strangers_that_were_met_are_taken_to_be_there_for_a_quarter_of_an_hour() -> None:
    share = FetchShare(LIMIT)
    assert share.is_alone(0)
    share.on_throttle(1, 10_000, 1, 1_000)
    share.grow(500_000, busy=True)
    share.grow(890_000, busy=True)
    assert [share.is_alone(now_ms) for now_ms in (901_000, 901_001)] == [False, True]
    share.rebase(-5)
    assert share.is_alone(0)
    assert not FetchShare(None).is_alone(0)


def test_only_who_is_busy_grows_what_was_learnt() -> None:
    for busy, rises in ((True, True), (False, False)):
        share = FetchShare(None)
        share.on_throttle(110_000, 10_000, 1, 0)
        share.grow(1_000, busy=busy)
        assert (share.rate > 11_000) is rises
