"""The send queue's tenants and lanes: who leaves when, in which order, and what the pace is told of it."""

import pytest

from kclient_quota.pacing.sending.lanes import Full, Lane, LaneState
from kclient_quota.pacing.sending.send_queue import NEVER, Grant, SendQueue
from tests.unit.pacing.told_pacer import T0, ToldPace, counted, message, offered, payloads

# Tenants ----------------------------------------------------------------------------------------------------------


def beside(queue):
    """Tenants' messages that wait for their partitions' turns, and those that wait beside them."""
    waits = queue._lanes[""]
    return payloads(waits.turns), {tenant: payloads(line) for tenant, line in waits.tenants.items()}


def test_a_tenant_s_messages_wait_beside_the_turns_when_those_are_full():
    """Of 230 bytes: two messages, and a third that fits."""
    queue = SendQueue(ToldPace(room=230.0))
    offered(queue, message(1, tenant="a"), message(2, tenant="b"), message(3, 30, tenant="a"))
    assert beside(queue) == ([1, 2, 3], {})
    offered(queue, message(4, 1, tenant="c"))
    assert beside(queue) == ([1, 2, 3], {"c": [4]})
    offered(queue, message(5, 1))
    assert beside(queue) == ([1, 2, 3], {"c": [4], (): [5]})
    assert counted(queue) == [1, 2, 3, 4, 5]


def crowded(*tenants, full=Full.BLOCK):
    """Twice 200 bytes, and 100 ms' worth of one a millisecond, are for tenants beside the turns: 600."""
    queue = SendQueue(ToldPace(room=200.0, per_ms=1.0), [Lane(full=full)])
    offered(queue, message("a", tenant="a"), message("b", tenant="a"))
    offered(queue, *(message(tenant, tenant=tenant) for tenant in tenants))
    return queue


@pytest.mark.parametrize(
    ("tenants", "raw_bytes", "accepted"),
    [
        ("c", 500, True),
        ("c", 501, False),
        ("cd", 200, True),
        ("cd", 201, False),
        ("cde", 100, True),
        ("cde", 101, False),
    ],
)
def test_a_tenant_s_line_holds_its_part_of_twice_the_room(tenants, raw_bytes, accepted):
    queue = crowded(*tenants)
    assert queue.offer(message("more", raw_bytes, tenant="c")).accepted == accepted
    assert counted(queue)[:3] == ["a", "b", "c"]
    assert beside(queue)[1]["c"] == (["c", "more"] if accepted else ["c"])
    offered(queue, message("first", 9_999, tenant="new"))


def test_for_a_tenant_s_newest_its_own_oldest_leaves():
    queue = crowded("c", "d", full=Full.DROP_OLDEST)
    assert payloads(queue.offer(message("more", 201, tenant="c")).dropped) == ["c"]
    assert beside(queue) == (["a", "b"], {"c": ["more"], "d": ["d"]})


def test_an_empty_line_of_a_tenant_has_room_and_holds_up_nobody():
    queue = crowded("c", "e", "d", full=Full.DROP_OLDEST)
    queue.take_out(list(queue._lanes[""].tenants["c"]))
    offered(queue, message("large", 9_999, tenant="c"))
    for tenant in ("c", "e"):
        queue.take_out(list(queue._lanes[""].tenants[tenant]))
    assert payloads(queue.next_grant(T0).messages) == ["a", "b"]
    assert beside(queue) == (["d"], {})
    assert payloads(queue.next_grant(T0).messages) == ["d"]
    assert queue.next_grant(T0) == NEVER


def test_the_turns_are_filled_from_tenants_lines_in_turn():
    queue = SendQueue(ToldPace(room=200.0, lump=100))
    offered(queue, message("a1", tenant="a"), message("a2", tenant="a"), message("a3", tenant="a"))
    offered(queue, message("b1", tenant="b"), message("a4", tenant="a"), message("b2", tenant="b"))
    assert beside(queue) == (["a1", "a2"], {"a": ["a3", "a4"], "b": ["b1", "b2"]})
    left = [payloads(queue.next_grant(T0).messages)[0] for _ in range(6)]
    assert left == ["a1", "a2", "b1", "b2", "a3", "a4"]
    assert (queue.next_grant(T0), beside(queue)) == (NEVER, ([], {}))


