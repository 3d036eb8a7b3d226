"""What a broker's pace makes of bytes, answers and throttles, number by number."""

from typing import Any

import pytest

from kclient_quota.pacing.fetching.fetch_broker import BrokerPace
from tests.unit.pacing.test_fetch_broker_edges import LIMIT, Told, facts, learnt, pace_of, told


def received(pace: BrokerPace) -> list[tuple[int, float]]:
    return list(pace.window._events)


# Bytes and answers


def test_the_first_count_is_where_counting_begins() -> None:
    pace, calls = told(_refused=True)
    pace.on_received(5_000, 0, 100)
    assert (pace.received_bytes, pace._responses, pace._seen_at_ms, pace._refused, pace._begun) == (
        5_000, 0, 100, True, False
    )  # fmt: skip
    assert received(pace) == calls == []
    pace.on_received(5_000, 1, 200)
    assert (pace.batch, pace._refused, pace._begun) == (0.0, False, False)
    assert received(pace) == []
    assert calls == [("free", 200)]
    pace.on_received(5_001, 2, 300)
    assert (pace.batch, pace._begun) == (1.0, True)
    assert received(pace) == [(300, 1)]
    assert calls == [("free", 200), ("free", 300), ("late", 1, 300)]


def test_a_count_that_goes_back_is_another_connections() -> None:
    pace = pace_of(received_bytes=5_000, _responses=8)
    pace.on_received(4_999, 9, 100)
    assert (pace.received_bytes, pace.batch, received(pace)) == (4_999, 0.0, [])
    pace.on_received(7_000, 3, 200)
    assert (pace.batch, pace._responses, received(pace)) == (2_001.0, 3, [(200, 2_001)])


@pytest.mark.parametrize(
    ("before", "nbytes", "answered", "batch", "late"),
    [
        (0.0, 30_000, 3, 10_000.0, 0),
        (0.0, 900, 1, 900.0, 0),
        (0.0, 1_000, 0, 0.0, 0),
        (0.0, 1_001, 0, 1_001.0, 0),
        (0.5, 1_001, 0, 1_001.0, 1),
        (10_000.0, 20_000, 2, 10_000.0, 0),
        (10_000.0, 9_500, 1, 9_500.0, 0),
        (10_000.0, 8_000, 1, 8_750.0, 0),
        (10_000.0, 5_000, 1, 8_750.0, 0),
        (10_000.0, 4_999, 1, 8_750.0, 0),
        (10_000.0, 1_001, 1, 8_750.0, 0),
        (10_000.0, 1_000, 1, 10_000.0, 0),
        (10_000.0, 9_999, 2, 8_750.0, 0),
        (10_000.0, 12_000, 0, 12_000.0, 1),
        (10_000.0, 5_000, 0, 8_750.0, 1),
        (10_000.0, 4_999, 0, 10_000.0, 0),
        (10_000.0, 12_000, -1, 12_000.0, 1),
        (1_000.0, 1_000, 0, 1_000.0, 0),
        (1_000.0, 1_001, 0, 1_001.0, 1),
    ],
)
def test_what_a_batch_is_after_so_many_bytes_in_so_many_answers(
    before: float, nbytes: int, answered: int, batch: float, late: int
) -> None:
    pace = pace_of(batch=before, received_bytes=100, _responses=5)
    pace.on_received(100 + nbytes, 5 + answered, 50)
    assert pace.batch == pytest.approx(batch)
    assert pace._late_data == late
    assert received(pace) == [(50, nbytes)]


@pytest.mark.parametrize(
    ("expected_ms", "came_ms"), [(100, 250), (250, 250), (251, 251), (400, 400), (500, 500), (501, 500), (900, 500)]
)
def test_what_was_expected_counts_from_then_on_but_not_before_the_last_look_nor_after_this_one(
    expected_ms: int, came_ms: int
) -> None:
    pace = pace_of()
    pace.on_received(0, 0, 250)
    pace.window.expect(9_000, expected_ms)
    pace.on_received(10_000, 1, 500)
    assert received(pace) == [(came_ms, 10_000)]
    assert pace.window.expected is None


