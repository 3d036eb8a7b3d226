"""The pacing law in exact numbers, one step at a time: a tenth of a second is 10,000 bytes, a millisecond 100."""

from math import inf

import pytest

from kclient_quota.errors import ConfigError
from kclient_quota.pacing.known_share import KnownShare
from kclient_quota.pacing.learnt_share import LearntShare
from kclient_quota.pacing.pacer import Pacer
from kclient_quota.quota.throttle import UNLIMITED
from tests.unit.pacing.told_pacer import ToldShare, still

T0 = 1_000_000


ENDLESS = float("inf")

# What is asked ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bank", "nbytes", "full_bytes", "at_ms"),
    [
        # what is to go must be there
        (1_000.0, 1_000, 0.0, 0),
        (999.0, 1_000, 0.0, T0 + 1),
        (0.0, 0, 0.0, 0),
        # and what the caller would send at once, up to a request's worth
        (500.0, 1_000, 1_000.0, T0 + 5),
        (0.0, 1_000, 3_000.0, T0 + 30),
        (0.0, 1_000, 3_001.0, T0 + 31),
        (0.0, 5_000, 3_000.0, T0 + 50),
        (-100.0, 1_000, 20_000.0, T0 + 101),
        (3_000.0, 1_000, 3_000.0, 0),
        # a lump of up to five requests is waited for; what is larger is paid back
        (0.0, 20_000, 1.0, T0 + 200),
        (0.0, 50_000, 1.0, T0 + 500),
        (0.0, 50_001, 1.0, T0 + 500),
        (0.0, 900_000, 0.0, T0 + 500),
    ],
)
def test_when_so_many_bytes_may_go(bank, nbytes, full_bytes, at_ms):
    pacer = still(bank=bank, waits=False)
    assert pacer.admit_at_ms(nbytes, T0, full_bytes=full_bytes) == at_ms
    assert pacer._waits
    pacer = still(bank=bank, wait_until_ms=T0 + 7_000)
    assert pacer.admit_at_ms(nbytes, T0, full_bytes=full_bytes) == T0 + 7_000
    pacer = still(bank=bank, wait_until_ms=T0 - 1)
    assert pacer.admit_at_ms(nbytes, T0, full_bytes=full_bytes) == (at_ms or T0 - 1)


@pytest.mark.parametrize(
    ("nbytes", "usual_pace", "wait_ms"),
    [(10_000, 50.0, 100), (10_001, 50.0, 201), (10_001, 1_000.0, 100), (20_000, 150.0, 134), (20_000, 200.0, 100)],
)
def test_what_takes_longer_than_a_request_is_waited_for_as_if_the_window_had_room(nbytes, usual_pace, wait_ms):
    assert still(usual_pace=usual_pace).admit_at_ms(nbytes, T0) == T0 + wait_ms


@pytest.mark.parametrize(("bank", "wait_ms"), [(0.0, 100), (-89_900.0, 999), (-90_000.0, 1_000), (-90_001.0, 1_000)])
def test_a_learnt_rate_is_asked_for_again_within_a_second(bank, wait_ms):
    assert still(None, bank=bank, usual_pace=1.0).admit_at_ms(1, T0, full_bytes=10_000) == T0 + wait_ms


def test_a_lump_that_was_wanted_is_banked_for():
    pacer = still()
    pacer.admit_at_ms(20_000, T0)
    assert (pacer._lump, pacer._ceiling) == (20_000, 23_000.0)
    pacer.admit_at_ms(20_000, T0)
    pacer.admit_at_ms(15_000, T0)
    assert (pacer._lump, pacer._ceiling) == (20_000, 23_000.0)
    pacer.admit_at_ms(70_000, T0)
    assert (pacer._lump, pacer._ceiling) == (50_000.0, 53_000.0)
    pacer._want_lump(1)
    assert (pacer._lump, pacer._ceiling) == (10_000.0, 53_000.0)


def test_what_may_be_on_its_way_and_in_one_request():
    pacer = still()
    assert (pacer.request_bytes, pacer.outstanding_bytes, pacer.rate(), pacer.usual_rate()) == (
        10_000,
        50_000.0,
        100_000.0,
        100_000.0,
    )
    assert (still(quantum=25_001.5).outstanding_bytes, still(quantum=25_001.5).request_bytes) == (50_003.0, 25_001)
    assert (still(quantum=0.5).request_bytes, still(quantum=2.5).request_bytes) == (1, 2)
    free = Pacer()
    assert (free.request_bytes, free.outstanding_bytes, free.rate(), free.usual_rate()) == (1_000_000, 16_384, inf, inf)


