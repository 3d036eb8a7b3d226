"""What a consumer's pacer grants, number by number: 100,000 B/s and broker, of which 99,000 are aimed at."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from kclient_quota.pacing.fetching.fetch import FetchPacer
from kclient_quota.pacing.fetching.fetch_sizes import FetchSizes
from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics

LIMIT = 100_000.0
SIZES = FetchSizes(1, 10_000)
THRESHOLD = 13_010
"""1.3 times the queue and a message of ten bytes."""


def pacer_of(limit: float | None = LIMIT, brokers: int = 0, *, neighbours: Any = None, **state: Any) -> FetchPacer:
    """One whose messages have come and whose accounts are even."""
    pacer = FetchPacer(limit, SIZES, 0, neighbours=neighbours)
    if brokers:
        pacer.on_statistics(
            FetchStatistics(0, 0, 0, {}, {("t", number): number for number in range(1, brokers + 1)}),
        )
        pacer._wire_seen = None
    for pace in pacer.paces.values():
        pace._begun = True
    for name, value in state.items():
        setattr(pacer, name, value)
    return pacer


def level(pacer: FetchPacer, value: float, node: int = -1) -> FetchPacer:
    pacer.paces[node]._level = value
    return pacer


def waited(pacer: FetchPacer) -> dict[int, int]:
    return {node: pace._waited_at_ms for node, pace in pacer.paces.items()}


def facts(pacer: FetchPacer) -> dict[str, Any]:
    return {name: value for name, value in vars(pacer).items() if name not in {"_paces", "_sizes"}}


def test_before_anything_is_known_there_is_one_account() -> None:
    pacer = FetchPacer(LIMIT, SIZES, 700)
    assert facts(pacer) == {
        "_blind_at_ms": None,
        "_dealt_at_ms": 200,
        "_fetching": True,
        "_followed": False,
        "_is_guessed": False,
        "_is_torn": False,
        "_learnt_from": 0.0,
        "_limit": LIMIT,
        "_looked_at_ms": 700,
        "_message": 10.0,
        "_most_sharers": 1,
        "_most_unpolled_ms": 5_000,
        "neighbours": None,
        "_queued": 0.0,
        "_queued_before": 0.0,
        "_ratio": 1.0,
        "_taken": 0.0,
        "_window": (11, 1_000),
        "_wire": 0.0,
        "_wire_seen": None,
        "leaders": {},
    }
    assert list(pacer.paces) == [-1]
    (pace,) = pacer.paces.values()
    assert (pace.received_bytes, pace._at_ms, pace.share.limit, pace.window.samples) == (0, 700, LIMIT, 11)
    assert (pacer.queued_bytes, pacer.message_bytes, pacer.big_batches, pacer.paced) == (0, 10, False, True)


def test_a_window_is_what_it_is_told_to_be() -> None:
    pacer = FetchPacer(LIMIT, SIZES, 0, samples=4, window_ms=250)
    pacer.on_statistics(FetchStatistics(0, 0, 0, {}, {("t", 0): 1, ("t", 1): 2}))
    assert [(pace.window.samples, pace.window.window_ms) for pace in pacer.paces.values()] == [(4, 250)] * 2


# What is told of it


def test_what_the_queue_holds_is_no_less_than_nothing() -> None:
    for queued, found in ((-5.0, 0), (0.9, 0), (1.0, 1), (77.9, 77)):
        assert pacer_of(_queued=queued).queued_bytes == found


def test_a_message_is_told_in_bytes_of_a_grant() -> None:
    pacer = pacer_of(_ratio=0.25)
    pacer.on_messages(3_000, 4)
    assert pacer._message == 187.5
    assert pacer.message_bytes == 750


def test_one_broker_whose_batches_are_big_is_enough() -> None:
    pacer = pacer_of(brokers=2)
    assert not pacer.big_batches
    pacer.paces[2].batch = 75_000.0
    assert pacer.big_batches


def test_one_broker_that_limits_is_enough_to_be_paced() -> None:
    assert not pacer_of(None).paced
    pacer = pacer_of(None, brokers=2)
    assert not pacer.paced
    for rate in (12.0, 1e300):
        pacer.paces[2].share._share.rate = rate
        assert pacer.paced


@pytest.mark.parametrize(("queue_bytes", "byte_rate"), [(20_000, 1_000.0), (2_000_000, 100_000.0)])
def test_sizes_fit_where_they_can_hold_back_every_broker(queue_bytes: int, byte_rate: float) -> None:
    for limit, fits in ((byte_rate, True), (byte_rate * 0.999, False), (None, True)):
        assert FetchPacer(limit, FetchSizes(1, queue_bytes), 0).fits is fits
    pacer = FetchPacer(None, FetchSizes(1, queue_bytes), 0)
    for rate, fits in ((byte_rate, True), (byte_rate * 0.999, False), (byte_rate * 2, True)):
        pacer.paces[-1].share._share.rate = rate
        assert pacer.fits is fits
    pacer.on_statistics(FetchStatistics(0, 0, 0, {}, {("t", 0): 1, ("t", 1): 2}))
    pacer.paces[2].share._share.rate = 1.0
    assert not pacer.fits


def test_a_limit_that_is_shared_must_be_held_back_not_what_is_left_of_it() -> None:
    pacer = FetchPacer(1_000.0, FetchSizes(1, 20_000), 0)
    pacer.paces[-1].share._share.rate = 1.0
    assert pacer.fits


# Grants


@pytest.mark.parametrize(
    ("level_bytes", "granted"),
    [
        (0.0, 1.0),
        (0.5, 1.0),
        (1.0, 1.0),
        (1.5, 1.5),
        (3_000.0, 3_000.0),
        (9_899.0, 9_899.0),
        (9_900.5, 9_900.0),
        (20_000.0, 9_900.0),
    ],
)
def test_what_there_is_is_granted_up_to_a_tenth_of_a_second_s_worth(level_bytes: float, granted: float) -> None:
    assert level(pacer_of(), level_bytes).grant(0, {}) == pytest.approx((granted, 0))
    assert level(pacer_of(_ratio=0.5), level_bytes).grant(0, {}) == pytest.approx((2 * granted, 0))
    assert level(pacer_of(_ratio=2.0), level_bytes).grant(0, {}) == pytest.approx((max(granted / 2, 1), 0))


@pytest.mark.parametrize(
    ("taken", "ratio", "wait_ms"),
    [(0, 1.0, 0), (1, 1.0, 1), (98, 1.0, 1), (100, 1.0, 2), (9_850, 1.0, 100), (9_850, 0.5, 50), (9_850, 2.0, 199)],
)
def test_what_was_taken_is_paid_on_the_wire_and_waited_for(taken: int, ratio: float, wait_ms: int) -> None:
    pacer = pacer_of(_ratio=ratio)
    granted, found = pacer.grant(0, {-1: taken})
    assert (granted > 0, found) == (wait_ms == 0, wait_ms)
    assert pacer._taken == taken


def test_where_nothing_is_known_all_is_granted() -> None:
    assert pacer_of(None).grant(0, {-1: 1_000_000}) == (inf, 0)


def test_each_broker_is_paid_for_itself_and_only_those_that_are_owed_for_are_waited_for() -> None:
    pacer = pacer_of(brokers=4)
    pacer.paces[1]._level = pacer.paces[4]._level = 500.0
    taken = {1: 6_930, 2: 9_850 + 6_930, 3: 19_750 + 6_930, 4: 6_930, 9: 1_000_000}
    assert pacer.grant(70, taken) == (0.0, 200)
    assert waited(pacer) == {1: 0, 2: 70, 3: 70, 4: 0}
    assert pacer._taken == 1_057_320


def test_of_several_brokers_the_least_decides() -> None:
    pacer = pacer_of(brokers=2)
    pacer.paces[1]._level, pacer.paces[2]._level = 3_000.0, 2_000.0
    assert pacer.grant(0, {}) == (2_000, 0)
    pacer.paces[1]._level, pacer.paces[2]._level = 20_000.0, 30_000.0
    pacer.paces[2].batch = 50_000.0
    granted, wait_ms = pacer.grant(0, {})
    assert (granted, wait_ms) == pytest.approx((10_000 * (10 / 10.5), 0))
    assert waited(pacer) == {1: 0, 2: 0}


# While a fetch is refused


def refused(hold_ms: int = 400, brokers: int = 1, **state: Any) -> FetchPacer:
    pacer = pacer_of(None, brokers, **state)
    for number, pace in enumerate(pacer.paces.values()):
        pace.share._share.rate = 10_000.0
        pace._refused, pace._hold_until_ms, pace._level = True, hold_ms + 100 * number, 300.0
    return pacer


@pytest.mark.parametrize(
    ("queued", "granted", "wait_ms"),
    [
        (0.0, 0.0, 400),
        (THRESHOLD, 0.0, 400),
        (THRESHOLD + 0.5, 1.0, 0),
        (THRESHOLD + 2.0, 2.0, 0),
        (THRESHOLD + 299.0, 299.0, 0),
        (THRESHOLD + 301.0, 300.0, 0),
    ],
)
def test_while_a_fetch_is_refused_only_what_the_queue_holds_beyond_the_threshold_is_granted(
    queued: float, granted: float, wait_ms: int
) -> None:
    pacer = refused(_queued=queued)
    assert pacer.grant(0, {}) == pytest.approx((granted, wait_ms))
    assert waited(pacer) == {1: 0}


def test_when_the_shortest_refusal_is_over_one_byte_is_granted_to_look() -> None:
    for now_ms, found in ((399, (0.0, 1)), (400, (1.0, 0)), (450, (1.0, 0))):
        pacer = refused(brokers=2)
        assert pacer.grant(now_ms, {}) == found
        assert waited(pacer) == ({1: now_ms, 2: now_ms} if found[1] else {1: 0, 2: 0})
    pacer = refused(brokers=2)
    pacer.paces[2]._refused = False
    assert pacer.grant(0, {}) == (300, 0)


# Big batches


def big(
    queued: float, *, batch: float = 80_000.0, fetching: bool = True, message: float = 10.0, **state: Any
) -> FetchPacer:
    """One broker whose window has room for the next batch at 11,040 ms, when what came has left it."""
    pacer = pacer_of(_queued=queued, _fetching=fetching, _message=message, **state)
    pace = pacer.paces[-1]
    pace.batch, pace._level, pace._prefetched = batch, 3_000.0, 0.0
    pace.window.received(1_020_000, 0)
    return pacer


FITS_MS = 11_040


@pytest.mark.parametrize("fetching", [True, False])
@pytest.mark.parametrize(("beyond", "granted"), [(0.5, 1.0), (2.0, 2.0), (2_999.0, 2_999.0), (3_001.0, 3_000.0)])
def test_what_the_queue_holds_beyond_the_threshold_lets_no_fetch_out(
    fetching: bool, beyond: float, granted: float
) -> None:
    polls = 0 if fetching else FITS_MS // 1_000  # which take a message each until the next batch fits
    pacer = big(THRESHOLD + polls * 10 + beyond, fetching=fetching)
    pacer._sizes = replace(pacer._sizes, by_hand=True)
    assert pacer.grant(0, {}) == pytest.approx((granted, 0))
    if polls:
        assert big(THRESHOLD + polls * 10, fetching=fetching).grant(0, {}) == (0.0, FITS_MS)


def test_behind_a_fetch_that_is_on_its_way_all_that_is_queued_is_granted() -> None:
    assert big(THRESHOLD, fetching=True).grant(0, {}) == (3_000, 0)
    assert big(2_000.0, fetching=True).grant(0, {}) == (2_000, 0)
    assert big(5.0, fetching=True).grant(0, {}) == (5, 0)
    assert big(THRESHOLD, fetching=False).grant(0, {}) == (0.0, FITS_MS)
    assert big(2_000.0, fetching=False).grant(0, {}) == (0.0, FITS_MS)


def test_of_an_empty_queue_the_first_of_a_long_batch_is_granted() -> None:
    assert big(4.9).grant(0, {}) == (1.0, 0)
    assert big(-1.0).grant(0, {}) == (1.0, 0)
    assert big(4.9, fetching=False).grant(0, {}) == (0.0, FITS_MS)
    message = (80_000 - 13_000) / 2
    assert big(0.0, message=message).grant(0, {}) == (1.0, 0)
    assert big(0.0, message=message + 1).grant(0, {}) == (0.0, FITS_MS)
    assert big(0.0, message=message - 1).grant(0, {}) == (1.0, 0)


def test_it_waits_until_the_batch_fits_and_then_gives_a_byte() -> None:
    pacer = big(0.0, fetching=False)
    assert pacer.grant(1_000, {}) == (0.0, FITS_MS - 1_000)
    assert waited(pacer) == {-1: 1_000}
    assert pacer.grant(FITS_MS - 20, {}) == (0.0, 20)
    assert pacer.grant(FITS_MS, {}) == (1.0, 0)
    assert waited(pacer) == {-1: FITS_MS - 20}


def test_the_broker_whose_batch_fits_last_is_waited_for() -> None:
    pacer = pacer_of(brokers=2, _fetching=False)
    for node, nbytes in ((1, 0), (2, 1_020_000)):
        pacer.paces[node].batch, pacer.paces[node]._level = 80_000.0, 3_000.0
        pacer.paces[node].window.received(nbytes, 0)
    assert pacer.grant(0, {}) == (0.0, FITS_MS)
    assert waited(pacer) == {1: 0, 2: 0}
    assert pacer.grant(40, {}) == (0.0, FITS_MS - 40)
    assert waited(pacer) == {1: 40, 2: 40}


def test_the_longest_batch_is_what_may_be_held_back() -> None:
    for batches, found in (((80_000.0, 1_000.0), (1.0, 0)), ((1_000.0, 80_000.0), (1.0, 0))):
        pacer = pacer_of(brokers=2)
        for node, batch in enumerate(batches, 1):
            pacer.paces[node].batch, pacer.paces[node]._level = batch, 3_000.0
        assert pacer.grant(0, {}) == found


# The queue's length between two looks


def test_what_is_taken_leaves_the_queue() -> None:
    pacer = pacer_of(_queued=60_000.0, _fetching=False, _ratio=0.5)
    pacer.grant(0, {})
    assert (pacer._queued, pacer._taken) == (60_000, 0)
    pacer.grant(0, {-1: 20_000})
    assert (pacer._queued, pacer._taken, pacer._fetching) == (50_000, 20_000, False)
    pacer.grant(0, {-1: 80_000})
    assert (pacer._queued, pacer._taken, pacer._fetching) == (10_000, 100_000, False)
    pacer.grant(0, {-1: 2})
    assert (pacer._queued, pacer._taken, pacer._fetching) == (9_999, 100_002, True)


def test_what_comes_out_of_an_empty_queue_is_of_the_batch_that_was_fetched() -> None:
    for queued, fetching, left in ((4.9, True, 29_900.0), (5.0, True, -95.0), (0.0, False, -100.0)):
        pacer = pacer_of(_queued=queued, _fetching=fetching)
        pacer.paces[-1].batch = 30_000.0
        pacer.grant(0, {-1: 100})
        assert pacer._queued == left
        assert pacer._fetching is (left < 0)
    pacer = pacer_of(brokers=2, _queued=0.0, _ratio=0.5)
    pacer.paces[1].batch, pacer.paces[2].batch = 500.0, 30_000.0
    pacer.grant(0, {1: 100, 2: 100})
    assert pacer._queued == 29_900
    pacer = pacer_of(_queued=0.0)
    pacer.paces[-1].batch = 10_050.0
    pacer.grant(0, {-1: 51})
    assert (pacer._queued, pacer._fetching) == (9_999, True)


def test_only_of_big_batches_a_fetch_is_expected_and_once() -> None:
    pacer = pacer_of(brokers=2, _queued=10_000.0, _fetching=False)
    pacer.paces[1].batch, pacer.paces[2].batch = 74_999.0, 80_000.0
    pacer.grant(7, {1: 1})
    assert [pace.window.expected for pace in pacer.paces.values()] == [None, (7, 80_000)]
    pacer.grant(9, {1: 1})
    assert pacer.paces[2].window.expected == (7, 80_000)
