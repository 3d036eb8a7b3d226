"""What another limit, late news, a claim or another clock make of a share of a known limit, number by number."""

from math import sqrt

import pytest

from kclient_quota.pacing.known_share import KnownShare
from tests.unit.pacing.test_known_share_edges import LIMIT, share_of, state


def yielded(own_bytes: float = 400_000) -> KnownShare:
    """Had 40,000 B/s of the limit until 61,000 ms, and goes on with half of what it sent."""
    share = share_of(64_000.0)
    share.on_throttle(own_bytes, 9_000, 1_000, 60_000)
    return share


# Late news


@pytest.mark.parametrize(
    ("nbytes", "at_ms", "rate"),
    [
        (479_999, 60_500, None),
        (480_000, 60_500, 64_000.0),
        (480_001, 61_999, 64_000.0),
        (480_000, 62_000, None),
        (480_000, 62_001, None),
    ],
)
def test_late_news_that_explain_a_throttle_take_back_what_was_given_up(
    nbytes: float, at_ms: int, rate: float | None
) -> None:
    share = yielded()
    left = share.rate
    assert left == pytest.approx(64_000 * (1 - 0.5))
    share.on_late_count(nbytes, at_ms)
    assert share.rate == pytest.approx(left if rate is None else rate)
    assert share.learnt == (40_000 + nbytes / 10 if at_ms < 62_000 else 40_000)


def test_late_news_add_up_and_never_lower_a_rate() -> None:
    share = yielded()
    share.on_late_count(200_000, 60_500)
    assert share.rate == pytest.approx(32_000)
    share.on_late_count(280_000, 60_600)
    assert (share.learnt, share.rate) == (88_000, 64_000)
    share.rate = 70_000.0
    share.on_late_count(1, 60_700)
    assert share.rate == 70_000


def test_late_news_without_a_throttle_mean_nothing() -> None:
    share = KnownShare(LIMIT)
    share._hold_until_ms = 1_000
    before = state(share)
    share.on_late_count(1e9, 500)
    share.on_free(500)
    assert state(share) == before


# Another limit


@pytest.mark.parametrize("factor", [0.5, 2.0, 1.0])
def test_all_that_is_known_is_of_the_limit(factor: float) -> None:
    share = yielded()
    before = state(share)
    share.scale(LIMIT * factor)
    of_the_limit = ("rate", "_before", "_cap", "learnt", "limit")
    assert state(share) == {name: value * factor if name in of_the_limit else value for name, value in before.items()}
    share.learnt = None
    share.scale(LIMIT)
    assert share.learnt is None


@pytest.mark.parametrize(
    ("own_bytes", "limit", "at_ms", "rate", "cap", "before"),
    [
        # 40,000 B/s are what can be had of less than 45,454.5 B/s: nobody else was there.
        (400_000, 40_000.0, 60_100, 39_200.0, 39_200.0, 39_200.0),
        (400_000, 45_454.0, 60_100, 44_544.92, 44_544.92, 44_544.92),
        (400_000, 45_456.0, 60_100, 40_000.0, 44_546.88, 40_000.0),
        # Otherwise they are our share of it, if we had given up more.
        (400_000, 80_000.0, 60_100, 40_000.0, 78_400.0, 51_200.0),
        (400_000, 400_000.0, 60_100, 128_000.0, 392_000.0, 256_000.0),
        # A throttle that was over a window ago says nothing of the limit that was.
        (400_000, 40_000.0, 70_999, 39_200.0, 39_200.0, 39_200.0),
        (400_000, 40_000.0, 71_000, 12_800.0, 39_200.0, 25_600.0),
        (400_000, 40_000.0, 71_001, 12_800.0, 39_200.0, 25_600.0),
    ],
)
def test_a_throttle_of_another_limit_shows_what_our_share_of_it_is(
    own_bytes: float, limit: float, at_ms: int, rate: float, cap: float, before: float
) -> None:
    share = yielded(own_bytes)
    share.change(limit, at_ms)
    assert (share.rate, share._cap, share._before) == pytest.approx((rate, cap, before), rel=1e-9)
    assert (share.limit, share.learnt) == (limit, own_bytes / 10)


