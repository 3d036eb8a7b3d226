"""The law without a limit, number by number: a rate of 13,600 B/s stands for throttles of half a second."""

from math import cbrt, exp, inf, log
from typing import Any

import pytest

from kclient_quota.pacing.learnt_share import LearntShare

RATE = 13_600.0
NOW_MS = 100_000


def share_of(change: float, rate: float = RATE, *, paid_ago_ms: int = 0, **state: Any) -> LearntShare:
    """One that has learnt, is not young, and wants to change by so much per second on a logarithmic scale."""
    share = LearntShare()
    share.learnt, share.rate = 1.0, rate
    share._young_ms = 0
    share._quiet_since_ms = NOW_MS
    share._price.begin(1_000 * cbrt(1_700 / rate) * exp(-change / 0.3), NOW_MS - paid_ago_ms)
    for name, value in state.items():
        setattr(share, name, value)
    return share


def grown(share: LearntShare, elapsed_ms: int = 1_000, *, busy: bool = True) -> float:
    share._grown_at_ms = NOW_MS - elapsed_ms
    share.grow(NOW_MS, busy=busy)
    assert share._grown_at_ms == max(NOW_MS, NOW_MS - elapsed_ms)
    return share.rate


def state(share: LearntShare) -> dict[str, Any]:
    return {name: getattr(share, name) for name in vars(share) if name != "_price"}


def test_before_the_first_throttle_nothing_limits() -> None:
    share = LearntShare()
    assert (share.limit, share.every_ms, share.request_ms, share.is_whole) == (None, 0.0, 100, False)
    share.on_free(5)
    share.on_late_count(5, 5)
    assert share._price.paid_at_ms == 0
    assert state(share) == {
        "_grown_at_ms": 0,
        "_hold_until_ms": 0,
        "_is_free": True,
        "_patience_ms": 10_000,
        "_quiet_since_ms": 0,
        "_young_ms": 10_000,
        "is_whole": False,
        "learnt": None,
        "rate": inf,
    }
    share.grow(50, busy=True)
    assert (share.rate, share._grown_at_ms) == (inf, 50)


# The first throttle


def test_the_first_throttle_tells_what_is_ours() -> None:
    share = LearntShare()
    share.on_throttle(200_000, 9_000, 1_000, 5_000)
    assert state(share) == {
        "_grown_at_ms": 5_000,
        "_hold_until_ms": 7_000,
        "_is_free": False,
        "_patience_ms": 10_000,
        "_quiet_since_ms": 6_000,
        "_young_ms": 10_000,
        "is_whole": False,
        "learnt": 20_000.0,
        "rate": 19_600.0,
    }
    assert share._price.throttle_ms == pytest.approx(442.6, abs=0.1)
    assert share._price.paid_at_ms == 5_000


@pytest.mark.parametrize(
    ("own_bytes", "throttle_ms", "learnt", "rate", "young_ms", "price_ms"),
    [
        (10_500_000, 500, 1_000_000, 980_000, 10_000, 1_000 * cbrt(1_700 / 980_000)),
        (10_050_000, 50, 1_000_000, 980_000, 10_000, 50),
        (110_010, 1_001, 10_000, 9_800, 0, 1_000 * cbrt(1_700 / 9_800)),
        (5_500, 1_000, 500, 512, 10_000, 1_000),
        (11, 1_000, 1, 512, 10_000, 1_000),
        (0, 1_000, None, inf, 10_000, 0),
        (0, 1_001, None, inf, 0, 0),
        (-5, 1_000, None, inf, 10_000, 0),
    ],
)
def test_what_the_first_throttle_tells(
    own_bytes: float, throttle_ms: int, learnt: float | None, rate: float, young_ms: int, price_ms: float
) -> None:
    share = LearntShare()
    share.on_throttle(own_bytes, 10_000, throttle_ms, 0)
    assert share.learnt == (None if learnt is None else pytest.approx(learnt))
    assert share.rate == pytest.approx(rate)
    assert share._young_ms == young_ms
    assert share._price.throttle_ms == pytest.approx(price_ms)


# Further ones


@pytest.mark.parametrize(
    ("off_ms", "foretold"), [(0, True), (5, True), (-5, True), (40, True), (-40, True), (40.1, False), (-41, False)]
)
@pytest.mark.parametrize("before", [True, False])
def test_a_throttle_that_was_foretold_tells_that_nobody_else_is_there_and_one_that_is_far_off_that_somebody_is(
    off_ms: float, foretold: bool, before: bool
) -> None:
    for at_ms, held in ((8_000, False), (6_999, True), (7_000, False)):
        share = LearntShare()
        share.on_throttle(200_000, 9_000, 1_000, 5_000)
        share.is_whole = before
        own_bytes = 200_000 + 20 * off_ms
        share.on_throttle(own_bytes, 9_700, 300, at_ms)
        assert share.is_whole is (foretold and (before or not held))
        assert share._hold_until_ms == (7_000 if held else at_ms + 1_300)
        assert share._quiet_since_ms == (6_000 if held else at_ms + 300)
        assert share.learnt == pytest.approx(20_000 if held or share.is_whole else own_bytes / 10)
        assert share._patience_ms == (20_000 if share.is_whole and not held else 10_000)
        assert share.rate == 19_600


