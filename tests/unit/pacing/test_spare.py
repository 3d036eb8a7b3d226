"""Nearly all of a large quota may be used without passing the queue, and no more than that however callers hurry."""

import pytest

from kclient_quota.pacing.spare import BESIDE_OTHERS, LEAST_RATE, PART, Spare

RATE = 40_000_000.0
SECOND = PART * RATE
WINDOW_S = 10
"""Bytes a second are counted over at least so long."""


def spare_of(rate: float | None, members: int = 1) -> Spare:
    spare = Spare()
    spare.set_limit(rate, members)
    return spare


def used(spare: Spare, seconds: int, *, raw_for_wire: float = 1.0, brokers: int = 1) -> float:
    """What the busiest broker counts of callers who take all that they may, told of once a second by librdkafka."""
    wire = raw = unsaid = 0.0
    for now_ms in range(0, 1_000 * seconds, 10):
        taken = spare.step(now_ms, 0, 0, may=True)
        wire += taken / raw_for_wire / brokers
        raw += taken
        unsaid += taken
        if now_ms % 1_000 == 990:
            spare.on_sent(round(unsaid), round(unsaid / raw_for_wire / brokers))
            unsaid = 0.0
    return wire


@pytest.mark.parametrize("limit", [None, LEAST_RATE - 1])
def test_small_quotas_are_left_to_the_queue(limit: float | None) -> None:
    assert spare_of(limit).step(0, 0, 0, may=True) == 0


@pytest.mark.parametrize("seconds", [10, 11, 20])
def test_the_broker_s_window_has_room_for_it(seconds: int) -> None:
    assert 0.9 * RATE * seconds < used(spare_of(RATE), seconds) <= RATE * max(seconds, WINDOW_S)


@pytest.mark.parametrize(("raw_for_wire", "brokers"), [(5.0, 1), (1.0, 3), (4.0, 3), (0.4, 1)])
def test_it_is_the_busiest_broker_s_wire_that_counts(raw_for_wire: float, brokers: int) -> None:
    """Messages that compress are more, those on three brokers as well; small ones, each in a frame, are fewer."""
    spare = spare_of(RATE)
    used(spare, 10, raw_for_wire=raw_for_wire, brokers=brokers)
    wire = taken = 0.0
    for now_ms in range(10_000, 30_000, 10):
        more = spare.step(now_ms, 0, 0, may=True)
        taken += more
        wire += more / raw_for_wire / brokers
        if now_ms % 1_000 == 990:
            spare.on_sent(round(taken), round(taken / raw_for_wire / brokers))
            taken = 0.0
    assert wire == pytest.approx(SECOND * 20, rel=0.05)


def test_data_that_no_longer_compresses_are_paid_for_once_they_are_on_the_wire() -> None:
    spare = spare_of(RATE)
    used(spare, 10, raw_for_wire=4.0)
    raw = spare.step(10_000, 0, 0, may=True)
    spare.on_sent(round(raw), round(raw))
    assert spare.step(10_010, 0, 0, may=True) == 0
    assert spare.step(10_400, 0, 0, may=True) == 0


def test_all_that_data_have_taken_beyond_what_was_reckoned_is_owed() -> None:
    """The broker counts it for ten seconds; after one, as much went past the queue again, into a throttle."""
    spare = spare_of(10_000_000)
    spare.step(0, 0, 0, may=True)
    spare.on_sent(1_000_000, 46_000_000)  # 45 MB more: five seconds of nine tenths of the quota
    assert next(now_ms for now_ms in range(500, 8_000, 500) if spare.step(now_ms, 0, 0, may=True)) == 5_000


def test_what_was_sent_without_messages_says_nothing_of_their_cost() -> None:
    spare = spare_of(RATE)
    spare.on_sent(0, 500)
    assert spare.step(0, 0, 0, may=True) == SECOND


def test_what_is_not_used_does_not_pile_up() -> None:
    spare = spare_of(RATE)
    left = spare.step(0, 0, 0, may=True)
    assert spare.step(600_000, left, 0, may=True) == SECOND


def test_who_has_used_it_up_passes_the_queue_until_half_of_it_is_there_again() -> None:
    spare = spare_of(RATE)
    spare.step(0, 0, 0, may=True)
    assert spare.step(10, -1_000_000, 0, may=True) == 0
    assert spare.step(400, 0, 0, may=True) == 0
    assert spare.step(600, 0, 0, may=True) >= SECOND / 2


def test_what_passes_the_queue_is_taken_from_it() -> None:
    spare = spare_of(RATE)
    spare.step(0, 0, 0, may=False)
    for now_ms in range(100, 20_000, 100):
        spare.step(now_ms, 0, int(RATE / 10), may=False)
    assert spare.step(20_000, 0, 0, may=True) == 0


def test_while_something_could_be_overtaken_nothing_is_given() -> None:
    spare = spare_of(RATE)
    assert spare.step(0, 0, 0, may=False) == 0
    assert spare.step(10, 0, 0, may=True) == SECOND


def test_producers_of_one_quota_share_it() -> None:
    assert spare_of(RATE, 4).step(0, 0, 0, may=True) == SECOND / 4


def test_beside_others_it_is_half() -> None:
    """From the next moment on; what was there stays until it is used."""
    spare = spare_of(RATE)
    assert spare.step(0, 0, 0, may=True) == SECOND
    spare.set_limit(RATE, 1, is_alone=False)
    assert spare.step(10_000, 0, 0, may=True) == BESIDE_OTHERS * RATE
