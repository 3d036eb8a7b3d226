"""When the next batch may go, to the byte and the millisecond: the pacer says what it is told to."""

from math import inf

import pytest

from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.batch_cost import BatchCost
from kclient_quota.pacing.sending.send_pace import SendPace
from tests.unit.pacing.told_pacer import NotedCost, ToldPacer, come_and_gone, lump_ms_of, pace_of

T0 = 1_000_000
ENDLESS = float("inf")
NO_ROOM = -1e9
"""Bytes, below what any way adds."""


# The quota --------------------------------------------------------------------------------------------------------


def test_a_pace_that_has_heard_nothing():
    pace = SendPace(Pacer())
    assert (pace.granted, pace.outstanding, pace.stands_back, pace.waits_for_deliveries) == (0, 0, False, False)
    assert (pace.rate(), pace.wire_of(0), pace.throttled_for_ms(0), pace.wait_ms(1, 0)) == (inf, 151, 0, 0)


def test_a_pace_unless_told():
    """A second's delay, no lingering, five batches on their way, and nothing known of names."""
    pace = SendPace(ToldPacer(byte_rate=100.0))
    assert lump_ms_of(pace, 1) == pytest.approx(1_000.0)
    assert pace._most_outstanding() == 10_000.0
    pace.on_granted(1_000, T0, topic="orders")
    assert pace._cost.names_bytes == 60.0
    assert pace.granted == 1_000
    pace = SendPace(ToldPacer(byte_rate=1e9))
    come_and_gone(pace, 500, T0)
    assert lump_ms_of(pace, 1) == 100.0


@pytest.mark.parametrize(("at_ms", "wait_ms"), [(T0 - 1, 0), (T0, 0), (T0 + 1, 1), (T0 + 70, 70)])
def test_the_first_batch_goes_at_once_and_each_later_one_when_the_pacer_says(at_ms, wait_ms):
    pace, _ = pace_of(at_ms=at_ms)
    assert pace.wait_ms(1_000, T0) == 0
    come_and_gone(pace, 0, T0, raw_bytes=1)
    assert pace.wait_ms(1_000, T0) == wait_ms
    assert not pace.waits_for_deliveries


def test_a_throttle_is_waited_out_and_what_is_longer_counts():
    pace, pacer = pace_of(throttled_until_ms=T0 + 30)
    assert pace.wait_ms(1_000, T0) == 30
    come_and_gone(pace, 0, T0)
    pacer.at_ms = T0 + 70
    assert pace.wait_ms(1_000, T0) == 70
    pacer.throttled_until_ms = T0 + 71
    assert pace.wait_ms(1_000, T0) == 71


def test_the_pacer_is_asked_for_a_full_batch_where_batches_wait_to_be_full():
    pace, pacer = pace_of()
    pace.wait_ms(350, T0, 1)
    pace.wait_ms(350, T0, 4)
    pace.wait_ms(350, T0, 0)
    pace.wait_ms(350, T0)
    full = [pace._lump_bytes(places) + 150.0 for places in (1, 4, 0)]
    assert full[0] == 5_790.0
    assert pacer.heard == [("admit", 501, T0, bytes_) for bytes_ in (*full, 150.0)]


def test_who_stands_back_asks_no_pacer():
    pace, pacer = pace_of(throttled_until_ms=T0 + 30, at_ms=T0 + 70)
    pace.stands_back = True
    assert pace.wait_ms(1_000, T0) == 0
    assert pacer.heard == []


# What is on its way -----------------------------------------------------------------------------------------------


def test_until_the_first_delivery_one_batch_is_on_its_way():
    pace, _ = pace_of()
    pace.on_granted(1, T0)
    assert pace.wait_ms(1, T0) > 0
    assert pace.waits_for_deliveries
    pace.on_delivered(0, T0)
    assert pace.wait_ms(1, T0) > 0
    pace.on_delivered(1, T0)
    assert pace.wait_ms(1, T0) == 0
    assert not pace.waits_for_deliveries


