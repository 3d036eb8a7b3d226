"""How large batches are, and what is learnt of their cost, in exact numbers."""

from math import inf, sqrt

import pytest

from kclient_quota.pacing.sending import send_pace
from kclient_quota.pacing.sending.lump_size import worth_waiting_ms
from tests.unit.pacing.told_pacer import NotedCost, come_and_gone, lump_ms_of, pace_of, terms_of

T0 = 1_000_000
ENDLESS = float("inf")


def exactly(number):
    return pytest.approx(number, rel=1e-9)


def cheapest(overhead, rate, places=1.0, worth_ms=1_000.0, message=0):
    """The shortest lump that leaves all of the quota that is worth something but so much: halved again and again."""
    seconds = overhead / rate
    most = worth_ms / 1000 / places

    def lost(lump):
        return lump / 11 + seconds / lump

    best = min(sqrt(11 * seconds), most)
    worth = 0.008 * (1 - 1 / sqrt(max(best * rate / message, 1)) if message else 1)
    goal = lost(best) + worth * max(1 - lost(best), 0.0)
    low, high = 1e-12, sqrt(11 * seconds)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if lost(middle) > goal else (low, middle)
    return min(1000 * high, 1000 * most)


# How large --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overhead", "rate", "places", "lump_ms"),
    [
        (150, 100_000, 1, 57.906293555644716),
        (150, 100_000, 0, 57.906293555644716),
        (150, 51_200, 12, 65.99837198456937),
        (150, 51_200, 3, 91.33893021215091),
        (350, 1_000_000, 1, 20.1633359441042),
        (150, 1_000, 1, 916.5283444256692),
        (150, 1_000, 4, None),
        (150, 100, 1, 1000.0),
        (150, 100, 4, 250.0),
    ],
)
def test_the_lump_that_costs_little_more_than_the_best_one(overhead, rate, places, lump_ms):
    pace, _ = pace_of(cost=NotedCost(overhead=overhead), byte_rate=rate)
    assert lump_ms_of(pace, places) == pytest.approx(cheapest(overhead, rate, max(places, 1)), rel=1e-6)
    assert lump_ms is None or lump_ms_of(pace, places) == exactly(lump_ms)


@pytest.mark.parametrize(("max_delay_ms", "places"), [(50, 1), (100, 2), (100, 3), (40, 2), (999, 1), (1_000, 7)])
def test_no_message_waits_for_longer_than_is_allowed(max_delay_ms, places):
    pace, _ = pace_of(max_delay_ms=max_delay_ms)
    found = lump_ms_of(pace, places)
    assert found == pytest.approx(cheapest(150, 100_000, places, max_delay_ms), rel=1e-6)
    assert found <= max_delay_ms / places


@pytest.mark.parametrize(
    ("message_raw", "max_delay_ms", "compressed", "worth_ms"),
    [
        (1_350, 1_000, False, 250.0),  # a tenth is framing
        (1_350, 4_000, False, 1_000.0),
        (1_350, 200, False, 200.0),
        (1_350, 250, False, 250.0),
        (1_350, 251, False, 250.0),
        (14_850, 1_000, False, 25.0),
        (350, 1_000, False, 750.0),
        (75, 1_000, False, 1_000.0),
        (1_350, 1_000, True, 1_000.0),
        (0, 1_000, False, 1_000.0),
    ],
)
def test_a_message_waits_for_what_frames_it_as_long_as_that_is_worth(message_raw, max_delay_ms, compressed, worth_ms):
    pace, _ = pace_of(cost=NotedCost(compressed=compressed), max_delay_ms=max_delay_ms)
    if message_raw:
        pace.on_granted(2 * message_raw, T0, messages=2)
    assert worth_waiting_ms(terms_of(pace, 1)) == exactly(worth_ms)
    for places in (4, 40):
        assert lump_ms_of(pace, places) == pytest.approx(
            cheapest(150, 100_000, places, worth_ms, message_raw), rel=1e-6
        )


def test_the_best_lump_is_taken_where_a_batch_costs_more_than_may_be_given_up():
    for rate in range(1, 54):
        pace, _ = pace_of(byte_rate=float(rate), max_delay_ms=10**6)
        assert lump_ms_of(pace, 1) == pytest.approx(1000 * sqrt(11 * 150 / rate), rel=1e-6)


def test_a_limit_that_nobody_told_is_used_in_requests_at_least():
    """10,000 bytes at 100,000 a second."""
    pace, pacer = pace_of(None)
    assert lump_ms_of(pace, 1) == exactly(100.0)
    pacer.request_bytes = 100
    assert lump_ms_of(pace, 1) == exactly(57.906293555644716)
    told, _ = pace_of()
    assert lump_ms_of(told, 1) == exactly(57.906293555644716)


