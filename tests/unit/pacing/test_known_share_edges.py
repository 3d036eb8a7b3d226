"""The law under a known limit, number by number: 100,000 B/s, whose square roots are easy."""

from math import sqrt
from typing import Any

import pytest

from kclient_quota.pacing.known_share import KnownShare

LIMIT = 100_000.0


def share_of(rate: float = 98_000.0, cap: float = 98_000.0) -> KnownShare:
    share = KnownShare(LIMIT)
    share.rate, share._cap = rate, cap
    return share


def state(share: KnownShare) -> dict[str, Any]:
    return {name: getattr(share, name) for name in vars(share) if name != "_claim"}


def test_at_first_all_but_a_fiftieth_is_ours() -> None:
    share = KnownShare(LIMIT)
    assert (share.limit, share.rate, share.learnt, share.is_whole) == (LIMIT, 98_000.0, None, True)
    assert (share.every_ms, share.request_ms) == (0.0, 100)
    found = []
    for share.rate in (97_999.0, float("98000"), 98_001.0):
        found.append(share.is_whole)
    assert found == [False, True, True]
    assert state(KnownShare(LIMIT)) == {
        "_before": 98_000.0,
        "_begun_at_ms": None,
        "_cap": 98_000.0,
        "_grown_at_ms": 0,
        "_held_ms": 0,
        "_hold_until_ms": 0,
        "_quiet_since_ms": 0,
        "_span_ms": 1,
        "learnt": None,
        "limit": LIMIT,
        "rate": 98_000.0,
    }


# Growing


@pytest.mark.parametrize(
    ("rate", "elapsed_ms", "grown"),
    [
        (25_000.0, 1_000, 25_800.0),
        (25_000.0, 500, 25_400.0),
        (25_000.0, 1, 25_000.8),
        (4_000.0, 1_000, 4_320.0),
        (49_000.0, 1_000, 49_000 + 1_600 * 0.7),
        (97_900.0, 1_000, 98_000.0),
        (25_000.0, 0, 25_000.0),
        (99_000.0, 0, 99_000.0),
        (99_000.0, 1, 98_000.0),
        (25_000.0, -1, 25_000.0),
    ],
)
def test_what_is_regained_is_sixteen_thousandths_of_the_limit_a_second_times_the_root_of_the_share(
    rate: float, elapsed_ms: int, grown: float
) -> None:
    share = share_of(rate)
    share._grown_at_ms = 5_000
    share.grow(5_000 + elapsed_ms, busy=True)
    assert share.rate == pytest.approx(grown, rel=1e-12)
    share.grow(5_000 + elapsed_ms, busy=False)
    assert share.rate == pytest.approx(grown, rel=1e-12)


@pytest.mark.parametrize(
    ("calm_ms", "per_s"),
    [
        (-1, 1_600),
        (0, 1_600),
        (2_999, 1_600),
        (3_000, 3_200),
        (5_999, 3_200),
        (6_000, 6_400),
        (8_999, 6_400),
        (9_000, 10_000),
        (30_000, 10_000),
        (86_400_000, 10_000),
    ],
)
def test_after_a_calm_window_it_doubles_every_three_seconds_up_to_a_tenth(calm_ms: int, per_s: float) -> None:
    share = share_of(25_000.0)
    share._quiet_since_ms = 7_000
    now_ms = 7_000 + 10_000 + calm_ms
    share._grown_at_ms = now_ms - 1_000
    share.grow(now_ms, busy=True)
    assert share.rate == pytest.approx(25_000 + per_s / 2, rel=1e-12)


def test_who_has_miscounted_believes_in_the_limit_again_a_thirty_second_part_as_fast() -> None:
    share = share_of(50_000.0, 50_000.0)
    share.grow(1_000, busy=True)
    assert share.rate == share._cap == 50_050.0
    share = share_of(25_000.0, 97_980.0)
    share.grow(1_000, busy=True)
    assert share._cap == 98_000.0


# Yielding


@pytest.mark.parametrize(
    ("rate", "throttle_ms", "left"),
    [
        (25_000.0, 1, 25_000 * 0.94),
        (25_000.0, 180, 25_000 * 0.94),
        (25_000.0, 300, 25_000 * 0.9),
        (25_000.0, 1_200, 25_000 * 0.6),
        (25_000.0, 1_500, 12_500.0),
        (25_000.0, 1_800, 12_500.0),
        (4_000.0, 1_500, 3_200.0),
        (64_000.0, 750, 38_400.0),
        (64_000.0, 1_500, 32_000.0),
        (600.0, 100_000, 500.0),
        (98_000.0, 750, 98_000 * (1 - sqrt(0.98) / 2)),
    ],
)
def test_a_throttle_takes_as_many_parts_as_it_is_of_a_second_and_a_half_times_the_root_of_the_share(
    rate: float, throttle_ms: int, left: float
) -> None:
    share = share_of(rate)
    share.on_throttle(50_000, 10_000, throttle_ms, 60_000)
    assert share.rate == pytest.approx(left, rel=1e-12)
    assert share.learnt == pytest.approx(50_000_000 / (10_000 + throttle_ms), rel=1e-12)
    assert share.every_ms == 0.0


