"""What a pacer looks at every tenth of a second, in exact numbers: the rate, the lump, and what may be banked."""

from math import inf

import pytest

from kclient_quota.pacing.pacer import Pacer
from tests.unit.pacing.told_pacer import T0, ToldShare, still

ENDLESS = float("inf")


def exactly(number):
    return pytest.approx(number, rel=1e-12)


def applied(rate=100_000.0, limit=100_000.0, now_ms=T0, *, samples=11, window_ms=1_000, sent=(), share=None, **state):
    """A pacer with nothing banked and no lump that has just looked at its share."""
    pacer = Pacer(samples=samples, window_ms=window_ms)
    pacer._share = ToldShare(rate, limit, **(share or {}))
    told = {"pace": 100.0, "usual_pace": 100.0, "bank": 0.0, "at_ms": now_ms}
    for name, value in {**told, **state}.items():
        setattr(pacer, f"_{name}", value)
    for at_ms, nbytes in sent:
        pacer._mirror.record(nbytes, at_ms)
    pacer._apply_rate(now_ms)
    return pacer


# A first look -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "window_ms", "least_ms", "most_ms", "request_ms"),
    [
        (11, 1_000, 10_000, 12_000, 100.0),
        (6, 500, 2_500, 3_500, 25.0),
        (2, 700, 700, 2_100, 7.0),
        (1, 70, 70, 140, 0.7),
    ],
)
def test_what_a_window_is_known_to_be(samples, window_ms, least_ms, most_ms, request_ms):
    pacer = Pacer(samples=samples, window_ms=window_ms)
    assert (pacer._least_window_ms, pacer._most_window_ms) == (least_ms, most_ms)
    assert pacer._request_ms == exactly(request_ms)
    assert (pacer._mirror.samples, pacer._mirror.window_ms) == (samples, window_ms)
    known = Pacer(100_000.0, samples=samples, window_ms=window_ms)
    assert known.request_bytes == int(99.5 * request_ms)


def test_a_pacer_of_nothing_known():
    pacer = Pacer()
    zeros = ("quantum", "lump", "ceiling", "bank", "at_ms", "throttled_until_ms", "wait_until_ms")
    assert [getattr(pacer, f"_{name}") for name in zeros] == [0] * 7
    assert (pacer._pace, pacer._usual_pace, pacer._waits, pacer._idle_since_ms) == (inf, inf, False, None)
    assert (pacer._slow_start_bytes, pacer._mirror.samples, pacer._mirror.window_ms) == (16_384.0, 11, 1_000)
    assert pacer.admit_at_ms(10**9, T0) <= T0


def test_a_limit_is_paced_from_the_beginning():
    pacer = Pacer(100_000)
    assert pacer.rate() == pacer.usual_rate() == exactly(99_500.0)
    assert pacer._at_ms == 0
    assert (pacer._bank, pacer._lump, pacer._ceiling) == (0.0, exactly(9_950.0), exactly(12_935.0))


@pytest.mark.parametrize("now_ms", [0, 1, 59])
def test_a_clock_may_have_only_begun(now_ms):
    pacer = Pacer(100_000)
    assert pacer.admit_at_ms(9_900, now_ms, full_bytes=9_900.0) <= now_ms
    assert pacer._review_at_ms == now_ms + 100


def test_a_first_question_finds_a_request_s_worth():
    pacer = Pacer(100_000)
    assert pacer.admit_at_ms(1, T0) == 0
    assert (pacer._at_ms, pacer._review_at_ms, pacer._bank) == (T0, T0 + 100, exactly(9_950.0))
    usual = 99_500 - 9_950 / 11
    assert pacer.usual_rate() == exactly(usual)
    assert pacer.rate() == exactly(99_500 - (9_950 - 9_950 / 16) / 10)
    assert (pacer._quantum, pacer._lump) == (exactly(usual / 10), exactly(usual / 10))
    assert pacer._ceiling == exactly(pacer.rate() * 0.5)
    pacer.on_sent(20_000, T0)
    assert pacer.admit_at_ms(10_045, T0 + 99) > T0 + 99
    assert pacer._review_at_ms == T0 + 100
    pacer.admit_at_ms(1, T0 + 100)
    assert pacer._review_at_ms == T0 + 200


# When -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now_ms", "reviewed"), [(T0, False), (T0 + 499, False), (T0 + 500, True), (T0 - 1_000, True), (T0 - 999, False)]
)
def test_every_tenth_of_a_second_and_when_the_clock_jumps_back(now_ms, reviewed):
    asked = still(review_at_ms=T0 + 500)
    asked.admit_at_ms(1, now_ms)
    assert asked._review_at_ms == (now_ms + 100 if reviewed else T0 + 500)
    told = still(review_at_ms=T0 + 500)
    told.on_throttle(1, now_ms)
    assert told._review_at_ms == (now_ms + 100 if reviewed else T0 + 500)
    assert [each[0] for each in told._share.heard][-1] == "on_throttle"