def test_what_is_too_little_for_a_batch_is_not_what_was_expected() -> None:
    pace = pace_of(batch=10_000.0, received_bytes=0)
    pace.window.expect(9_000, 100)
    pace.on_received(1_000, 1, 500)
    assert received(pace) == [(500, 1_000)]
    assert pace.window.expected == (100, 9_000)


# Throttles


@pytest.mark.parametrize(
    ("throttle_ms", "until_ms", "hold_ms"),
    [(1, 5_001, 5_001), (9_999, 14_999, 14_999), (10_000, 15_000, 15_000), (10_001, 15_001, 15_000)],
)
def test_a_throttle_mutes_until_it_is_over_and_holds_for_a_window_at_most(
    throttle_ms: int, until_ms: int, hold_ms: int
) -> None:
    pace = pace_of(now_ms=400)
    pace.on_throttle(throttle_ms, 5_000)
    assert (pace.throttled_until_ms, pace._hold_until_ms, pace._at_ms, pace._refused) == (
        until_ms, hold_ms, until_ms, True
    )  # fmt: skip
    assert received(pace) == [(5_000, 0)]
    unknown = pace_of(None, now_ms=400)
    unknown.on_throttle(throttle_ms, 5_000)
    assert (unknown.throttled_until_ms, unknown._hold_until_ms, unknown._at_ms) == (until_ms, hold_ms, 400)
    assert unknown.refused_ms(5_000) == hold_ms - 5_000


def test_a_shorter_one_leaves_what_is_longer_but_holds_for_itself() -> None:
    pace = pace_of()
    pace.on_throttle(900, 0)
    pace.on_throttle(100, 10)
    assert (pace.throttled_until_ms, pace._hold_until_ms, pace._at_ms) == (900, 110, 900)


def test_time_that_the_broker_takes_is_not_made_up_for() -> None:
    pace = pace_of(_begun=True)
    pace.share = Told()  # type: ignore[assignment]
    pace.on_throttle(200, 0)
    assert pace.settle(0.0, 100) == 0.0
    assert pace.settle(0.0, 200) == 0.0
    assert pace.settle(0.0, 201) == pytest.approx(90)


def test_the_share_is_told_what_was_ours_and_the_fetch_that_was_refused() -> None:
    pace, calls = told(batch=3_000.0)
    pace.window.received(20_000, 1_000)
    pace.on_throttle(400, 1_500, most_bytes=7_000)
    assert calls == [(23_000, 10_500, 400, 1_500, 3_000, 7_000)]
    assert received(pace) == [(1_000, 20_000), (1_500, 0)]


def test_what_was_expected_is_the_fetch_that_was_refused_and_is_looked_at_again() -> None:
    for expected_ms, again_ms in ((1_200, 1_600), (1_500, 1_900), (1_501, 1_900), (9_000, 1_900)):
        pace, calls = told(batch=3_000.0)
        pace.window.received(20_000, 1_000)
        pace.window.expect(4_000, expected_ms)
        pace.on_throttle(400, 1_500)
        assert calls == [(24_000, 10_500, 400, 1_500, 3_000, 0)]
        assert received(pace) == [(1_000, 20_000)]
        assert pace.window.expected == (again_ms, 4_000)


def test_who_is_not_trusted_tells_the_share_nothing_and_else_all() -> None:
    found: list[dict[str, Any]] = []
    for trusted in (True, False):
        pace, calls = told(batch=3_000.0)
        pace.on_throttle(400, 1_500, trusted=trusted)
        assert len(calls) == trusted
        assert received(pace) == [(1_500, 0)]
        found.append(facts(pace))
    assert found[0] == found[1]


def test_a_refusal_ends_with_the_next_answer() -> None:
    pace = learnt()
    pace.on_throttle(400, 100)
    found = [pace.is_refused]
    for number, answers in enumerate((0, 1), 1):
        pace.on_received(21 * number, answers, 100 * number)
        found.append(pace.is_refused)
    assert found == [True, True, False]
    assert pace.share.limit is None
    assert pace_of().share.limit == LIMIT