def test_for_a_sample_and_itself_a_throttle_holds_off_further_ones_up_to_twice_as_long() -> None:
    for throttle_ms, at_ms, left in (
        (300, 61_299, 22_500.0),
        (600, 61_299, 22_500.0),
        (601, 61_299, 25_000 * (1 - 601 / 3_000)),
        (1_500, 61_299, 12_500.0),
        (180, 61_300, 22_500 * (1 - 0.12 * sqrt(0.225))),
        (300, 61_300, 22_500 * (1 - 0.2 * sqrt(0.225))),
    ):
        share = share_of(25_000.0)
        share.on_throttle(50_000, 10_000, 300, 60_000)
        assert share.rate == pytest.approx(22_500.0)
        share.on_throttle(70_000, 10_000, throttle_ms, at_ms)
        assert share.rate == pytest.approx(left, rel=1e-12)
        counts = left != 22_500.0
        assert share.learnt == pytest.approx(70_000_000 / (10_000 + throttle_ms) if counts else 50_000_000 / 10_300)


def test_one_that_takes_anothers_place_takes_from_what_was_there_before_and_gives_nothing_back() -> None:
    share = share_of(25_000.0)
    share.on_throttle(50_000, 10_000, 700, 60_000)
    assert share.rate == pytest.approx(25_000 * (1 - 7 / 30))
    share.rate = 5_000.0
    share.on_throttle(50_000, 10_000, 1_401, 60_100)
    assert share.rate == 5_000.0


def test_what_follows_a_throttle_is_counted_from_its_end() -> None:
    share = share_of(25_000.0)
    share.on_throttle(50_000, 10_000, 300, 60_000)
    before = share.rate
    share.grow(60_300, busy=True)
    assert share.rate == before
    share.grow(61_300, busy=True)
    assert share.rate == pytest.approx(before + 1_600 * sqrt(before / LIMIT))
    assert state(share) == state(share) | {
        "_held_ms": 300, "_hold_until_ms": 61_300, "_quiet_since_ms": 60_300, "_span_ms": 10_300, "_before": 25_000.0
    }  # fmt: skip


# Counting otherwise than the broker does


@pytest.mark.parametrize(
    ("own_bytes", "cap"),
    [
        (880_000, 88_000 * 0.98),
        (900_000, 90_000 * 0.98),
        (979_999, 97_999.9 * 0.98),
        (980_000, 98_000 * 0.995),
        (1_200_000, 98_000 * 0.995),
    ],
)
def test_who_had_most_of_it_corrects_its_count_or_a_quarter_of_what_pays_for_jitter(
    own_bytes: float, cap: float
) -> None:
    share = share_of()
    share.on_throttle(own_bytes, 9_000, 1_000, 60_000)
    assert share.rate == share._cap == pytest.approx(cap, rel=1e-12)
    assert share.is_whole
    assert share.learnt == own_bytes / 10


def test_who_had_a_little_less_gives_up_half() -> None:
    share = share_of()
    share.on_throttle(849_999, 8_500, 1_500, 60_000)
    assert share.rate == 49_000.0
    assert not share.is_whole


def test_a_count_is_never_corrected_upwards() -> None:
    share = share_of(60_000.0, 70_000.0)
    share.on_throttle(900_000, 9_000, 1_000, 60_000)
    assert (share.rate, share._cap) == (60_000.0, 70_000.0)
    share = share_of(60_000.0, 70_000.0)
    share.on_throttle(990_000, 9_000, 1_000, 60_000)
    assert share.rate == share._cap == pytest.approx(59_700.0)


# A newcomer


@pytest.mark.parametrize(
    ("throttle_ms", "at_ms", "rate"),
    [
        (199, 2_301, 98_000.0),
        (200, 2_300, 100_000_000 / 1_500),
        (200, 3_999, 100_000_000 / 3_199),
        (200, 4_000, 98_000.0),
        (200, 4_001, 98_000.0),
        (300, 1_000, 98_000.0),
        (10_000_000, 1_000, 500.0),
    ],
)
def test_a_newcomer_that_meets_a_crowd_falls_to_what_it_had_since_it_came(
    throttle_ms: int, at_ms: int, rate: float
) -> None:
    share = KnownShare(LIMIT)
    share.grow(1_000, busy=False)
    share.rate = 98_000.0
    share._heed_crowd(100_000, throttle_ms, at_ms)
    assert share.rate == pytest.approx(rate, rel=1e-12)


def test_who_has_never_asked_is_no_newcomer() -> None:
    share = KnownShare(LIMIT)
    share._heed_crowd(1_000, 1_000, 100)
    assert share.rate == 98_000.0


def test_a_newcomer_yields_from_what_it_had() -> None:
    share = KnownShare(LIMIT)
    share.grow(0, busy=False)
    share.on_throttle(25_000, 10_000, 200, 800)
    assert share.rate == pytest.approx(25_000 * (1 - 0.2 / 3), rel=1e-12)
    share.grow(1_000, busy=False)
    share.grow(2_000, busy=False)
    assert share._begun_at_ms == 0