def test_as_much_may_be_on_its_way_as_leaves_while_it_lingers_and_travels():
    """10,000 bytes, and 25 ms' worth: 12,500."""
    pace, _ = pace_of(linger_ms=5)
    come_and_gone(pace, 20, T0)
    pace.on_granted(2_350, T0 + 20)
    assert pace._most_outstanding() == 12_500.0
    assert pace.wait_ms(10_000, T0 + 20) == 0
    assert pace.wait_ms(10_001, T0 + 20) > 0
    assert pace.waits_for_deliveries
    assert pace.wait_ms(10_000, T0 + 20) == 0
    assert not pace.waits_for_deliveries


def test_without_a_limit_as_much_may_be_on_its_way_as_the_pacer_says():
    pace, _ = pace_of(None, byte_rate=ENDLESS, linger_ms=5)
    come_and_gone(pace, 20, T0)
    pace.on_granted(2_350, T0 + 20)
    assert pace.wait_ms(7_500, T0 + 20) == 0
    assert pace.wait_ms(7_501, T0 + 20) == 10


@pytest.mark.parametrize(
    ("raw_bytes", "rate", "wait_ms"),
    [
        (350, 100_000, 5),
        (349, 100_000, 4),
        (350, 100_001, 4),
        (849, 100_000, 9),
        (850, 100_000, 10),
        (950, 100_000, 10),
        (9, 1e6, 1),
    ],
)
def test_deliveries_are_looked_for_when_a_batch_could_have_left(raw_bytes, rate, wait_ms):
    pace, pacer = pace_of(byte_rate=rate)
    pace.on_granted(1_000, T0)
    pacer.heard.clear()
    assert pace.wait_ms(raw_bytes, T0) == wait_ms
    assert pacer.heard[1:] == [("on_sent", 0, T0)], "waiting is no idleness"


def test_where_nothing_limits_what_does_not_arrive_for_two_seconds_is_waited_for_no_longer():
    pace, pacer = pace_of(None, byte_rate=ENDLESS)
    pace.on_granted(1_000, T0)
    pace.on_granted(1_000, T0 + 500)
    pacer.heard.clear()
    assert pace.wait_ms(1, T0 + 1_999) == 10
    assert pace.waits_for_deliveries
    assert pace.wait_ms(1, T0 + 2_000) == 0
    assert pace.wait_ms(1, T0 + 9_000) == 0
    assert [told[0] for told in pacer.heard] == ["admit"] * 3
    pace.on_delivered(1_000, T0 + 2_100)
    pacer.outstanding_bytes = NO_ROOM
    assert pace.wait_ms(1, T0 + 4_099) == 10
    assert pace.wait_ms(1, T0 + 4_100) == 0


# How long a way is ------------------------------------------------------------------------------------------------


def ways(pace):
    return pace._way.ms, pace._way._nearest_ms, pace._way.last_ms


def test_a_way_that_is_longer_is_believed_in_by_an_eighth_and_a_shorter_one_at_once():
    pace, _ = pace_of()
    assert ways(pace) == (0.0, inf, 0.0)
    come_and_gone(pace, 8, T0)
    assert ways(pace) == (8, 8, 8)
    come_and_gone(pace, 24, T0)
    assert ways(pace) == (10, 10, 24)
    come_and_gone(pace, 2, T0)
    assert ways(pace) == (2, 2, 2)
    come_and_gone(pace, 2, T0)
    assert ways(pace) == (2, 2, 2)
    come_and_gone(pace, 0, T0)
    assert ways(pace) == (0, 0, 0)
    come_and_gone(pace, 100, T0)
    assert ways(pace) == (35, 12.5, 100)


def test_a_way_seems_no_longer_than_twice_the_nearest_and_ten_milliseconds():
    pace, _ = pace_of()
    come_and_gone(pace, 8, T0)
    pace.on_granted(1_000, T0)
    found = []
    for _ in range(7):
        pace.on_granted(1_000, T0)
        pace.on_delivered(1_000, T0 + 80)
        found.append(pace._way.ms)
    assert found == [17, 24.875, 31.765625, 37.794921875, 43.070556640625, 44, 44]
    assert pace._way._nearest_ms == 17, "only the first of them had the way to itself"
    assert pace._way._longest_ms == 44


