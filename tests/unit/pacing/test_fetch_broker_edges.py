"""One broker's pace, number by number: 100,000 B/s, of which 99,000 are aimed at."""

from math import inf
from typing import Any

import pytest

from kclient_quota.pacing.fetch_window import FetchWindow
from kclient_quota.pacing.fetching.fetch_broker import BrokerPace
from kclient_quota.pacing.neighbours import Need, Part

LIMIT = 100_000.0


def pace_of(
    limit: float | None = LIMIT, now_ms: int = 0, window: FetchWindow | None = None, **state: Any
) -> BrokerPace:
    pace = BrokerPace(limit, window or FetchWindow(11, 1_000), now_ms)
    for name, value in state.items():
        setattr(pace, name, value)
    return pace


def learnt(rate: float = 10_000.0, **state: Any) -> BrokerPace:
    pace = pace_of(None, **state)
    pace.share._share.rate = rate
    return pace


def facts(pace: BrokerPace) -> dict[str, Any]:
    return {name: value for name, value in vars(pace).items() if name not in {"share", "window"}}


class Told:
    """A share that notes what it is told, and has a limit and a rate."""

    def __init__(self, limit: float | None = LIMIT, rate: float = 90_000.0) -> None:
        self.limit, self.rate, self.ceiling = limit, rate, inf if limit is None else limit
        self.calls: list[tuple[Any, ...]] = []

    def grow(self, now_ms: int, *, busy: bool) -> None:
        self.calls.append(("grow", now_ms, busy))

    def is_alone(self, now_ms: int) -> bool:
        return False

    def on_free(self, now_ms: int) -> None:
        self.calls.append(("free", now_ms))

    def rebase(self, shift_ms: int) -> None:
        self.calls.append(("rebase", shift_ms))

    def on_late_count(self, own_bytes: float, now_ms: int) -> None:
        self.calls.append(("late", own_bytes, now_ms))

    def on_throttle(self, *what: float, refused: float, most_refused: float) -> None:
        self.calls.append((*what, refused, most_refused))

    def set_limit(self, limit: float | None) -> None:
        self.calls.append(("limit", limit))

    def scale(self, limit: float) -> None:
        self.calls.append(("scale", limit))


class Asked(FetchWindow):
    """Notes what it is asked."""

    def fits_at_ms(self, nbytes: float, byte_rate: float, now_ms: int) -> int:
        self.asked = [(nbytes, byte_rate, now_ms)]
        return 4_321


def told(limit: float | None = LIMIT, rate: float = 90_000.0, **state: Any) -> tuple[BrokerPace, list[tuple[Any, ...]]]:
    share = Told(limit, rate)
    return pace_of(share=share, **state), share.calls


def test_a_pace_begins_when_it_is_made() -> None:
    assert facts(pace_of(now_ms=700)) == {
        "batch": 0.0,
        "received_bytes": None,
        "throttled_until_ms": 700,
        "_asked_at_ms": 700,
        "_at_ms": 700,
        "_begun": False,
        "_hold_until_ms": 700,
        "_late_data": 0,
        "_late_ms": 0,
        "_level": 0.0,
        "_part": 1.0,
        "_prefetched": None,
        "_refused": False,
        "_responses": 0,
        "_seen_at_ms": 700,
        "_uneven_until_ms": 700,
        "_untold": 0.0,
        "_waited_at_ms": 700,
        "_works_ms": 0,
        "_works_until_ms": 700,
    }


# Its rate


def test_who_learns_and_has_a_rate_is_refused_until_an_answer_comes() -> None:
    assert learnt(_refused=True).is_refused
    assert not learnt(_refused=False).is_refused
    assert not learnt(inf, _refused=True).is_refused
    assert not learnt(_refused=True, _late_data=2).is_refused
    assert not pace_of(_refused=True).is_refused
    pace = learnt(_hold_until_ms=500)
    assert [pace.refused_ms(now_ms) for now_ms in (0, 499, 500, 501)] == [500, 1, 0, 0]


@pytest.mark.parametrize(("limit", "bound"), [(100_000.0, 75_000), (1_000.0, 750)])
def test_batches_are_big_from_three_quarters_of_a_second_on(limit: float, bound: int) -> None:
    assert [pace_of(limit, batch=batch).big_batches for batch in (bound - 1, bound, bound + 1)] == [False, True, True]
    pace = pace_of(limit)
    pace.take(Part(limit / 2, 2), limit)
    assert pace.share.ceiling == limit / 2
    for batch, is_big in ((bound - 1, False), (bound, True)):
        pace.batch = batch
        assert pace.big_batches is is_big