@pytest.mark.parametrize(("limit", "lump_ms"), [(None, 100.0), (100_000.0, 0.0)])
def test_without_any_delay_a_lump_is_a_request_or_nothing(limit, lump_ms):
    pace, _ = pace_of(limit, max_delay_ms=0)
    assert lump_ms_of(pace, 1) == exactly(lump_ms)
    assert pace.lump_bytes(1) == (9_850 if limit is None else 1)


def test_without_any_rate_everything_has_room_and_takes_no_time():
    pace, _ = pace_of(None, byte_rate=ENDLESS)
    assert (pace.room_bytes(1), pace.time_of_ms(1e9)) == (inf, 0)


def test_as_many_lumps_as_may_be_on_their_way_last_for_the_way():
    pace, pacer = pace_of(in_flight=4)
    come_and_gone(pace, 400, T0)
    assert lump_ms_of(pace, 1) == exactly(100.0)
    pacer.every_ms = 101.0
    assert lump_ms_of(pace, 1) == exactly(101.0)
    pacer.every_ms = 99.0
    assert lump_ms_of(pace, 1) == exactly(100.0)
    near, _ = pace_of(in_flight=4)
    come_and_gone(near, 200, T0)
    assert lump_ms_of(near, 1) == pytest.approx(cheapest(150, 100_000, message=1_000), rel=1e-6)


def test_a_lump_is_reckoned_again_when_what_it_depends_on_has_changed_and_not_before(monkeypatch):
    reckoned = []
    monkeypatch.setattr(send_pace, "lump_bytes", lambda terms: reckoned.append(terms) or len(reckoned))
    pace, pacer = pace_of(None)

    def changes():
        yield "nothing", lambda: None
        yield "rate", lambda: setattr(pacer, "byte_rate", 90_000.0)
        yield "request", lambda: setattr(pacer, "request_bytes", 9_000)
        yield "limit", lambda: setattr(pacer, "limit", 90_000.0)
        yield "every", lambda: setattr(pacer, "every_ms", 7.0)
        yield "way", lambda: setattr(pace._way, "ms", 8.0)
        yield "overhead", lambda: setattr(pace._cost, "overhead", 151.0)
        yield "part", lambda: setattr(pace._cost, "part", 0.5)
        yield "compresses", lambda: setattr(pace._cost, "_compressed", True)
        yield "message", lambda: setattr(pace, "_message_raw", 100.0)

    for number, (name, change) in enumerate(changes(), start=1):
        change()
        found = [pace.room_bytes(1) for _ in range(3)]
        assert found == [number] * 3, name
        assert reckoned[-1] == terms_of(pace, 1), name
    for times, places in enumerate((6, 9, 6), start=1):
        assert pace.lump_bytes(places) == number + times
    assert len(reckoned) == number + 3


@pytest.mark.parametrize(("places", "lump_bytes"), [(1, 5_640), (3, 5_640), (36, 5_094), (60, 3_720), (4, 5_640)])
def test_three_times_an_even_share_of_a_round_may_leave_for_one_partition(places, lump_bytes):
    pace, _ = pace_of()
    assert pace.lump_bytes(places) == lump_bytes
    assert lump_bytes == int(cheapest(150, 100_000, max(places / 3, 1)) * 100 - 150)


def test_a_lump_is_what_its_time_is_worth_of_raw_bytes_and_one_at_least():
    pace, _ = pace_of(cost=NotedCost(part=0.5))
    assert pace.lump_bytes(1) == 11_281
    tiny, _ = pace_of(byte_rate=100.0)
    assert tiny.lump_bytes(1) == 1


@pytest.mark.parametrize(
    ("request_bytes", "outstanding", "lump_bytes"), [(10_000, 19_999.0, 9_999), (10_000, 20_002.0, 10_000), (7, 9.0, 4)]
)
def test_while_nothing_limits_half_of_what_may_be_on_its_way_leaves_at_once(request_bytes, outstanding, lump_bytes):
    pace, _ = pace_of(None, byte_rate=ENDLESS, request_bytes=request_bytes, outstanding_bytes=outstanding)
    assert pace.lump_bytes(1) == 1
    come_and_gone(pace, 5, T0)
    assert pace.lump_bytes(1) == pace.lump_bytes(9) == lump_bytes


@pytest.mark.parametrize(("places", "times"), [(0, 1.0), (1, 1.0), (2, 1.65), (3, 2.2), (6, 3.85)])
def test_as_much_may_wait_as_fills_batches(places, times):
    pace, _ = pace_of()
    assert pace.room_bytes(places) == exactly(times * pace._lump_bytes(places))