def test_the_bound_is_eighty_eight_hundredths_itself() -> None:
    for learnt, cap in ((88_000.0, 98_000.0), (90_000.0, 98_000.0), (87_999.0, 50_000.0)):
        share = share_of(20_000.0, 50_000.0)
        share.learnt = learnt
        share.change(LIMIT, 0)
        assert (share._cap, share.rate) == (cap, 98_000.0 if cap > 50_000 else 87_999.0)


def test_another_limit_before_any_throttle_is_aimed_at_as_the_first() -> None:
    share = KnownShare(LIMIT)
    share.change(50_000.0, 0)
    assert (share.rate, share._cap, share._before, share.learnt) == (49_000.0, 49_000.0, 49_000.0, None)


# A claim


class Claimed:
    """Claims what it is told, and remembers what it was asked."""

    def __init__(self, part: float) -> None:
        self.part, self.every_ms = part, 123.0
        self.asked: list[tuple[float, ...]] = []
        self.shifts: list[int] = []

    def on_throttle(self, *what: float) -> None:
        self.asked.append(what)

    def rebase(self, shift_ms: int) -> None:
        self.shifts.append(shift_ms)


def test_a_claim_is_told_what_was_ours_and_what_would_have_been_and_is_the_least_that_is_sent() -> None:
    for part, rate in ((0.0, 32_000.0), (0.3, 32_000.0), (0.4, 40_000.0)):
        share = share_of(64_000.0)
        claim = Claimed(part)
        share._claim = claim  # type: ignore[assignment]
        share.on_throttle(400_000, 9_000, 1_000, 60_000)
        assert claim.asked == [pytest.approx((1_000, 0.4, 0.64, 60_000))]
        assert share.rate == pytest.approx(rate)
        assert share.every_ms == 123.0


# Another clock


def played(begin_ms: int, shift_at: int | None, shift_ms: int) -> list[float]:
    """Rates of a life of throttles and growth, whose clock jumps once."""
    share = KnownShare(LIMIT)
    share._claim._ended_ms += begin_ms
    share._grown_at_ms = share._hold_until_ms = share._quiet_since_ms = begin_ms
    rates = []
    moved = 0
    for step in range(120):
        if step == shift_at:
            share.rebase(shift_ms)
            moved = shift_ms
        now_ms = begin_ms + 200 * step + moved
        if step % 9 == 4 and step < 60:
            share.on_throttle(300_000 + 1_000 * step, 10_000, 100 + 40 * (step % 7), now_ms)
        share.on_late_count(10 * step, now_ms)
        share.grow(now_ms, busy=True)
        rates.append(share.rate)
    return rates


@pytest.mark.parametrize("shift_at", [0, 3, 5, 17, 61, 90])
@pytest.mark.parametrize("shift_ms", [-7_000, 1, 50_000])
def test_a_clock_that_jumps_changes_nothing(shift_at: int, shift_ms: int) -> None:
    usual = played(100_000, None, 0)
    assert len(set(usual)) > 50
    assert played(100_000, shift_at, shift_ms) == usual


def test_a_clock_that_jumps_moves_the_claim_too_and_nothing_that_was_not() -> None:
    share = KnownShare(LIMIT)
    claim = Claimed(0.0)
    share._claim = claim  # type: ignore[assignment]
    share.rebase(-5)
    assert claim.shifts == [-5]
    times = ("_begun_at_ms", "_grown_at_ms", "_hold_until_ms", "_quiet_since_ms")
    assert [state(share)[name] for name in times] == [None, -5, -5, -5]
    share.grow(10, busy=True)
    share.rebase(100)
    assert [state(share)[name] for name in times] == [110, 110, 95, 95]


def test_who_has_four_times_as_much_yields_twice_as_large_a_part_and_regains_half_as_large_a_one() -> None:
    rich, poor = share_of(64_000.0), share_of(16_000.0)
    for share, left in ((rich, 1 - 0.2 * 0.8), (poor, 1 - 0.2 * 0.4)):
        before = share.rate
        share.on_throttle(10_000, 10_000, 300, 0)
        assert share.rate == pytest.approx(before * left, rel=1e-12)
        before = share.rate
        share.grow(1_300, busy=True)
        assert share.rate - before == pytest.approx(1_600 * sqrt(before / LIMIT), rel=1e-9)