@pytest.mark.parametrize("back_ms", [1_000, 5_000])
def test_all_that_is_remembered_jumps_with_the_clock(back_ms):
    pacer = still(throttled_until_ms=T0 + 7, wait_until_ms=T0 + 9, idle_since_ms=T0 - 3.0)
    pacer._mirror.record(500, T0 - 20)
    pacer._review(T0 - back_ms)
    assert pacer._share.heard[0] == ("rebase", -back_ms)
    assert (pacer._at_ms, pacer._throttled_until_ms) == (T0 - back_ms, T0 + 7 - back_ms)
    assert (pacer._wait_until_ms, pacer._idle_since_ms) == (T0 + 9 - back_ms, T0 - 3.0 - back_ms)
    assert pacer._mirror.opened_ms == T0 - 20 - back_ms
    busy = still()
    busy._review(T0 - back_ms)
    assert busy._idle_since_ms is None


@pytest.mark.parametrize(
    ("idle_since_ms", "busy"), [(None, True), (T0 - 499.5, True), (T0 - 500.0, False), (T0 - 501.0, False)]
)
def test_half_a_second_unused_is_idle(idle_since_ms, busy):
    pacer = still(idle_since_ms=idle_since_ms)
    pacer._review(T0)
    assert pacer._share.heard == [("grow", T0, busy)]


@pytest.mark.parametrize(("bank", "settled"), [(-1_000.0, -300.0), (-300.0, -300.0), (-299.0, -299.0), (40.0, 40.0)])
def test_what_the_window_has_forgotten_is_not_paid_back(bank, settled):
    pacer = still(bank=bank)
    pacer._mirror.record(300, T0 - 5_000)
    pacer._review(T0)
    assert pacer._bank == settled


def test_without_a_rate_time_goes_by():
    pacer = still(pace=ENDLESS, bank=-70.0)
    pacer._share.rate = ENDLESS
    pacer._review(T0 + 30)
    assert (pacer._at_ms, pacer._bank, pacer._waits) == (T0 + 30, -70.0, False)
    assert pacer._pace == pacer._usual_pace == inf


# The rate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "pace", "usual"),
    [(98_000.0, 99.5, 99.5), (97_999.0, 97.999, 97.999), (50_000.0, 50.0, 50.0), (0.5, 0.001, 0.0005)],
)
def test_who_has_all_of_a_limit_aims_closer_at_it(rate, pace, usual):
    pacer = applied(rate)
    assert pacer._pace == exactly(pace)
    assert pacer._usual_pace == exactly(usual)


def test_a_learnt_rate_is_taken_as_it_is():
    pacer = applied(0.5, None, sent=[(T0, 10**9)])
    assert (pacer._pace, pacer._usual_pace, pacer._wait_until_ms) == (0.0005, 0.0005, 0)


def test_a_lump_at_both_ends_of_a_window_is_left_room_for():
    assert applied(lump=22_000.0)._usual_pace == exactly(99.5 - 2.0)
    assert applied(lump=50_000.0)._usual_pace == exactly(99.5 - 50 / 11)
    assert applied(lump=70_000.0)._usual_pace == exactly(99.5 - 50 / 11), "five requests are the largest"
    assert applied(50_000.0, lump=22_000.0)._usual_pace == exactly(50.0)
    assert applied(lump=22_000.0, samples=6, request_ms=100.0)._usual_pace == exactly(99.5 - 22 / 6)


def test_what_is_banked_and_no_part_of_a_lump_is_paid_back_within_ten_seconds():
    assert applied(80_000.0, lump=16_000.0, bank=201_000.0)._pace == exactly(79.5)
    assert applied(80_000.0, lump=16_000.0, bank=196_000.0)._pace == exactly(80.0)
    assert applied(80_000.0, lump=0.0, bank=-5.0)._pace == exactly(80.0)


@pytest.mark.parametrize(("nbytes", "wait_until_ms", "pace"), [(994_999.9995, 0, 0.001), (995_000, T0 + 100, 0.001)])
def test_while_the_window_has_no_room_nothing_goes_for_a_tenth_of_a_second(nbytes, wait_until_ms, pace):
    """Ten seconds ago: the window is as long, in which there is room for 995,000 bytes."""
    pacer = applied(sent=[(T0 - 10_000, nbytes)])
    assert pacer._wait_until_ms == wait_until_ms
    assert pacer._usual_pace == exactly(99.5)
    assert pacer._pace == exactly(pace)