def test_what_there_is_quota_for_already_may_come_at_once():
    pace, pacer = pace_of(cost=NotedCost(part=0.5))
    room = pace.room_bytes(1)
    pacer.banked_bytes = pace._cost.wire(pace._lump_bytes(1)) + 5_000.0
    assert pace.room_bytes(1) == exactly(room)  # as long as nothing has gone, nothing is late
    come_and_gone(pace, 5, T0)
    room = pace.room_bytes(1)
    pacer.banked_bytes += 1_000.0
    assert pace.room_bytes(1) == exactly(room + 2_000)
    pacer.banked_bytes = -1.0
    assert pace.room_bytes(1) == exactly(float(pace._lump_bytes(1)))


def test_how_long_bytes_take_and_how_many_leave_within_a_time():
    pace, pacer = pace_of(cost=NotedCost(part=0.5), usual=200_000.0, owed=7)
    assert [pace.time_of_ms(raw) for raw in (0, 399, 400, 401, 8_000, 4e6)] == [0, 0, 1, 1, 20, 10_000]
    assert pace.raw_in(20.0) == 4_000.0
    assert [pace.room_in_ms(raw, T0) for raw in (0, 400, 8_000)] == [7, 8, 27]
    pacer.throttled_until_ms = T0 + 26
    assert [pace.room_in_ms(raw, T0) for raw in (0, 8_000)] == [26, 27]
    pacer.owed = pacer.throttled_until_ms = 0
    assert pace.room_in_ms(0, T0) == 1
    assert set(pacer.heard) == {("owed", T0)}


@pytest.mark.parametrize(("raw_bytes", "wire"), [(0, 151), (1, 151), (2, 152), (1_000, 651)])
def test_a_batch_is_taken_for_a_byte_more_than_it_costs(raw_bytes, wire):
    pace, _ = pace_of(cost=NotedCost(part=0.5))
    assert pace.wire_of(raw_bytes) == wire


# What batches cost ------------------------------------------------------------------------------------------------


def test_names_are_known_from_the_first_batch_and_followed_by_an_eighth():
    pace, pacer = pace_of(client_bytes=10)
    pace.on_granted(1_000, T0, topic="größe")  # seven bytes
    assert pace._cost.names_bytes == 17.0
    assert pacer.heard == [("on_sent", 1_151, T0)]
    pace.on_granted(1_000, T0, topic="t" * 15)
    assert pace._cost.names_bytes == 18.0
    pace.on_granted(1_000, T0)
    assert pace._cost.names_bytes == 18.0


def test_a_message_s_size_is_followed_by_an_eighth():
    pace, _ = pace_of()
    assert pace._message_raw == 0.0
    pace.on_granted(1_000, T0)
    assert pace._message_raw == 1_000.0
    pace.on_granted(3_600, T0, messages=2)
    assert pace._message_raw == 1_100.0
    assert (pace.granted, pace._told.batches) == (4_600, 2)


def late_counts(pacer):
    return [told[1:] for told in pacer.heard if told[0] == "on_late_count"]


def test_what_took_more_than_was_foretold_is_charged_for():
    pace, pacer = pace_of()
    pace.on_granted(1_000, T0)
    pace.on_wire(1_151, T0 + 1)
    assert late_counts(pacer) == []
    pace.on_wire(1, T0 + 2)
    pace.on_wire(7, T0 + 3)
    pace.on_wire(0, T0 + 4)
    assert late_counts(pacer) == [(1, T0 + 2), (7, T0 + 3)]


def test_what_took_less_makes_up_for_a_batch_s_worth_and_what_is_on_its_way():
    pace, pacer = pace_of()
    for _ in range(3):
        pace.on_granted(1_000, T0)
    pace.on_delivered(2_000, T0)
    pace.on_wire(0, T0)
    assert pace._owed == -2_151.0  # a thousand on their way without what frames them, and the last batch
    pace.on_delivered(1_000, T0)
    pace.on_wire(0, T0)
    assert pace._owed == -1_151.0
    # not the 1,302 before: a thousand were on their way
    assert [told for told in pacer.heard if "on_less" in told] == [("on_less", 1_000.0, T0)]
    pace.on_wire(1_153, T0)
    assert late_counts(pacer) == [(2, T0)]


def learning(is_learnt=False):
    cost = NotedCost(is_learnt=is_learnt)
    pace, _ = pace_of(cost=cost)
    return pace, cost.noted


def test_what_has_arrived_tells_what_it_took():
    pace, noted = learning()
    come_and_gone(pace, 1, T0)
    come_and_gone(pace, 1, T0, raw_bytes=200)
    pace.on_wire(1_500, T0)
    assert noted == [("dear?", 1_500, 1_200, 2.0), (2, 1_200, 1_500, 900.0, 1)]
    noted.clear()
    pace.on_wire(0, T0)
    assert noted == [("dear?", 0, 0, 0.0), (0, 0, 0, 900.0, 1)]


