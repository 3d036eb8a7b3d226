"""A limit that is still being asked for: some messages go, the others wait for the answer, but not for ever."""

from math import inf

import pytest

from kclient_quota.pacing.pacer import SLOW_START_BYTES, Pacer
from kclient_quota.pacing.sending.send_pace import ANSWER_ROOM_BYTES, SendPace
from kclient_quota.pacing.sending.throttle_told import Common

T0 = 1_000_000
ANSWER_MS = 3_000
BATCH = 1_000


def sent_until(pace, now_ms, until_ms):
    """Raw bytes that go until then, of all that may; each batch is delivered after 5 ms."""
    before = pace.granted
    while now_ms < until_ms:
        while not pace.wait_ms(BATCH, now_ms, 1) and pace.outstanding < 100 * BATCH:
            pace.on_granted(BATCH, now_ms)
        now_ms += 5
        pace.on_delivered(pace.outstanding, now_ms)
    return pace.granted - before


def pace_of(answer_ms=ANSWER_MS, common=None):
    return SendPace(Pacer(), linger_ms=5, common=common, answer_ms=answer_ms)


def test_little_goes_until_the_time_for_the_answer_is_over_and_then_all():
    pace = pace_of()
    assert SLOW_START_BYTES <= sent_until(pace, T0, T0 + ANSWER_MS) <= SLOW_START_BYTES + BATCH
    assert sent_until(pace, T0 + ANSWER_MS, T0 + ANSWER_MS + 500) > 1_000_000
    assert sent_until(pace_of(0), T0, T0 + 500) > 1_000_000


def test_little_may_come_meanwhile_but_as_much_as_it_will_while_nothing_is_reached():
    pace = pace_of()
    assert pace.room_bytes(1) == inf
    sent_until(pace, T0, T0 + 1_000)
    assert pace.room_bytes(1) == ANSWER_ROOM_BYTES
    assert pace.raw_in(20) == 0
    sent_until(pace, T0 + 1_000, T0 + ANSWER_MS + 50)
    assert pace.room_bytes(1) == inf


def test_who_is_refused_meanwhile_is_told_when_the_wait_is_over():
    pace = pace_of()
    assert pace.room_in_ms(BATCH, T0) == 1
    sent_until(pace, T0, T0 + 1_000)
    assert pace.room_in_ms(BATCH, T0 + 1_000) == ANSWER_MS - 1_000 + 5, "from the first delivery on"
    pace.set_limit(51_200, T0 + 1_000)
    assert pace.room_in_ms(BATCH, T0 + 1_000) < 1_000


def test_the_time_begins_with_the_first_delivery():
    pace = pace_of()
    pace.on_granted(BATCH, T0)
    assert pace.wait_ms(BATCH, T0 + 10, 1) > 0, "nothing is known to arrive"
    pace.on_delivered(BATCH, T0 + 60_000)
    assert sent_until(pace, T0 + 60_000, T0 + 60_000 + ANSWER_MS) <= SLOW_START_BYTES
    assert sent_until(pace, T0 + 60_000 + ANSWER_MS, T0 + 61_000 + ANSWER_MS) > 1_000_000


@pytest.mark.parametrize("limit", [51_200, None])
def test_the_answer_ends_it(limit):
    pace = pace_of()
    sent_until(pace, T0, T0 + 1_000)
    pace.set_limit(limit, T0 + 1_000)
    if limit is None:
        pace.let_go()
    sent = sent_until(pace, T0 + 1_000, T0 + 2_000)
    assert 0.5 * 51_200 < sent < 1.2 * 51_200 if limit else sent > 1_000_000


def test_so_does_a_throttle_which_says_more_than_no_answer():
    pace = pace_of()
    sent_until(pace, T0, T0 + 100)
    pace.on_throttle(500, T0 + 100)
    assert sent_until(pace, T0 + 700, T0 + 2_000) > 0


def test_what_is_to_go_first_goes():
    pace = pace_of()
    sent_until(pace, T0, T0 + 1_000)
    assert pace.wait_ms(BATCH, T0 + 1_000, 1) > 0
    assert pace.wait_ms(BATCH, T0 + 1_000) == 0, "that of a strict lane"
    pace.wait_ms(BATCH, T0 + ANSWER_MS + 10)
    assert pace.room_bytes(1) == inf, "what is strict may be all that there is"


def test_nobody_waits_anew_for_another_broker_or_for_who_comes_later():
    common = Common()
    sent_until(pace_of(common=common), T0, T0 + 2_000)
    later = pace_of(common=common)
    assert sent_until(later, T0 + 2_000, T0 + ANSWER_MS) <= SLOW_START_BYTES + BATCH
    assert sent_until(later, T0 + ANSWER_MS, T0 + ANSWER_MS + 500) > 1_000_000
    assert sent_until(pace_of(common=common), T0 + 60_000, T0 + 60_500) > 1_000_000


def test_a_clock_that_jumps_makes_nobody_wait_for_longer():
    for jump_ms in -3_600_000, 3_600_000:
        pace = pace_of()
        sent_until(pace, T0, T0 + 100)
        assert sent_until(pace, T0 + jump_ms, T0 + jump_ms + ANSWER_MS + 500) > 1_000_000