def test_the_end_of_a_throttle_is_waited_for_where_that_is_later():
    sent = [(T0 - 10_999, 2_000_000)]
    assert applied(sent=sent, throttled_until_ms=T0 + 70)._wait_until_ms == T0 + 100
    assert applied(sent=sent, throttled_until_ms=T0 + 170)._wait_until_ms == T0 + 170


@pytest.mark.parametrize(
    ("samples", "told_ms", "request_ms"),
    [
        (11, 100.0, 100.0),
        (3, 100.0, 20.0),
        (3, 99.0, 20.0),
        (3, 101.0, 101.0),
        (3, 201.0, 200.0),
        (11, 999.0, 999.0),
        (11, 3_000.0, 1_000.0),
    ],
)
def test_a_request_is_a_hundredth_of_a_short_window_or_what_others_make_us_wait(samples, told_ms, request_ms):
    pacer = applied(samples=samples, share={"request_ms": told_ms})
    assert pacer._request_ms == exactly(request_ms)
    assert pacer._quantum == exactly(99.5 * request_ms)


@pytest.mark.parametrize(("rate", "quantum"), [(9_000_000.0, 900_000.0), (10_000_010.0, 1_000_000), (2e7, 1_000_000)])
def test_no_request_is_larger_than_a_megabyte(rate, quantum):
    assert applied(rate, 1e9)._quantum == quantum


@pytest.mark.parametrize(
    ("rate", "limit", "usual_before", "lump"),
    [
        (50_000.0, None, 100.0, 29_700.0),
        (50_000.0, 100_000.0, 50.0, 29_700.0),
        (50_000.0, 100_000.0, 100.0, 15_000.0),
        (50_000.0, 100_000.0, 50.6, 30_000.0 * 50 / 50.6),
        (50_000.0, 100_000.0, 1_000.0, 5_000.0),
    ],
)
def test_a_lump_fades_by_a_hundredth_or_with_what_was_given_up(rate, limit, usual_before, lump):
    pacer = applied(rate, limit, lump=30_000.0, usual_pace=usual_before, share={"is_whole": False})
    assert pacer._lump == exactly(lump)
    assert pacer._ceiling == exactly(lump + 1_500.0)


def test_a_lump_of_a_short_window_fades_faster():
    assert applied(50_000.0, None, lump=30_000.0, samples=3)._lump == exactly(28_500.0)


def test_a_rate_that_has_only_come_begins_with_nothing_banked():
    pacer = applied(pace=ENDLESS, usual_pace=ENDLESS, bank=700.0, at_ms=T0 - 50)
    assert (pacer._bank, pacer._at_ms) == (0.0, T0)
    assert applied(pace=ENDLESS, usual_pace=ENDLESS, at_ms=T0 + 50)._at_ms == T0 + 50
    pacer = applied(bank=700.0, at_ms=T0 - 50)
    assert (pacer._bank, pacer._at_ms) == (700.0, T0 - 50)


def test_what_is_banked_is_no_more_than_may_be():
    assert applied(50_000.0, None, bank=1e6, at_ms=T0)._bank == exactly(50.0 * 500)
    share = {"is_whole": False}
    assert applied(50_000.0, None, bank=1e6, share=share)._bank == exactly(6_500.0)


@pytest.mark.parametrize(
    ("is_whole", "throttled_until_ms", "every_ms", "ceiling"),
    [
        (True, T0 - 12_000, 0.0, 50_000.0),
        (True, T0 - 11_999, 0.0, 13_000.0),
        (False, T0 - 12_000, 0.0, 13_000.0),
        (True, T0 - 12_000, 501.0, 50_100.0),
        (True, T0 - 12_000, 499.0, 50_000.0),
        (False, 0, 130.0, 13_000.0),
        (False, 0, 131.0, 13_100.0),
    ],
)
def test_only_who_has_all_for_a_window_and_who_must_wait_for_long_make_up_for_much(
    is_whole, throttled_until_ms, every_ms, ceiling
):
    pacer = still(throttled_until_ms=throttled_until_ms)
    pacer._share = ToldShare(is_whole=is_whole, every_ms=every_ms)
    assert pacer._most_banked(T0) == exactly(ceiling)


def test_what_was_told_of_and_not_sent_leaves_the_window_and_may_go():
    pacer = Pacer(100_000)
    pacer.admit_at_ms(1, T0)
    pacer.on_sent(20_000, T0)
    bank = pacer._bank
    pacer.on_less(12_000, T0 + 50)
    assert pacer._mirror.total(T0 + 50) == 8_000
    assert pacer._bank == exactly(bank + 50 * pacer._pace + 12_000)
    pacer.on_less(1e6, T0 + 50)
    assert pacer._mirror.total(T0 + 50) == 0
    assert pacer._bank == pacer._ceiling
    free = Pacer()
    free.on_sent(300, T0)
    free.on_less(100, T0)
    assert (free._mirror.total(T0), free._bank) == (200, 0.0)