def test_what_the_share_says_is_told():
    pacer = still()
    pacer._share = ToldShare(limit=5.0, every_ms=7.0, learnt=3.0)
    assert (pacer.limit, pacer.every_ms, pacer._share.learnt) == (5.0, 7.0, 3.0)
    pacer.on_late_count(100, T0)
    assert pacer._share.heard == [("on_late_count", 100, T0)]
    assert pacer._bank == -100.0
    assert pacer._mirror.total(T0) == 100.0


@pytest.mark.parametrize(
    ("bank", "owed_ms"), [(1.0, 0), (0.0, 0), (-0.5, 1), (-1.0, 1), (-50.0, 1), (-51.0, 2), (-20_000.0, 400)]
)
def test_what_is_owed_takes_as_long_as_it_usually_does(bank, owed_ms):
    assert still(bank=bank, usual_pace=50.0).owed_ms(T0) == owed_ms
    assert still(bank=bank - 1_000.0, usual_pace=50.0).owed_ms(T0 + 10) == owed_ms
    assert still(bank=bank, pace=ENDLESS).owed_ms(T0) == 0


# The bank -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bank", "after_ms", "settled", "idle_since_ms"),
    [
        (0.0, 0, 0.0, None),
        (0.0, -1, 0.0, None),
        (0.0, 10, 1_000.0, None),
        (12_000.0, 9, 12_900.0, None),
        (12_000.0, 10, 13_000.0, T0 + 10),
        (12_000.0, 40, 13_000.0, T0 + 10),
        (14_000.0, 40, 14_000.0, T0 - 10),
    ],
)
def test_time_is_banked_up_to_a_ceiling(bank, after_ms, settled, idle_since_ms):
    pacer = still(bank=bank, waits=False)
    assert pacer._settle(T0 + after_ms) == pacer._bank == settled
    assert (pacer._at_ms, pacer._idle_since_ms) == (T0 + max(after_ms, 0), idle_since_ms)
    pacer = still(bank=bank, waits=False, idle_since_ms=5.0)
    pacer._settle(T0 + after_ms)
    assert pacer._idle_since_ms == 5.0


@pytest.mark.parametrize(
    ("bank", "waits", "wait_until_ms", "lump", "settled"),
    [
        (12_000.0, True, 0, 11_000.0, 14_000.0),
        (12_000.0, True, T0, 11_000.0, 14_000.0),
        (11_000.5, True, 0, 10_000.5, 13_000.5),
        (12_000.0, True, T0 + 1, 10_000.0, 13_000.0),
        (12_000.0, False, 0, 10_000.0, 13_000.0),
        (11_000.0, True, 0, 10_000.0, 13_000.0),
        (11_001.0, True, 0, 10_001.0, 13_001.0),
        (14_000.0, True, 0, 13_000.0, 16_000.0),
        (15_000.0, True, 0, 13_000.0, 16_000.0),
        (20_999.0, True, 0, 13_000.0, 20_999.0),
        (21_000.0, True, 0, 10_000.0, 21_000.0),
    ],
)
def test_who_comes_a_little_late_for_what_was_waited_for_may_bank_more(bank, waits, wait_until_ms, lump, settled):
    """Twenty milliseconds later 2,000 bytes more are there, 13,000 of which may be banked."""
    pacer = still(bank=bank, waits=waits, wait_until_ms=wait_until_ms)
    assert pacer._settle(T0 + 20) == settled
    assert pacer._lump == lump


def test_a_lump_does_not_shrink_for_who_comes_late():
    pacer = still(bank=23_000.0, lump=20_000.0, ceiling=23_000.0)
    pacer._settle(T0 + 20)
    assert (pacer._lump, pacer._ceiling) == (20_000.0, 23_000.0)


def test_a_lump_that_was_larger_than_five_requests_is_not_looked_at_before_it_is_there():
    pacer = still(bank=60_999.5, lump=60_000.0, ceiling=63_000.0)
    assert pacer._settle(T0 + 20) == 62_999.5
    assert pacer._lump == 60_000.0