def test_whoever_is_alone_goes_back_to_what_foretold() -> None:
    share = LearntShare()
    share.on_throttle(200_000, 9_000, 1_000, 0)
    share.is_whole, share.rate = True, 25_000.0
    share.on_throttle(200_400, 9_700, 300, 5_000)  # off by twenty
    assert (share.rate, share.learnt, share._patience_ms, share.is_whole) == (19_600.0, 20_000.0, 20_000, True)
    share.on_throttle(201_000, 9_700, 300, 10_000)
    assert (share.rate, share.learnt, share._patience_ms, share.is_whole) == (19_600.0, 20_100.0, 10_000, False)


@pytest.mark.parametrize(
    ("own_bytes", "throttle_ms", "rate"),
    [
        (130_000, 3_000, 100_000),
        (130_010, 3_001, 50_000),
        (140_000, 4_000, 50_000),
        (1_400_000, 4_000, 60_000),
        (14_000_000, 4_000, 100_000),
    ],
)
def test_one_of_more_than_three_seconds_takes_half_but_leaves_six_tenths_of_what_was_ours(
    own_bytes: float, throttle_ms: int, rate: float
) -> None:
    share = share_of(0.0, 100_000.0)
    share.on_throttle(own_bytes, 10_000, throttle_ms, NOW_MS)
    assert share.rate == pytest.approx(rate)


def test_what_a_throttle_costs_is_ten_times_the_one_expected_at_most() -> None:
    weight = 1 - exp(-1 / 2)
    for throttle_ms, price_ms in ((-1, -1), (0, 0), (700, 700), (5_000, 5_000), (9_000, 5_000)):
        share = share_of(0.0, paid_ago_ms=1_000, _is_free=False)
        share.on_throttle(1_000, 10_000, throttle_ms, NOW_MS)
        assert share._price.throttle_ms == pytest.approx(500 + (price_ms - 500) * weight)
        assert share._is_free is (throttle_ms <= 0)
    share = share_of(0.0, paid_ago_ms=1_000, _is_free=False)
    share.on_free(NOW_MS)
    assert share._price.throttle_ms == pytest.approx(500 - 500 * weight)
    assert share._is_free
    share.on_throttle(1_000, 10_000, 1, NOW_MS)
    assert not share._is_free


@pytest.mark.parametrize(
    ("rate", "request_ms"),
    [(13_600.0, 375.0), (1_700.0, 750.0), (100_000_000.0, 100), (1_700 / 64, 3_000), (1_700 / 63, 750 * cbrt(63))],
)
def test_a_request_is_three_quarters_of_the_throttle_that_is_expected(rate: float, request_ms: float) -> None:
    share = share_of(0.0, rate)
    assert share.request_ms == pytest.approx(request_ms)
    share.is_whole = True
    assert share.request_ms == 100
    share.is_whole, share.learnt = False, None
    assert share.request_ms == 100


def test_a_request_stands_for_three_seconds_at_most() -> None:
    assert share_of(0.0, 1_700 / 125).request_ms == 3_000


# Drifting


@pytest.mark.parametrize(
    ("change", "state", "comes"),
    [
        (0.0, {}, 0.0),
        (0.05, {}, 0.05),
        (0.08, {}, 0.07),
        (-0.5, {}, -0.5),
        (-0.8, {}, -log(2)),
        (0.3, {"_is_free": False}, 0.3),
        (0.5, {"_is_free": False}, 0.4),
        (-0.5, {"_is_free": False}, -0.5),
        (0.15, {"_young_ms": 1}, 0.5),
        (0.3, {"_young_ms": 1}, log(2)),
        (-0.15, {"_young_ms": 1}, -0.5),
        (-0.3, {"_young_ms": 1}, -log(2)),
        (0.05, {"_young_ms": -1}, 0.05),
    ],
)
@pytest.mark.parametrize(("elapsed_ms", "elapsed_s"), [(1_000, 1.0), (250, 0.25), (1_500, 1.0), (1, 0.001)])
def test_a_rate_drifts_to_what_the_price_stands_for(
    change: float, state: dict[str, Any], comes: float, elapsed_ms: int, elapsed_s: float
) -> None:
    assert grown(share_of(change, **state), elapsed_ms) == pytest.approx(RATE * exp(comes * elapsed_s), rel=1e-9)


