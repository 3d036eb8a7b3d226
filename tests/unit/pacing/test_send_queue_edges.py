"""The send queue to the byte: which messages find room, who leaves for them, and what is told of it."""

from math import inf

import pytest

from kclient_quota.pacing.sending.lanes import Full, Lane, LaneState
from kclient_quota.pacing.sending.send_queue import ACCEPTED, NEVER, Offered, SendQueue
from tests.unit.pacing.told_pacer import T0, ToldPace, counted, message, offered, payloads

# Room -------------------------------------------------------------------------------------------------------------


def test_what_an_answer_is_unless_told():
    assert Offered(accepted=True) == ACCEPTED == Offered(True, 0, (), ())
    assert inf == NEVER


def test_a_queue_in_which_nothing_waits():
    queue = SendQueue(ToldPace(room=inf))
    assert (len(queue), queue.raw_bytes, list(queue), queue.purge(), queue.expire(T0)) == (0, 0, [], [], [])
    assert (queue.next_grant(T0), queue.next_expiry_ms) == (NEVER, None)
    assert queue.state(T0) == {"": LaneState(0, 0, 0)}
    assert queue.free_bytes("", inf) == 33_554_432
    assert queue.pace.heard == []


def test_lanes_by_name():
    alerts = Lane("alerts", strict=True)
    queue = SendQueue(ToldPace(), [alerts])
    assert queue.lane("alerts") is alerts
    assert queue.lane("nowhere") == queue.lane("") == Lane()
    default = Lane(full=Full.RAISE)
    assert SendQueue(ToldPace(), [default]).lane("nowhere") is default


@pytest.mark.parametrize(
    ("per_ms", "lanes", "most", "free"),
    [
        (0.0, (), inf, 1_100.0),
        (60.0, (), inf, 1_200.0),  # twenty milliseconds' worth
        (1.0, (Lane("a"),), inf, 1_200.0),  # and a hundred's where there are several lanes
        (60.0, (Lane("a"),), inf, 7_200.0),
        (10_000.0, (), inf, 5_000.0),
    ],
)
def test_as_much_may_wait_as_the_pace_has_room_for(per_ms, lanes, most, free):
    pace = ToldPace(room=1_100.0, per_ms=per_ms)
    queue = SendQueue(pace, lanes, max_bytes=5_000 if not lanes else 9_000)
    assert queue.free_bytes("", most) == free
    offered(queue, message(1, 300))
    assert queue.free_bytes("", most) == queue.free_bytes("nowhere", most) == free - 300


def test_no_more_may_come_at_once_than_is_asked_for_however_much_waits():
    """Batches for a hundred partitions far away take more than may come before anybody looks."""
    queue = SendQueue(ToldPace(room=1_100.0))
    assert queue.free_bytes("", 400.0) == 400
    offered(queue, message(1, 600))
    assert queue.free_bytes("", 400.0) == 400
    offered(queue, message(2, 300))
    assert queue.free_bytes("", 400.0) == 200


def test_no_more_may_wait_than_is_asked_for_where_nothing_is_known_of_a_quota():
    queue = SendQueue(ToldPace(room=inf))
    offered(queue, message(1, 300))
    assert queue.free_bytes("", 400.0) == 100


def test_room_is_for_the_partitions_that_messages_wait_for():
    queue = SendQueue(ToldPace(room_each=100.0))
    assert queue.free_bytes("", inf) == 1_000
    offered(queue, message(1, 10, partition=1), message(2, 10, partition=2), message(3, 10, partition=1))
    assert queue.free_bytes("", inf) == 1_200 - 30


@pytest.mark.parametrize(("lanes", "asked"), [([], 4), ([Lane("a")], 60)])
def test_the_room_is_reckoned_once_between_two_looks_for_as_many_partitions(lanes, asked):
    class Asked(ToldPace):
        def room_bytes(self, places):
            self.heard.append(("room", places))
            return super().room_bytes(places)

    pace = Asked(room=1e6)
    queue = SendQueue(pace, lanes)
    offered(queue, *(message(raw_bytes=10) for _ in range(22)))
    offered(queue, *(message(raw_bytes=10, partition=1) for _ in range(20)))
    queue.next_grant(T0)
    offered(queue, *(message(raw_bytes=10) for _ in range(20)))
    assert sum(told[0] == "room" for told in pace.heard) == asked
    pace.room = 5.0
    assert not queue.offer(message(raw_bytes=10)).accepted, "another rate"