def test_before_any_message_is_known_one_is_taken_for_140_bytes():
    pace, noted = learning()
    pace.on_wire(0, T0)
    assert noted == [("dear?", 0, 0, 0.0), (0, 0, 0, 140.0, 1)]


def test_of_what_was_granted_no_more_than_an_eighth_may_be_on_its_way():
    pace, noted = learning()
    for _ in range(7):
        pace.on_granted(1_000, T0)
    pace.on_delivered(6_000, T0)
    pace.on_wire(7_000, T0)
    assert noted == [("dear?", 7_000, 7_000, 7.0)]
    pace.on_granted(1_000, T0)
    pace.on_delivered(1_000, T0)
    noted.clear()
    pace.on_wire(400, T0)
    assert noted == [("dear?", 7_400, 8_000, 8.0), (8, 8_000, 7_400, 1_000.0, 2)]
    noted.clear()
    pace.on_granted(1_000, T0)
    pace.on_delivered(2_000, T0)
    pace.on_wire(2_300, T0)  # an eighth of the eight before, and one more, may be among them
    assert noted == [("dear?", 2_300, 2_000, 3.0), (1, 1_000, 2_300, 1_000.0, 1)]


def test_once_it_has_learnt_eight_statistics_are_waited_for():
    pace, noted = learning(is_learnt=True)
    for _ in range(8):
        pace.on_granted(1_000, T0)
    pace.on_delivered(7_000, T0)
    pace.on_wire(7_000, T0)
    for _ in range(6):
        pace.on_wire(0, T0)
    assert [each[0] for each in noted] == ["dear?"] * 7
    pace.on_wire(500, T0)
    assert noted[7:] == [("dear?", 7_500, 8_000, 8.0), (8, 8_000, 7_500, 1_000.0, 8)]
    noted.clear()
    pace.on_delivered(1_000, T0)
    pace.on_wire(100, T0)
    assert noted == [("dear?", 100, 1_000, 2.0)], "what began in doubt begins anew where it can be told exactly"
    come_and_gone(pace, 1, T0)
    pace.on_wire(1_150, T0)
    assert noted[1:] == [("dear?", 1_150, 1_000, 1.0), (1, 1_000, 1_150, 1_000.0, 1)]


def test_where_others_bytes_are_among_them_nothing_is_learnt():
    pace, noted = learning()
    pace.on_granted(1_000, T0)
    pace.on_wire(9_000, T0, learns=False)
    assert noted == []
    pace.on_wire(9_000, T0)
    assert noted == [], "it is on its way since then"
    pace.on_delivered(1_000, T0)
    pace.on_wire(9_000, T0)
    assert noted == []
    come_and_gone(pace, 1, T0)
    pace.on_wire(1_000, T0)
    assert noted == [("dear?", 1_000, 1_000, 1.0), (1, 1_000, 1_000, 1_000.0, 1)]


def test_what_took_twice_as_much_as_was_foretold_is_other_data_at_once():
    pace, noted = learning(is_learnt=True)
    pace.on_granted(1_000, T0)
    pace.on_wire(2_300, T0)
    assert noted == [("dear?", 2_300, 1_000, 1.0)]
    noted.clear()
    pace.on_wire(1, T0)
    assert noted == [("dear?", 2_301, 1_000, 1.0), "forget", (1, 1_000, 2_301, 1_000.0, 2)]
    noted.clear()
    pace.on_wire(4_601, T0)  # of what was granted before, and of it and one more batch
    assert noted == [("dear?", 4_601, 1_000, 2.0), "forget", (1, 1_000, 4_601, 1_000.0, 1)]


def test_what_was_not_taken_after_all_is_not_divided_by():
    pace, noted = learning()
    pace.on_granted(1_000, T0)
    pace.on_wire(9_000, T0)
    pace.give_back(1_000)
    noted.clear()
    pace.on_wire(0, T0)
    assert noted == [("dear?", 0, 0, 1_001.0), (0, -1_000, 0, 1_000.0, 1)]


def test_of_what_is_on_its_way_a_part_of_a_batch_may_be_told_of_later():
    """A tenth of two batches, and one more."""
    pace, noted = learning()
    pace.on_granted(2_000, T0)
    pace.on_granted(1_000, T0)
    pace.on_delivered(2_700, T0)
    pace.on_wire(3_000, T0)
    noted.clear()
    pace.on_wire(0, T0)
    assert noted[0] == ("dear?", 0, 300, pytest.approx(1.2))