def test_the_turns_are_filled_from_a_line_up_to_the_last_byte_of_the_room():
    queue = SendQueue(ToldPace(room=250.0, lump=50))
    offered(queue, *(message(size, size, tenant="a") for size in (50, 48, 102, 51, 49, 1)))
    assert beside(queue) == ([50, 48, 102], {"a": [51, 49, 1]})
    assert payloads(queue.next_grant(T0).messages) == [50]
    assert beside(queue) == ([48, 102, 51, 49], {"a": [1]})
    assert payloads(queue.next_grant(T0).messages) == [48]
    assert beside(queue) == ([102, 51, 49, 1], {})


def test_the_turns_have_room_for_another_partition_as_soon_as_one_of_it_waits():
    queue = SendQueue(ToldPace(room=200.0, room_each=50.0, lump=50))
    offered(queue, *(message(number, size, tenant="a") for number, size in enumerate((50, 100, 100))))
    offered(queue, message("other", 20, partition=1, tenant="a"), message("late", 40, tenant="a"))
    assert beside(queue) == ([0, 1, 2], {"a": ["other", "late"]})
    assert payloads(queue.next_grant(T0).messages) == [0]
    assert beside(queue) == ([1, 2, "late", "other"], {})


# What leaves ------------------------------------------------------------------------------------------------------


def test_a_grant_tells_what_leaves_and_the_pace_is_told():
    queue = SendQueue(ToldPace(lump=150))
    every = offered(queue, message(1, 100, partition=4), message(2, 50, partition=4), message(3, 1, partition=5))
    assert queue.next_grant(T0 + 3) == Grant("t", 4, [*every[:2]], 150, 250, "")
    assert queue.pace.heard == [("lump", 2), ("wait", 150, T0 + 3, 2), ("granted", 150, T0 + 3, 2, "t")]
    assert [(each.home, each.is_gone) for each in every[:2]] == [(None, True)] * 2
    assert counted(queue) == [3]


@pytest.mark.parametrize(("wait_ms", "waits"), [(0, False), (-1, False), (1, True), (50, True)])
def test_a_wait_that_is_told_is_passed_on(wait_ms, waits):
    queue = SendQueue(ToldPace(wait=wait_ms))
    offered(queue, message(1))
    grant = queue.next_grant(T0)
    assert grant == wait_ms if waits else isinstance(grant, Grant)
    assert counted(queue) == ([1] if waits else [])


def test_what_is_strict_waits_for_the_quota_for_itself_and_in_its_order():
    lanes = [Lane("plain"), Lane("first", strict=True), Lane("second", strict=True)]
    queue = SendQueue(ToldPace(), lanes)
    offered(queue, *(message(lane, lane=lane) for lane in ("plain", "second", "first")))
    assert [queue.next_grant(T0).lane for _ in range(3)] == ["first", "second", "plain"]
    assert [told[3] for told in queue.pace.heard if told[0] == "wait"] == [None, None, 1]


def test_lanes_have_turns_by_their_weights_and_what_they_take_on_the_wire():
    queue = SendQueue(ToldPace(room=1e9, lump=100), [Lane("three", weight=3), Lane("one")])
    for number in range(12):
        offered(queue, message(number, lane="three"), message(number, 250, lane="one"))
    found = [queue.next_grant(T0).lane for _ in range(14)]
    assert found == ["three", "one", *["three"] * 5, "one", *["three"] * 5, "one"], "200 bytes / 3, and 350"


def test_a_lane_of_a_large_weight_pays_too():
    """A grant is 2/3 to the one and 1.18 to the other."""
    queue = SendQueue(ToldPace(room=1e9, lump=100), [Lane("a", weight=300), Lane("b", weight=170)])
    for number in range(7):
        offered(queue, message(number, lane="a"), message(number, lane="b"))
    assert [queue.next_grant(T0).lane for _ in range(7)] == ["a", "b", "a", "b", "a", "a", "b"]


def put_back(queue, messages):
    """Those that do not wait again."""
    return [message for message in reversed(messages) if not queue.put_back(message)]