@pytest.mark.parametrize("elapsed_ms", [0, -1])
def test_without_time_nothing_drifts(elapsed_ms: int) -> None:
    share = share_of(0.05)
    share._grown_at_ms = NOW_MS - elapsed_ms
    share.grow(NOW_MS, busy=True)
    assert (share.rate, share._grown_at_ms) == (RATE, NOW_MS - elapsed_ms)


def test_only_what_is_used_drifts() -> None:
    assert grown(share_of(0.05), busy=False) == RATE
    assert grown(share_of(0.05, learnt=None)) == RATE


def test_whoever_is_alone_is_patient() -> None:
    for calm_ms, patience_ms, comes in ((9_999, 10_000, 0.0), (10_000, 10_000, 0.035), (10_000, 20_000, 0.0)):
        share = share_of(0.05, is_whole=True, _quiet_since_ms=NOW_MS - calm_ms, _patience_ms=patience_ms)
        assert grown(share) == pytest.approx(RATE * exp(comes), rel=1e-9)


@pytest.mark.parametrize(
    ("change", "beyond_ms", "comes"),
    [
        (0.05, -5_000, 0.05),
        (0.05, 2_999, 0.05),
        (0.05, 3_000, 0.1),
        (0.05, 5_999, 0.1),
        (0.05, 6_000, 0.2),
        (0.05, 9_000, 0.4),
        (0.05, 12_000, log(2)),
        (-0.1, 3_000, -0.2),
        (1e-7, 59_999, 1e-7 * 2**19),
        (1e-7, 60_000, 1e-7 * 2**20),
        (1e-7, 6_300_000, 1e-7 * 2**20),
    ],
)
def test_beyond_its_patience_a_drift_doubles_every_three_seconds(change: float, beyond_ms: int, comes: float) -> None:
    for patience_ms in (10_000, 20_000):
        share = share_of(change, _quiet_since_ms=NOW_MS - patience_ms - beyond_ms, _patience_ms=patience_ms)
        assert grown(share) == pytest.approx(RATE * exp(comes), rel=1e-9)


@pytest.mark.parametrize(
    ("calm_ms", "paid_ago_ms", "is_stale"),
    [(5_000, 9_000, False), (5_001, 9_000, True), (9_000, 5_000, False), (9_000, 5_001, True), (9_000, 97_000, True)],
)
@pytest.mark.parametrize(("elapsed_ms", "elapsed_s"), [(1_000, 1.0), (200, 0.2), (7_000, 1.0)])
def test_a_price_that_nobody_has_asked_for_falls_by_half_in_three_seconds(
    calm_ms: int, paid_ago_ms: int, is_stale: bool, elapsed_ms: int, elapsed_s: float
) -> None:
    share = share_of(-0.5, paid_ago_ms=paid_ago_ms, _quiet_since_ms=NOW_MS - calm_ms)
    before = share._price.throttle_ms
    rate = grown(share, elapsed_ms)
    fallen = elapsed_s / 4 if is_stale else 0.0
    assert share._price.throttle_ms == pytest.approx(before * exp(-fallen), rel=1e-9)
    assert rate == pytest.approx(RATE * exp((-0.5 + 0.3 * fallen) * elapsed_s), rel=1e-9)


def test_a_newcomer_is_young_for_ten_seconds_of_its_own() -> None:
    share = share_of(0.0, _young_ms=10_000)
    for left in range(9_500, -1, -500):
        grown(share, 500)
        assert share._young_ms == left
    grown(share, 500)
    assert share._young_ms == 0


def test_a_rate_falls_no_further_than_what_was_ours_allows() -> None:
    assert grown(share_of(-0.6, learnt=20_000.0)) == 12_000
    assert grown(share_of(-0.6, learnt=40_000.0)) == RATE
    assert grown(share_of(-0.6, 600.0)) == 512
    assert grown(share_of(-0.6, 1_000.0)) == pytest.approx(1_000 * exp(-0.6))


def test_a_rate_without_an_end_is_none() -> None:
    share = share_of(0.0, 1e12)
    share._price.throttle_ms = share._expected_ms()
    assert grown(share) == 1e12
    assert share.learnt == 1.0
    share = share_of(0.0, 1e12 + 0.5)
    share._price.throttle_ms = share._expected_ms()
    assert grown(share) == inf
    assert grown(share_of(0.001, 1e12)) == inf
    share = share_of(0.07, 1e12)
    grown(share)
    assert share.learnt is None
    assert share.request_ms == 100


# Another clock


def test_a_clock_that_jumps_moves_all_times() -> None:
    share = LearntShare()
    share.on_throttle(200_000, 9_000, 1_000, 5_000)
    share.rebase(300)
    assert (share._grown_at_ms, share._hold_until_ms, share._quiet_since_ms) == (5_300, 7_300, 6_300)
    assert share._price.paid_at_ms == 5_300
    assert (share.learnt, share.rate, share._young_ms, share._patience_ms) == (20_000, 19_600, 10_000, 10_000)