def test_no_way_is_longer_than_a_second():
    pace, _ = pace_of()
    come_and_gone(pace, 495, T0)
    assert pace._way._longest_ms == 1_000
    come_and_gone(pace, 3_000, T0)
    assert pace._way._longest_ms == 1_000
    nearer, _ = pace_of()
    come_and_gone(nearer, 494, T0)
    assert nearer._way._longest_ms == 998


@pytest.mark.parametrize(("granted_at_ms", "way_ms"), [(T0 + 49, 8), (T0 + 50, 8), (T0 + 51, 2)])
def test_what_was_granted_before_a_throttle_ended_tells_nothing_of_the_way(granted_at_ms, way_ms):
    pace, _ = pace_of()
    come_and_gone(pace, 8, T0)
    pace.on_throttle(50, T0)
    pace.on_throttle(10, T0)
    come_and_gone(pace, 2, granted_at_ms)
    assert ways(pace) == (way_ms, way_ms, way_ms)


def test_a_clock_that_goes_back_tells_nothing_of_the_way():
    pace, _ = pace_of()
    come_and_gone(pace, 8, T0)
    come_and_gone(pace, -1, T0)
    assert ways(pace) == (8, 8, 8)


def test_a_batch_has_come_when_all_that_was_granted_with_it_has():
    pace, pacer = pace_of(cost=NotedCost(part=0.5))
    pace.on_granted(1_000, T0)
    pace.on_granted(500, T0 + 10)
    pacer.heard.clear()
    pace.on_delivered(999, T0 + 20)
    assert (pace.outstanding, pace._way.last_ms) == (501, 0)
    pace.on_delivered(1, T0 + 21)
    assert (pace.outstanding, pace._way.last_ms) == (500, 21)
    pace.on_delivered(600, T0 + 40)
    assert (pace.outstanding, pace._way.last_ms) == (0, 30)
    pace.on_delivered(0, T0 + 50)
    pace.on_delivered(-5, T0 + 50)
    assert pacer.heard == [
        ("on_success", 499, T0 + 20),
        ("on_answer", T0, T0 + 21),
        ("on_late_arrival", pace.wire_of(1_000), T0, T0 + 21),
        ("on_success", 0, T0 + 21),
        ("on_answer", T0 + 10, T0 + 40),
        ("on_late_arrival", pace.wire_of(500), T0 + 10, T0 + 40),
        ("on_success", 300, T0 + 40),
    ]


def far(*, since_ms=T0 + 10_000, late_ms=600):
    """A near broker that has become slow: 10 ms, then two batches of 600 ms. And when it last was heard of."""
    pace, pacer = pace_of()
    pacer.outstanding_bytes = 1e9
    come_and_gone(pace, 10, T0)
    pace.on_granted(1_000, since_ms)
    pace.on_granted(1_000, since_ms)
    pace.on_granted(1_000, since_ms)
    pace.on_delivered(2_000, since_ms + late_ms)
    assert pace._way._nearest_ms == 10 + (late_ms - 10) / 8
    return pace, pacer, since_ms + late_ms


@pytest.mark.parametrize(("late_ms", "is_far"), [(76, False), (110, False), (111, True), (600, True)])
def test_a_way_of_more_than_twice_the_longest_is_measured_anew(late_ms, is_far):
    """10 ms and an eighth of 100 more are 22.5: 55 is the longest, and more than 110 is far."""
    pace, _, _ = far(late_ms=late_ms)
    assert pace._way.seems_far == is_far


@pytest.mark.parametrize(("nearest_ms", "is_far"), [(494.9, True), (495.0, False)])
def test_what_may_be_a_second_away_is_not_measured_anew(nearest_ms, is_far):
    pace, _ = pace_of()
    pace._way._nearest_ms, pace._way.last_ms = nearest_ms, 9_000.0
    assert pace._way.seems_far == is_far