def test_time_is_what_has_passed():
    pacer = still(at_ms=10)
    assert pacer._settle(25) == 1_500.0


def test_what_is_sent_leaves_the_bank_and_waits_no_more():
    pacer = still(bank=500.0, idle_since_ms=5.0)
    pacer.on_sent(2_000, T0 + 10)
    assert (pacer._bank, pacer._idle_since_ms, pacer._waits, pacer._at_ms) == (-500.0, None, False, T0 + 10)
    assert pacer._mirror.total(T0 + 10) == 2_000.0
    free = still(pace=ENDLESS, bank=500.0, idle_since_ms=5.0)
    free.on_sent(2_000, T0 + 10)
    assert (free._bank, free._idle_since_ms, free._waits, free._at_ms) == (500.0, 5.0, True, T0)
    assert free._mirror.total(T0 + 10) == 2_000.0
    assert free.measured_rate(T0 + 10) == 200.0


def test_slow_start_is_bounded():
    pacer = still(throttled_until_ms=T0 + 50)
    pacer.on_success(100, T0 + 49)
    assert (pacer._slow_start_bytes, pacer._share.heard) == (16_484.0, [])
    pacer.on_success(31_983_515, T0 + 50)
    assert (pacer._slow_start_bytes, pacer._share.heard) == (31_999_999.0, [("on_free", T0 + 50)])
    pacer.on_success(2, T0 + 51)
    assert pacer._slow_start_bytes == 32_000_000.0


def test_who_waits_for_the_end_of_a_throttle_is_not_idle():
    assert still()._idle_ms(T0) == 0.0
    assert still(idle_since_ms=T0 - 70.0)._idle_ms(T0) == 70.0
    assert still(idle_since_ms=T0 - 700_000.0)._idle_ms(T0) == 700_000.0
    assert still(idle_since_ms=T0 - 70.0, throttled_until_ms=T0 - 30)._idle_ms(T0) == 30.0


# Limits and throttles ---------------------------------------------------------------------------------------------


def test_a_limit_of_the_largest_number_is_none():
    assert isinstance(Pacer(UNLIMITED)._share, LearntShare)
    known = Pacer(UNLIMITED / 2)._share
    assert isinstance(known, KnownShare)
    with pytest.raises(ConfigError, match=r"a byte rate must be above 0, not 0; give None when there is no limit"):
        Pacer(0)
    assert Pacer(0.001).limit == 0.001


def test_another_limit_is_the_same_share_of_it():
    pacer = Pacer(1_000.0)
    share = pacer._share
    pacer.set_limit(2_000.0, T0)
    assert pacer._share is share
    assert pacer.limit == 2_000.0
    pacer.set_limit(None, T0)
    assert isinstance(pacer._share, LearntShare)
    pacer.set_limit(3_000.0, T0)
    assert pacer._share is not share
    assert (pacer.limit, pacer._at_ms, pacer._review_at_ms) == (3_000.0, T0, T0 + 100)


@pytest.mark.parametrize(("throttle_ms", "until_ms"), [(1, T0 + 1), (5, T0 + 5)])
def test_a_throttle_begins_anew(throttle_ms, until_ms):
    pacer = still(slow_start_bytes=5.0, idle_since_ms=5.0)
    pacer._mirror.record(700, T0 - 2_500)
    pacer.on_throttle(throttle_ms, T0)
    assert pacer._share.heard == [("on_throttle", 700.0, 10_500, throttle_ms, T0)]
    assert (pacer._throttled_until_ms, pacer._wait_until_ms, pacer.throttled_until_ms) == (until_ms,) * 3
    assert (pacer._slow_start_bytes, pacer._idle_since_ms) == (16_384.0, None)
    pacer = still(throttled_until_ms=T0 + 5, wait_until_ms=T0 + 9)
    pacer.on_throttle(throttle_ms, T0)
    assert (pacer._throttled_until_ms, pacer._wait_until_ms) == (T0 + 5, T0 + 9)


@pytest.mark.parametrize("throttle_ms", [0, -1])
def test_a_throttle_of_nothing_changes_nothing(throttle_ms):
    pacer = still(slow_start_bytes=5.0)
    pacer.on_throttle(throttle_ms, T0)
    assert (pacer._share.heard, pacer._slow_start_bytes) == ([], 5.0)