def test_what_is_refused_waits_before_all_others():
    queue = SendQueue(ToldPace(lump=300), [Lane(newest=True)])
    every = offered(queue, *(message(number, expires_at_ms=T0 + number, key=number) for number in range(3)))
    queue.next_grant(T0)
    assert queue.next_expiry_ms is None
    offered(queue, message(3))
    assert put_back(queue, every[1:]) == []
    assert counted(queue) == [1, 2, 3]
    assert [(each.home is None, each.is_gone) for each in every] == [(True, True), (False, False), (False, False)]
    assert queue.next_expiry_ms == T0 + 1
    assert queue.offer(message("newer", key=2)).replaced == (every[2],)
    assert payloads(queue.next_grant(T0).messages) == [1, "newer", 3]


def test_what_is_refused_gives_way_to_the_newer_one_of_its_key():
    """It took the newer one's place among the newest, and the next one took its: the topic ended on the middle one."""
    queue = SendQueue(ToldPace(lump=300), [Lane(newest=True)])
    first, other, beside = offered(queue, message(1, key="k"), message(2, key="l"), message(3, key="k", tenant="b"))
    queue.next_grant(T0)
    offered(queue, message("newer", key="k"))
    assert put_back(queue, [first, other, beside]) == [first]
    assert payloads(queue) == [2, 3, "newer"]  # the same key of another tenant is another one
    assert counted(queue) == [2, 3, "newer"]
    assert first.is_gone
    (replaced,) = queue.offer(message("newest", key="k")).replaced
    assert replaced.payload == "newer"
    assert payloads(queue) == [2, 3, "newest"]


def test_tenants_of_the_same_name_are_one():
    """Two calls name it in strings of their own."""
    queue = SendQueue(ToldPace(lump=300), [Lane(newest=True)])
    first, second = (message(number, key="k", tenant=b"tenant".decode()) for number in range(2))
    offered(queue, first)
    queue.next_grant(T0)
    offered(queue, second)
    assert put_back(queue, [first]) == [first]


def test_what_is_refused_brings_its_lane_back():
    queue = SendQueue(ToldPace(), [Lane("a"), Lane("strict", strict=True)])
    for lane in ("a", "strict"):
        offered(queue, message(lane, lane=lane))
        (gone,) = queue.next_grant(T0).messages
        assert queue.next_grant(T0) == NEVER
        assert queue.put_back(gone)
        assert queue.next_grant(T0).messages == [gone]
        assert queue.next_grant(T0) == NEVER


# Other brokers, and the end ---------------------------------------------------------------------------------------


def test_what_goes_to_another_broker_leaves_no_deadline_here():
    queue, other = SendQueue(ToldPace()), SendQueue(ToldPace(room=0.0))
    gone, stays = offered(queue, message("gone", expires_at_ms=T0 + 1), message("stays", expires_at_ms=T0 + 2))
    queue.take_out([gone])
    assert (counted(queue), len(queue._expiries), queue.next_expiry_ms) == (["stays"], 1, T0 + 2)
    for number in range(3):
        other.adopt(gone, number)
    assert [(each.partition, each.is_gone, each.heir) for each in other] == [(n, False, None) for n in range(3)]
    assert (counted(other), other.next_expiry_ms, gone.is_gone) == (["gone"] * 3, T0 + 1, True)
    assert not stays.is_gone


def test_all_that_waits_can_be_taken_out():
    queue = SendQueue(ToldPace(room=200.0), [Lane("a")])
    offered(queue, message(1, tenant="x"), message(2, tenant="x"), message(3, tenant="y", expires_at_ms=T0))
    offered(queue, message(4, lane="a"))
    assert payloads(queue.purge()) == [4, 1, 2, 3]
    assert (counted(queue), queue._expiries, queue.next_grant(T0)) == ([], [], NEVER)


@pytest.mark.parametrize(("now_ms", "waits_ms"), [(T0 + 5, 5), (T0, 0), (T0 - 1, 0)])
def test_each_lane_tells_how_long_its_oldest_has_waited(now_ms, waits_ms):
    queue = SendQueue(ToldPace(), [Lane("a")])
    offered(queue, message(1, 30, at_ms=T0), message(2, 20, at_ms=T0 + 9))
    assert queue.state(now_ms) == {"a": LaneState(0, 0, 0), "": LaneState(2, 50, waits_ms)}
