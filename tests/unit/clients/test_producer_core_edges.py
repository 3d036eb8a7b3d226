"""What a producer's core answers to the millisecond and the byte, with queues and paces that say what the test says."""

from math import inf
from typing import Any

import pytest

from kclient_quota.clients.librdkafka.partitioner import Partitioner
from kclient_quota.clients.limits import Limit
from kclient_quota.clients.producer.core import Lost, ProducerCore
from kclient_quota.clients.producer.routes import NO_BROKER, Routes
from kclient_quota.clients.shared_pace import HUNGRY_MS
from kclient_quota.pacing.sending.lanes import Full, Lane
from kclient_quota.pacing.sending.send_queue import NEVER, Grant, Offered
from kclient_quota.pacing.sending.turns import Waiting
from tests.unit.clients.producer_world import LIMITED, message


class Pace:
    """Of one broker."""

    def __init__(self) -> None:
        self.throttled_until_ms = self.room_ms = self.outstanding = self.granted = 0
        self.lump = 100
        self.asked: list[tuple[int, int]] = []
        self.heard: list[tuple[int, int, bool]] = []
        self.is_elsewhere = False
        self.delivered: list[tuple[int, int]] = []

    def throttled_for_ms(self, now_ms: int) -> int:
        return max(0, self.throttled_until_ms - now_ms)

    blocked_for_ms = told_for_ms = throttled_for_ms

    def requests_per_s(self, _now_ms: int) -> float:
        return 0.0

    def room_in_ms(self, raw_bytes: int, now_ms: int) -> int:
        self.asked.append((raw_bytes, now_ms))
        return self.room_ms

    def lump_bytes(self, places: int) -> int:
        return self.lump * places

    def on_wire(self, nbytes: int, now_ms: int, *, learns: bool) -> bool:
        self.heard.append((nbytes, now_ms, learns))
        return self.is_elsewhere

    def on_delivered(self, raw_bytes: int, now_ms: int, *, arrived: bool) -> None:
        self.delivered.append((raw_bytes, now_ms))

    def on_throttle(self, throttle_ms: int, now_ms: int, *, for_bytes: bool = True) -> None:
        assert for_bytes
        self.throttled_until_ms = now_ms + throttle_ms