def test_a_lane_has_its_part_beside_those_in_which_messages_wait():
    queue = SendQueue(ToldPace(), [Lane("strict", strict=True), Lane("three", weight=3), Lane("one")])
    lanes = ("strict", "three", "one", "")

    def free():
        return [queue.free_bytes(lane, inf) for lane in lanes]

    assert free() == [1_000] * 4
    offered(queue, message(lane="strict", raw_bytes=10))
    assert free() == [990, 1_000, 1_000, 1_000]
    offered(queue, message(lane="one", raw_bytes=10))
    assert free() == [990, 750, 990, 500]
    offered(queue, message(lane="three", raw_bytes=10))
    assert free() == [990, 740, 240, 200]


@pytest.mark.parametrize(("room", "accepted"), [(30.0, True), (29.0, False), (0.0, False)])
def test_two_messages_may_wait_whatever_they_take_and_a_third_that_fits(room, accepted):
    queue = SendQueue(ToldPace(room=room))
    offered(queue, message(1, 12), message(2, 15))
    third = queue.offer(message(3, 3, at_ms=T0 + 5))
    if accepted:
        assert third is ACCEPTED
    else:
        assert third == Offered(accepted=False, wait_ms=77)
        assert queue.pace.heard == [("room in", 3, T0 + 5)]
    assert counted(queue) == ([1, 2, 3] if accepted else [1, 2])


def test_a_lane_that_raises_says_when_to_come_again():
    queue = SendQueue(ToldPace(room=0.0), [Lane(full=Full.RAISE)])
    offered(queue, message(1), message(2))
    assert queue.offer(message(3)) == Offered(accepted=False, wait_ms=77)


def test_a_lane_that_drops_the_newest_drops_what_has_come():
    queue = SendQueue(ToldPace(room=200.0), [Lane(full=Full.DROP_NEWEST)])
    offered(queue, message(1), message(2))
    third = message(3)
    assert queue.offer(third) == Offered(accepted=True, dropped=(third,))
    assert counted(queue) == [1, 2]


@pytest.mark.parametrize(
    ("raw_bytes", "dropped"), [(100, [0]), (101, [0, 1]), (200, [0, 1]), (201, [0, 1, 2]), (9_999, [0, 1, 2])]
)
def test_a_lane_that_drops_the_oldest_drops_as_many_as_make_room(raw_bytes, dropped):
    queue = SendQueue(ToldPace(room=350.0), [Lane(full=Full.DROP_OLDEST)])
    old = offered(queue, *(message(number, partition=number, at_ms=T0 + number) for number in range(3)))
    old += offered(queue, message(3, 50, partition=0, at_ms=T0 + 9))
    answer = queue.offer(message("new", raw_bytes, partition=7))
    assert answer.accepted
    assert payloads(answer.dropped) == dropped
    assert [each.is_gone for each in old] == [number in dropped for number in range(4)]
    assert "new" in counted(queue)


def test_who_drops_where_nobody_waits_is_told():
    queue = SendQueue(ToldPace(), [Lane("a")])
    with pytest.raises(ValueError, match="lane 'a' has no room though nobody waits in it"):
        queue._drop_oldest(queue._lanes["a"], None)


# Newer values and deadlines ---------------------------------------------------------------------------------------


def test_a_newer_value_takes_the_place_of_the_older():
    queue = SendQueue(ToldPace(room=0.0), [Lane(newest=True)])
    old, other = offered(queue, message("old", key="k"), message("other", 50, key="l"))
    new = message("new", 70, T0 + 5, key="k")
    answer = queue.offer(new)
    assert answer == Offered(accepted=True, replaced=(old,))
    assert (old.is_gone, new.queued_at_ms, counted(queue)) == (True, T0, ["new", "other"])
    newest = message("newest", 30, key="k")
    assert queue.offer(newest).replaced == (new,)
    assert counted(queue) == ["newest", "other"]
    assert queue.raw_bytes == 80
    assert queue.offer(message("elsewhere", key="k", partition=1)) == Offered(accepted=False, wait_ms=77)
    assert queue.next_grant(T0).messages == [newest, other]
    offered(queue, message("again", key="k"))
    assert counted(queue) == ["again"]