def test_nothing_goes_until_all_has_arrived_when_a_way_is_measured():
    pace, pacer, now_ms = far()
    assert pace.wait_ms(1, now_ms) == 0
    pacer.outstanding_bytes = NO_ROOM
    assert pace.wait_ms(10_000, now_ms) == 10
    assert (pace._drains, pace._probed_at_ms) == (True, now_ms)
    pacer.outstanding_bytes = 1e9
    assert pace.wait_ms(1, now_ms + 1) == 1
    pace.on_delivered(1_000, now_ms + 2)
    assert pace.wait_ms(1, now_ms + 2) == 0
    come_and_gone(pace, 300, now_ms + 3)
    assert pace._way._nearest_ms == 300, "it had the way to itself"
    assert (pace._drains, pace._probed_at_ms) == (False, now_ms + 3)


def test_a_way_is_measured_however_young_the_clock_is():
    pace, pacer, now_ms = far(since_ms=100)
    pacer.outstanding_bytes = NO_ROOM
    pace.wait_ms(10_000, now_ms)
    assert pace._drains


def test_a_way_is_measured_every_five_seconds_at_most():
    pace, pacer, now_ms = far()
    pacer.outstanding_bytes = NO_ROOM
    pace._probed_at_ms = now_ms - 4_999
    pace.wait_ms(10_000, now_ms)
    assert not pace._drains
    pace.wait_ms(10_000, now_ms + 1)
    assert pace._drains
    pace._drains = False
    pace.wait_ms(10_000, now_ms + 2)
    assert not pace._drains


def test_without_a_limit_no_way_is_measured():
    pace, pacer, now_ms = far()
    pacer.outstanding_bytes, pacer.byte_rate = NO_ROOM, ENDLESS
    pace.wait_ms(10_000, now_ms)
    assert not pace._drains
    pace._drains = True
    pace.wait_ms(10_000, now_ms)
    assert not pace._drains


@pytest.mark.parametrize("since_ms", [100, T0])
def test_what_never_arrives_is_waited_for_twice_as_long_as_the_last_batch_took(since_ms):
    pace, pacer, now_ms = far(since_ms=since_ms)
    pacer.outstanding_bytes = NO_ROOM
    pace.wait_ms(10_000, now_ms)
    pace.wait_ms(10_000, now_ms + 1_200)
    assert pace._drains
    pace.wait_ms(10_000, now_ms + 1_201)
    assert not pace._drains
    pace._drains, pace._way.last_ms = True, 70_000.0
    pace.wait_ms(10_000, now_ms + 2_000)
    assert pace._drains
    pace.wait_ms(10_000, now_ms + 2_001)
    assert not pace._drains, "no longer than two seconds"


# What was not taken -----------------------------------------------------------------------------------------------


def test_what_was_not_taken_is_on_its_way_no_more():
    pace, _ = pace_of()
    pace.on_granted(1_000, T0)
    pace.on_granted(500, T0 + 10)
    pace.give_back(200)
    assert (pace.granted, pace.outstanding) == (1_300, 1_300)
    assert [each[:2] for each in pace._flying] == [(1_000, T0), (1_300, T0 + 10)]
    pace.give_back(300)
    assert [each[:2] for each in pace._flying] == [(1_000, T0)]
    pace.give_back(1)
    assert [each[:2] for each in pace._flying] == [(999, T0)]
    pace.give_back(999)
    assert [each[:2] for each in pace._flying] == [(0, T0)]
    assert pace.outstanding == 0


def test_what_was_not_taken_of_several_batches_takes_the_last_ones_back():
    pace, _ = pace_of()
    for number in range(3):
        pace.on_granted(100, T0 + number)
    pace.give_back(150)
    assert list(pace._flying) == [(100, T0, 0.125), (150, T0 + 1, 0.0)]


# Throttles ----------------------------------------------------------------------------------------------------------


def test_a_throttle_of_less_than_a_request_s_worth_is_waited_out_and_no_more():
    """1,151 bytes at 11,510 a second: 100 ms."""
    pace, pacer = pace_of(11_510.0)
    pace.on_granted(1_000, T0)
    pacer.heard.clear()
    pace.on_throttle(100, T0)
    assert pacer.heard == []
    assert [pace.throttled_for_ms(T0 + ms) for ms in (-5, 0, 1, 99, 100, 101)] == [100, 100, 99, 1, 0, 0]
    pace.on_throttle(30, T0 + 10)
    assert pace.throttled_for_ms(T0 + 10) == 90
    pace.on_throttle(95, T0 + 10)
    assert pace.throttled_for_ms(T0 + 10) == 95
    pacer.throttled_until_ms = T0 + 107
    assert pace.throttled_for_ms(T0 + 10) == 97
    pace.on_throttle(101, T0)
    assert pacer.heard == [("on_throttle", 101, T0)]