class Queue:
    """Takes what comes unless it is to wait, and grants what it is told to."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.wait_ms = 0
        self.came: list[Waiting] = []
        self.grants: list[Any] = []
        self.expired: list[Waiting] = []
        self.next_expiry_ms: int | None = None
        self.free = 0.0
        self.full = Full.BLOCK

    def __len__(self) -> int:
        return len(self.came)

    def lane(self, name: str) -> Lane:
        return Lane(name, full=self.full)

    def offer(self, offered: Waiting) -> Offered:
        if self.wait_ms:
            return Offered(accepted=False, wait_ms=self.wait_ms)
        self.came.append(offered)
        return Offered(accepted=True)

    def free_bytes(self, lane: str, most: float) -> float:
        return min(self.free, most)

    def next_grant(self, now_ms: int) -> Any:
        return self.grants.pop(0) if self.grants else NEVER

    def expire(self, now_ms: int) -> list[Waiting]:
        gone, self.expired = self.expired, []
        return gone

    def purge(self) -> list[Waiting]:
        gone, self.came = self.came, []
        return gone


def played(*numbers: int, limit: Limit = LIMITED, max_delay_ms: int = 1_000) -> tuple[ProducerCore, list[Any]]:
    """A core and the queues of these brokers; of the only one without a number where none are given."""
    core = ProducerCore(lambda _number, _limit: Queue(), Routes(Partitioner()), limit, max_delay_ms)  # type: ignore[arg-type,return-value]
    core.brokers.is_split = bool(numbers)
    return core, [core.brokers.get(number).queue for number in numbers or (NO_BROKER,)]


def yes(_message: Waiting) -> bool:
    return True


def never(_message: Waiting) -> None:
    raise AssertionError("there is room")


def of(raw_bytes: int, **more: Any) -> Waiting:
    made = message(raw_bytes, 0)
    for name, value in more.items():
        setattr(made, name, value)
    return made


# Offers


def test_who_waits_before_the_queue_is_told_when_the_first_of_them_may_come_and_nothing_is_offered_by_asking() -> None:
    core, (queue,) = played()
    queue.wait_ms, queue.pace.room_ms = 70, 30
    first, second = of(11), of(22)
    assert core.offer(first, 5) == 30
    queue.wait_ms = 0
    assert core.offer(second, 6) == 30
    assert core.offer(of(33), 7, is_patient=False) == 30
    assert core.retry(of(44), 8) == (30, None)
    assert queue.pace.asked == [(11, 5), (11, 6), (11, 7), (44, 8)]
    assert queue.came == []
    assert core.all_before() == [first, second]


def test_who_does_not_wait_is_told_what_the_queue_says() -> None:
    core, (queue,) = played()
    queue.wait_ms, queue.pace.room_ms = 70, 30
    assert core.offer(of(11), 5, is_patient=False) == 70
    assert core.all_before() == []


def test_nobody_is_told_to_come_again_at_once() -> None:
    core, (queue,) = played()
    queue.wait_ms = 70
    assert core.offer(of(11), 0) == 1
    assert core.offer(of(11), 0, is_patient=False) == 1
    assert core.retry(of(11), 0) == (1, None)


def test_whose_quota_is_used_up_is_told_by_its_number_where_it_has_one() -> None:
    core, (queue, _) = played(0, 4)
    core.brokers.routes.learn("orders", {0: 0, 1: 4}, 0)
    queue.pace.room_ms = 9
    assert core.retry(message(11, 0, partition=0), 0) == (9, 0)
    assert core.retry(message(11, 0, partition=1), 0) == (1, 4)


@pytest.mark.parametrize(("throttled_ms", "wait_ms"), [(999, 0), (1_000, 0), (1_001, 1_001)])
def test_a_throttle_is_waited_for_outside_the_queue_where_it_outlasts_the_delay(
    throttled_ms: int, wait_ms: int
) -> None:
    core, (queue,) = played()
    queue.pace.throttled_until_ms = throttled_ms
    assert core.offer(of(11), 0, is_patient=False) == wait_ms
    assert len(queue) == (not wait_ms)


def test_what_may_be_dropped_is_offered_whatever_lasts() -> None:
    core, (queue,) = played()
    core.is_careful, queue.full = True, Full.DROP_OLDEST
    queue.pace.throttled_until_ms, queue.pace.outstanding = 5_000, 1
    assert core.offer(of(11), 0) == 0
    assert len(queue) == 1


@pytest.mark.parametrize(
    ("careful", "outstanding", "waiting", "wait_ms"),
    [(False, 1, 1, 0), (True, 0, 0, 0), (True, 1, 0, 10), (True, 0, 1, 10), (True, 1, 1, 10)],
)
def test_who_is_careful_looks_again_in_ten_milliseconds_while_anything_is_under_way(
    careful: bool, outstanding: int, waiting: int, wait_ms: int
) -> None:
    core, (queue,) = played()
    core.is_careful, queue.pace.outstanding, queue.came = careful, outstanding, [of(1)] * waiting
    assert core.offer(of(11), 0, is_patient=False) == wait_ms


# Who is let in


def waiting(core: ProducerCore, queue: Any, *them: Waiting) -> None:
    queue.wait_ms = 50
    for each in them:
        assert core.offer(each, 0)


def test_who_is_let_in_has_waited_in_the_queue_since_then_and_who_is_not_is_given_back() -> None:
    core, (queue,) = played()
    first, second = of(1), of(2)
    waiting(core, queue, first, second)
    given_back: list[Waiting] = []
    assert list(core.admit(7, yes, given_back.append)) == []
    assert given_back == [first]
    assert (first.queued_at_ms, second.queued_at_ms) == (7, 0)
    queue.wait_ms = 0
    assert list(core.admit(8, yes, never)) == [first, second] == queue.came
    assert (first.queued_at_ms, second.queued_at_ms) == (8, 8)
    assert core.brokers.get(NO_BROKER).before == {}


def test_who_is_not_wanted_any_more_is_forgotten_and_the_next_one_let_in() -> None:
    core, (queue,) = played()
    first, second = of(1), of(2)
    waiting(core, queue, first, second)
    queue.wait_ms = 0
    assert list(core.admit(7, lambda each: each is second, never)) == [second]
    assert core.all_before() == []
    assert core.lost(7) == []


def test_what_is_not_worth_sending_any_more_is_lost_to_the_millisecond() -> None:
    core, (queue,) = played()
    late = of(1, expires_at_ms=40)
    waiting(core, queue, late)
    assert list(core.admit(39, yes, lambda _: None)) == []
    assert list(core.admit(40, yes, never)) == [late]
    assert core.lost(40) == [(late, Lost.EXPIRED)]
    assert queue.came == []


def test_one_line_that_waits_keeps_no_other_from_being_let_in() -> None:
    core, (one, other) = played(1, 2)
    core.brokers.routes.learn("orders", {0: 1, 1: 2}, 0)
    first, second = of(1, partition=0), of(2, partition=1)
    waiting(core, one, first)
    waiting(core, other, second)
    other.wait_ms = 0
    assert list(core.admit(7, yes, lambda _: None)) == [second]
    assert core.all_before() == [first]


# What leaves


def grant(*sizes: int, wire_bytes: int = 500) -> Grant:
    return Grant("orders", 3, [of(size) for size in sizes], sum(sizes), wire_bytes, "")


@pytest.mark.parametrize(
    ("lump", "raw_bytes", "fill"), [(100, 99, 0.99), (100, 100, 1.0), (100, 101, 1.0), (1, 1, 1.0), (0, 1, 1.0)]
)
def test_how_much_of_the_largest_batch_for_one_partition_leaves(lump: int, raw_bytes: int, fill: float) -> None:
    core, (queue,) = played()
    queue.came, queue.grants, queue.pace.lump = [of(1)], [grant(raw_bytes), 4], lump
    (sent,) = core.sent(0)
    assert (sent.partition, sent.wire_bytes, sent.fill) == (3, 500, fill)
    assert [each.raw_bytes for each in sent.messages] == [raw_bytes]
    assert core.wait_ms(0) == 4


def test_each_broker_waits_for_itself_and_the_shortest_of_them_is_waited_for() -> None:
    core, queues = played(1, 2, 3)
    for queue, wait_ms in zip(queues, (70, 30, 50), strict=True):
        queue.came, queue.grants = [of(1)], [wait_ms]
    assert list(core.sent(0)) == []
    assert core.wait_ms(0) == 30


def test_whose_turn_it_is_says_again_and_again_that_it_waits() -> None:
    """Of 512,000 B/s one that sent 200 kB at a time had two messages in 25 s, beside three whose messages are small."""
    core, (queue,) = played()
    queue.came, queue.grants = [of(1)], [5_000]
    assert list(core.sent(0)) == []
    assert 2 * core.wait_ms(0) < HUNGRY_MS, "once may be late"


def test_who_has_nothing_to_send_takes_no_turn() -> None:
    class Turns:
        def may_go(self, who: object, broker: int, now_ms: int) -> bool:
            raise AssertionError("nothing waits")

    core, (queue,) = played()
    core.shared_pace = Turns()  # type: ignore[assignment]
    core.brokers.get(NO_BROKER).wait_ms = 3
    assert list(core.sent(0)) == []
    assert core.wait_ms(0) == inf
    core.is_careful, queue.came, queue.pace.outstanding = True, [of(1)], 1
    assert list(core.sent(0)) == []
    assert core.wait_ms(0) == inf


def test_who_is_not_careful_sends_while_something_is_under_way() -> None:
    core, (queue,) = played()
    queue.came, queue.grants, queue.pace.outstanding = [of(1)], [grant(1), grant(2), NEVER], 1
    assert len(list(core.sent(0))) == 2


def test_the_next_look_is_for_the_first_that_expires_in_or_before_a_queue() -> None:
    core, (queue,) = played()
    core.sent(0)
    waiting(core, queue, of(1), of(2, expires_at_ms=30))
    assert core.wait_ms(0) == inf  # those behind the first are looked at when it has gone
    core.waiting()
    waiting(core, queue, of(1, expires_at_ms=300), of(2, expires_at_ms=30))
    assert [core.wait_ms(now_ms) for now_ms in (0, 299, 300, 301)] == [300, 1, 1, 1]
    queue.next_expiry_ms = 200
    assert [core.wait_ms(now_ms) for now_ms in (0, 199, 200, 201)] == [200, 1, 0, 0]


# What is forgotten


def test_those_that_wait_for_room_leave_at_once_and_those_in_a_queue_stay() -> None:
    core, (one, other) = played(1, 2)
    core.brokers.routes.learn("orders", {0: 1, 1: 2}, 0)
    them = [of(1, partition=0), of(2, partition=1)]
    one.came = [of(3)]
    waiting(core, one, them[0])
    waiting(core, other, them[1])
    assert core.waiting() == them
    assert core.waiting() == core.all_before() == []
    assert len(one) == 1


def test_what_is_purged_is_what_waits_in_queues_by_broker() -> None:
    core, (one, other) = played(1, 2)
    core.brokers.routes.learn("orders", {0: 1, 1: 2}, 0)
    them = [of(1, partition=0), of(2, partition=1), of(3), of(4)]
    waiting(core, one, them[0])
    waiting(core, other, them[1])
    one.came, other.came = [them[2]], [them[3]]
    assert core.purge() == [them[2], them[3]]
    assert core.waiting() == [them[0], them[1]]
    assert core.is_empty
    assert core.purge() == []


def test_it_is_empty_when_nothing_waits_in_a_queue_nor_before_one() -> None:
    core, (one, other) = played(1, 2)
    found = [core.is_empty]
    other.came = [of(1)]
    found.append(core.is_empty)
    other.came = []
    core.brokers.routes.learn("orders", {0: 1, 1: 2}, 0)
    waiting(core, one, of(1, partition=0))
    found.append(core.is_empty)
    assert found == [True, False, False]


def test_what_expired_in_any_queue_is_lost_once() -> None:
    core, (one, other) = played(1, 2)
    one.expired, other.expired = [of(1)], [of(2), of(3)]
    assert [(each.raw_bytes, why) for each, why in core.lost(0)] == [(size, Lost.EXPIRED) for size in (1, 2, 3)]
    assert core.lost(0) == []


# What may come unasked


def test_as_much_may_come_unasked_as_the_fullest_queue_has_room_for() -> None:
    core, (one, other) = played(1, 2)
    for free, found in (((9.9, 5.9), 5), ((3.0, 5.9), 3), ((2e6, 3e6), 1_000_000), ((-4.0, 5.0), 0)):
        one.free, other.free = free
        assert core.free_bytes(0) == found
    one.free = other.free = 7.0
    other.pace.throttled_until_ms = 1_001
    assert (core.free_bytes(0), core.free_bytes(1)) == (0, 7)


def test_nothing_comes_unasked_to_a_lane_in_which_somebody_waits_for_room() -> None:
    core, (queue,) = played()
    waiting(core, queue, of(1, lane="bulk"))
    queue.free = 7.0
    assert core.free_bytes(0, b"bulk".decode()) == 0
    assert core.free_bytes(0, "alerts") == 7


def test_nothing_comes_unasked_before_what_waits_where_nothing_limits_bytes_any_more() -> None:
    core, (queue,) = played()
    queue.free = 7.0
    core.is_free = True
    assert core.free_bytes(0) == 7
    queue.came = [of(1)]
    assert core.free_bytes(0) == 0


# What went


def test_what_went_straight_earlier_tells_nothing_of_what_callers_hand_over_meanwhile() -> None:
    core, (queue,) = played(4)
    queue.pace.granted = 0
    core.spare_bytes(0, -1.0, may=False)  # callers have handed over a byte
    core.on_wire([(4, 100)], 1, is_own=False)
    core.on_wire([(4, 200)], 2)
    core.on_wire([(4, 300)], 3)
    assert queue.pace.heard == [(100, 1, False), (200, 2, False), (300, 3, True)]