def test_values_of_another_tenant_or_without_a_key_replace_nothing():
    queue = SendQueue(ToldPace(), [Lane(newest=True)])
    offered(queue, message(1, key="k", tenant="a"), message(2, key="k", tenant="b"), message(3), message(4))
    assert counted(queue) == [1, 2, 3, 4]
    plain = SendQueue(ToldPace())
    offered(plain, message(1, key="k"), message(2, key="k"))
    assert counted(plain) == [1, 2]
    assert plain._lanes[""].newest == {}
    assert len(queue._lanes[""].newest) == 1


def test_what_does_not_wait_cannot_be_replaced_or_lost():
    queue = SendQueue(ToldPace(), [Lane(newest=True)])
    gone = message("gone", key="k")
    with pytest.raises(ValueError, match="does not wait"):
        queue._replace(queue._lanes[""], gone, message("new", key="k"))
    with pytest.raises(ValueError, match="does not wait"):
        queue.take_out([gone])


def test_messages_are_worth_sending_until_their_own_time_or_their_lane_s():
    queue = SendQueue(ToldPace(), [Lane(deadline_ms=50), Lane("endless")])
    own, lane_s, endless = offered(
        queue, message("own", expires_at_ms=T0 + 70), message("lane"), message("endless", lane="endless")
    )
    assert (own.expires_at_ms, lane_s.expires_at_ms, endless.expires_at_ms) == (T0 + 70, T0 + 50, None)
    assert queue.next_expiry_ms == T0 + 50
    assert queue.expire(T0 + 49) == []
    assert queue.expire(T0 + 50) == [lane_s]
    assert (queue.next_expiry_ms, counted(queue)) == (T0 + 70, ["own", "endless"])
    assert queue.expire(T0 + 1_000) == [own]
    assert (queue.next_expiry_ms, counted(queue)) == (None, ["endless"])


def test_what_was_replaced_does_not_expire():
    queue = SendQueue(ToldPace(), [Lane(newest=True)])
    offered(queue, message("old", key="k", expires_at_ms=T0 + 1))
    queue.offer(message("new", key="k", expires_at_ms=T0 + 5))
    assert queue.expire(T0 + 4) == []
    assert payloads(queue.expire(T0 + 5)) == ["new"]
    assert counted(queue) == []


def test_a_lane_s_time_is_added_to_when_a_message_came():
    queue = SendQueue(ToldPace(), [Lane(deadline_ms=50)])
    offered(queue, message(at_ms=T0 + 50))
    assert queue.next_expiry_ms == T0 + 100


def test_of_those_that_expire_at_once_the_first_is_told_first():
    queue = SendQueue(ToldPace())
    every = offered(queue, *(message(number, 10, expires_at_ms=T0 + 5) for number in range(9)))
    assert queue.expire(T0 + 5) == list(every)


def test_what_has_left_does_not_expire():
    queue = SendQueue(ToldPace(lump=100), [Lane(newest=True)])
    offered(queue, message(1, expires_at_ms=T0 + 1, key="k"), message(2, expires_at_ms=T0 + 2, key="l"))
    queue.offer(message(3, expires_at_ms=T0 + 3, key="k"))
    assert queue.next_expiry_ms == T0 + 2
    assert payloads(queue.next_grant(T0).messages) == [3]
    assert payloads(queue.expire(T0 + 9)) == [2]
    assert queue._expiries == []


def test_deadlines_of_what_has_left_are_swept_out_when_they_are_more_than_twice_as_many_and_64():
    queue = SendQueue(ToldPace(room=inf, lump=1))
    offered(queue, *(message(number, 1, expires_at_ms=T0 + 500 - number) for number in range(150)))
    for _ in range(107):
        queue.next_grant(T0)
        assert len(queue._expiries) == 150
    queue.next_grant(T0)
    assert len(queue._expiries) == len(queue) == 42
    assert payloads(queue.expire(T0 + 999)) == list(range(149, 107, -1))