def test_no_batch_is_big_as_long_as_nothing_is_known() -> None:
    assert not pace_of(None, batch=1e12).big_batches


@pytest.mark.parametrize(
    ("batch", "rate"),
    [
        (0.0, 99_000.0),
        (8_000.0, 99_000.0),
        (10_100.0, 99_000.0),
        (10_200.0, 100_000 * (10 / 10.102)),
        (50_000.0, 100_000 * (10 / 10.5)),
        (74_999.0, 100_000 * (10 / 10.74999)),
        (75_000.0, 99_000.0),
    ],
)
def test_batches_that_are_uneven_in_the_window_leave_room_for_one_more(batch: float, rate: float) -> None:
    assert pace_of(batch=batch).rate == pytest.approx(rate, rel=1e-12)


def test_the_less_a_window_is_long_the_more_uneven_are_batches() -> None:
    pace = pace_of(window=FetchWindow(4, 250), batch=10_000.0)
    assert pace.rate == pytest.approx(100_000 * (0.75 / 0.85), rel=1e-12)
    pace = pace_of(batch=40_000.0)
    pace.take(Part(50_000.0, 2), LIMIT)
    assert pace.rate == pytest.approx(50_000 * (10 / 10.4), rel=1e-12)


def test_a_rate_that_was_learnt_is_taken_as_it_is_unless_answers_come_late() -> None:
    for late, rate in ((0, 10_000.0), (1, 10_000.0), (2, inf), (3, inf)):
        assert learnt(batch=50_000.0, _late_data=late).rate == rate
    assert pace_of(_late_data=3).rate == pytest.approx(99_000)


# Taking


def test_before_anything_came_nothing_is_banked() -> None:
    pace = pace_of()
    assert [pace.settle(0.0, now_ms) for now_ms in (0, 1_000, 2_000)] == [0.0] * 3
    assert pace.settle(1_000.0, 2_100) == -1_000
    assert pace.settle(0.0, 2_200) == pytest.approx(8_900)
    assert pace.settle(500.0, 2_210) == pytest.approx(9_390)
    pace._part = 0.5  # of several, who cannot save much
    assert pace.settle(0.0, 10_000) == pytest.approx(29_700)
    assert pace.settle(10_000.0, 10_000) == pytest.approx(19_700)


def test_half_a_byte_taken_is_a_beginning() -> None:
    pace = pace_of()
    assert pace.settle(0.5, 0) == -0.5
    assert pace.settle(0.0, 10) == pytest.approx(989.5)


def test_what_came_lets_time_be_banked() -> None:
    pace = pace_of()
    pace.on_received(0, 0, 0)
    pace.on_received(1, 1, 10)
    assert pace.settle(0.0, 100) == pytest.approx(9_900)
    pace = pace_of()
    pace.on_received(0, 0, 0)
    pace.on_received(0, 1, 10)
    assert pace.settle(0.0, 100) == 0.0


def test_without_a_rate_a_level_is_none_and_nothing_is_remembered() -> None:
    pace = pace_of(None)
    before = facts(pace)
    assert pace.settle(1_000.0, 500) == inf
    assert facts(pace) == before


def test_time_goes_back_by_a_second_before_it_is_another() -> None:
    pace, calls = told(now_ms=5_000, _begun=True, _level=-700.0)
    assert pace.settle(0.0, 4_000) == -700
    assert calls == [("grow", 4_000, True)]
    assert (pace._asked_at_ms, pace._at_ms) == (4_000, 5_000)
    assert pace.settle(0.0, 5_001) == pytest.approx(-610)
    calls.clear()
    pace.window.received(1_000, 5_000)
    assert pace.settle(50.0, 4_000) == pytest.approx(-660)
    assert calls == [("rebase", -1_001), ("grow", 4_000, True)]
    assert pace.window.total(5_000) == 0
    times = ("throttled_until_ms", "_hold_until_ms", "_at_ms", "_seen_at_ms", "_asked_at_ms")
    assert [facts(pace)[name] for name in times] == [4_000] * 5
    assert pace._waited_at_ms == 5_000


def test_only_whose_level_is_below_all_that_can_be_saved_is_busy() -> None:
    for level, busy in ((26_999.0, True), (27_000.0, False), (27_001.0, False), (-1.0, True)):
        pace, calls = told(_begun=True, _level=level)
        pace.settle(0.0, 0)
        assert calls == [("grow", 0, busy)]