def test_every_throttle_is_the_pacer_s_while_no_limit_is_known():
    pace, pacer = pace_of(None)
    pace.on_throttle(0, T0)
    pace.set_limit(1_000.0, T0 + 1)
    pace.on_granted(1_000, T0)
    pace.on_throttle(1, T0)
    assert pacer.heard[:2] == [("on_throttle", 0, T0), ("set_limit", 1_000.0, T0 + 1)]
    assert [told[0] for told in pacer.heard[2:]] == ["on_sent"]


def test_before_anything_is_granted_every_throttle_is_the_pacer_s():
    pace, pacer = pace_of(1_000.0)
    pace.on_throttle(0, T0)
    assert pacer.heard == []
    pace.on_throttle(1, T0)
    assert pacer.heard == [("on_throttle", 1, T0)]


def test_a_throttle_of_half_a_byte_more_than_a_request_s_worth_is_the_pacer_s():
    pace, pacer = pace_of(1_151.5)
    pace.on_granted(1_000, T0)
    pace.on_throttle(1_000, T0)
    assert pacer.heard[1:] == [("on_throttle", 1_000, T0)]


def test_costs_are_its_own_unless_told():
    pacer = Pacer()
    assert isinstance(SendPace(pacer)._cost, BatchCost)
    cost = BatchCost()
    assert SendPace(pacer, cost)._cost is cost


def test_a_throttle_that_is_not_for_bytes_is_librdkafkas_to_wait_for():
    pace = SendPace(ToldPacer(byte_rate=50_000.0, limit=None))
    pace.on_throttle(900, T0, for_bytes=False)
    assert pace.throttled_for_ms(T0 + 1) == 0
    assert lump_ms_of(pace, 4) < 250.0


def test_beside_a_quota_of_bytes_it_is_waited_for_here_and_requests_are_as_few_as_the_delay_lets_them_be():
    pace, pacer = pace_of(byte_rate=50_000.0)
    before = lump_ms_of(pace, 4)
    pace.on_throttle(900, T0, for_bytes=False)
    assert pace.throttled_for_ms(T0 + 1) == 899
    assert not [told for told in pacer.heard if told[0] == "on_throttle"]  # nobody else had a part of the bytes
    assert (lump_ms_of(pace, 1), lump_ms_of(pace, 4)) == (pytest.approx(1_000.0), pytest.approx(250.0))
    pace.set_limit(40_000.0, T0 + 1)
    assert lump_ms_of(pace, 4) == pytest.approx(before)


def test_how_many_requests_are_sent():
    pacer = Pacer(100_000.0)
    pace = SendPace(pacer, limit=100_000.0)
    assert pace.requests_per_s(T0) == 0.0
    for number in range(20):
        pace.on_granted(1_000, T0 + 1_000 * number)
    assert pace.requests_per_s(T0 + 19_000) == pytest.approx(1.0, rel=0.15)
    pace.on_granted(1, T0 + 19_500)  # a small one that comes last does not make all others as many
    assert pace.requests_per_s(T0 + 19_500) == pytest.approx(1.0, rel=0.3)


@pytest.mark.parametrize(
    "ends",
    [lambda pace: pace.set_limit(1_000.0, T0), lambda pace: pace.on_throttle(900, T0)],
    ids=["a limit", "a throttle"],
)
def test_who_is_let_go_has_everything_sent_until_there_is_a_limit_again(ends):
    pace = SendPace(Pacer(None))
    pace.let_go()
    pace.on_granted(1_000_000, T0)
    assert pace.wait_ms(1_000_000, T0) == 0
    assert pace.lump_bytes(1) > 10_000
    ends(pace)
    assert pace.wait_ms(1_000_000, T0) > 0