@pytest.mark.parametrize(
    ("level", "rate", "wait_ms"),
    [
        (1.0, 99_000, 0),
        (0.0, 99_000, 0),
        (-0.001, 99_000, 1),
        (-99.0, 99_000, 1),
        (-99.1, 99_000, 2),
        (-500.0, 50, 10_000),
    ],
)
def test_it_waits_until_nothing_is_owed(level: float, rate: float, wait_ms: int) -> None:
    pace, _ = told(rate=rate)
    pace._level = level
    assert pace.wait_ms() == wait_ms


# Sharing


def test_what_it_needs_is_what_came_in_the_window_and_whether_it_has_waited_lately() -> None:
    pace = pace_of(now_ms=10_000)
    pace.window.received(30_000, 10_000)
    pace.window.received(20_000, 10_500)
    pace.window.expect(5_000, 10_500)
    assert pace.need(10_500) == Need(waits=True, byte_rate=50_000_000 / 10_500, at_ms=10_500)
    assert [pace.need(at_ms).waits for at_ms in (6_999, 7_000, 7_001, 12_999, 13_000)] == [
        False,
        False,
        True,
        True,
        False,
    ]
    pace.on_wait(13_000)
    assert [pace.need(at_ms).waits for at_ms in (15_999, 16_000, 16_001)] == [True, False, False]


def test_of_another_limit_it_has_as_large_a_part() -> None:
    pace, calls = told()
    pace.set_limit(70_000.0)
    pace.take(Part(25_000.0, 4), 100_000.0)
    pace.set_limit(80_000.0)
    pace.set_limit(None)
    assert calls == [("limit", 70_000.0), ("scale", 25_000.0), ("limit", 20_000.0), ("limit", None)]


# What the queue holds


def test_what_the_queue_is_filled_with_is_paid_once() -> None:
    pace = pace_of(batch=2_000.0)
    pace.pay_prefetch(10_000)
    assert pace._level == -12_000
    pace.pay_prefetch(10_000)
    assert pace._level == -12_000
    pace.forget_batches()
    assert pace._level == 0
    pace.pay_prefetch(10_000)
    assert (pace._level, pace._prefetched) == (0, None)
    pace.batch = 1.0
    pace.pay_prefetch(10_000)
    assert pace._level == -10_001


@pytest.mark.parametrize("throttled_first", [True, False])
def test_what_the_queue_is_filled_with_is_not_waited_for_twice(throttled_first: bool) -> None:
    """A broker throttles for the first burst: a queue of 64 MB of the user's own stood still for twice its time."""
    pace = pace_of(batch=20_000.0)
    rate = pace.rate
    if throttled_first:
        pace.on_throttle(9_000, 0, trusted=False)
    pace.pay_prefetch(10 * rate - pace.batch)
    if not throttled_first:
        pace.on_throttle(9_000, 0, trusted=False)
    assert pace.settle(0.0, 9_900) < 0
    assert pace.settle(0.0, 10_000) == pytest.approx(0, abs=rate / 1_000)
    pace.settle(20_000.0, 10_000)
    pace.on_throttle(1_000, 10_000, trusted=False)  # for another burst: nothing of that is paid yet
    assert pace.settle(0.0, 11_000) == pytest.approx(-20_000, abs=rate / 1_000)


def test_nothing_is_paid_where_nothing_is_known_or_batches_are_spaced() -> None:
    for pace in (pace_of(None, batch=2_000.0), pace_of(batch=75_000.0)):
        pace.pay_prefetch(10_000)
        assert (pace._level, pace._prefetched) == (0, 0)


def test_of_another_client_counts_begin_anew() -> None:
    pace = pace_of(batch=2_000.0, received_bytes=5, _level=7.0, _responses=9, _prefetched=3.0, _late_data=1)
    before = facts(pace)
    pace.forget_batches()
    anew = {"batch": 0.0, "received_bytes": 0, "_level": 0.0, "_responses": 0, "_prefetched": None}
    assert facts(pace) == before | anew


def test_the_next_batch_fits_when_the_window_has_room_for_it_or_for_as_much_as_a_window_holds() -> None:
    assert pace_of(None, batch=1e9).fits_at_ms(777) == 777
    for shape, batch, found in (
        ((11, 1_000), 999_999.0, 999_999.0),
        ((11, 1_000), 1_000_001.0, 1_000_000.0),
        ((4, 250), 1_000_001.0, 75_000.0),
    ):
        window = Asked(*shape)
        assert pace_of(window=window, batch=batch).fits_at_ms(1_234) == 4_321
        assert window.asked == [(found, 100_000, 1_234)]
