"""Which partition and which broker messages go to, when leaders are asked for, and who moves when they change."""

from math import inf
from typing import Any

import pytest

from kclient_quota.clients.librdkafka.partitioner import Partitioner
from kclient_quota.clients.producer.routes import NO_BROKER, ROUTE_MS, Broker, Brokers, Route, Routes
from kclient_quota.pacing.sending.send_queue import Grant, SendQueue
from kclient_quota.pacing.sending.turns import ANY_PARTITION, Line, Waiting
from tests.unit.clients.producer_world import LIMITED, core_of, message


def routes() -> Routes:
    return Routes(Partitioner())


def brokers(*numbers: int) -> Brokers:
    """These, of a cluster of several; nobody's yet where none are given."""
    found = core_of(LIMITED).brokers
    found.is_split = bool(numbers)
    for number in numbers:
        found.get(number)
    return found


# One topic


@pytest.mark.parametrize(
    ("leaders", "found"),
    [([3, 1, 3, 2], [3, 1, 2]), ([0, NO_BROKER, 0], [0]), ([NO_BROKER], [NO_BROKER]), ([NO_BROKER, 5], [5])],
)
def test_the_brokers_of_a_topic_are_those_that_lead_a_partition(leaders: list[int], found: list[int]) -> None:
    assert Route(leaders, 7).brokers == found


def test_messages_that_may_go_anywhere_go_to_the_brokers_partition_that_has_had_least() -> None:
    route = Route([1, 2, 1, 1], 0)
    assert route.sent == [0, 0, 0, 0]
    assert [route.pick(1, nbytes) for nbytes in (30, 20, 40, 5, 10, 1)] == [0, 2, 3, 2, 2, 0]
    assert [route.pick(2, 7), route.pick(2, 8)] == [1, 1]
    assert route.sent == [31, 15, 35, 40]
    assert route.pick(9, 1) == 1  # who leads none may have been the leader: any of them
    assert route.sent == [31, 16, 35, 40]


def test_leaders_are_by_partition_and_a_partition_that_is_not_told_of_has_none() -> None:
    learns = routes()
    assert learns.get("orders") is None
    learns.learn("orders", {2: 5, 0: 4}, 70)
    route = learns.get("orders")
    assert route is not None
    assert (route.leaders, route.found_at_ms) == ((4, NO_BROKER, 5), 70)
    assert learns.partitions == {"orders": 3}


@pytest.mark.parametrize(("partitions", "kept"), [(1, False), (2, True), (3, False)])
def test_what_partitions_have_had_counts_as_long_as_there_are_as_many(partitions: int, kept: bool) -> None:
    learns = routes()
    learns.learn("orders", {0: 1, 1: 1}, 0)
    before = learns.get("orders")
    assert before is not None
    before.pick(1, 10)
    learns.learn("orders", dict.fromkeys(range(partitions), 1), 5)
    after = learns.get("orders")
    assert after is not None
    assert after.sent == ([10, 0] if kept else [0] * partitions)
    assert learns.partitions == {"orders": partitions}


@pytest.mark.parametrize("partition", [0, 1, 7])
def test_a_partition_that_was_asked_for_stays(partition: int) -> None:
    assert routes().partition(Route([1, 1], 0), b"key", partition) == partition


@pytest.mark.parametrize("key", [None, b"", b"key"])
def test_the_only_partition_is_everybodys_so_that_all_keep_their_order(key: bytes | None) -> None:
    assert routes().partition(Route([1], 0), key, -1) == 0


def test_a_key_decides_among_as_many_partitions_as_there_are() -> None:
    for count in (1, 2, 5):
        assert routes().partition(Route([1] * count, 0), b"key", -1) == Partitioner().partition(b"key", count)
    assert routes().partition(Route([1, 1], 0), None, -1) is None


def test_librdkafkas_number_for_no_leader_is_that_of_no_broker() -> None:
    assert NO_BROKER == -1
    assert Route([-1, 4], 0).brokers == [4]
    assert Broker(-1, core_of(LIMITED).brokers.get(-1).queue, {}).wait_ms == inf


# The brokers


def test_one_broker_is_all_of_them_until_there_are_several() -> None:
    one = brokers()
    assert len(one) == 0
    only = one.get(3)
    assert (only.number, only.before) == (NO_BROKER, {})
    assert one.get(5) is one.known(7) is one.get(NO_BROKER) is only
    assert list(one) == [only]
    one.is_split = True
    assert one.known(7) is None
    seven = one.get(7)
    assert one.known(7) is one.get(7) is seven is not only
    assert (seven.number, len(one)) == (7, 2)
    assert seven.queue is not only.queue


def test_each_queue_is_made_for_its_broker() -> None:
    made: list[int] = []

    def new_queue(number: int) -> SendQueue:
        made.append(number)
        return core_of(LIMITED).brokers.get(number).queue

    several = Brokers(new_queue, routes())
    several.get(4)
    several.is_split = True
    for number in (4, 0, 4, 0):
        several.get(number)
    assert made == [NO_BROKER, 4, 0]


def test_one_broker_more_is_a_cluster_of_several_for_good() -> None:
    several = brokers()
    for count, is_split in ((0, False), (1, False), (2, True), (1, True)):
        several.learn_routes({"orders": {}}, count, 0)
        assert several.is_split is is_split
    assert several.routes.get("orders") is None


# When leaders are asked for


def test_leaders_are_asked_for_again_after_half_a_minute_and_after_a_second_without_an_answer() -> None:
    some = brokers()
    assert [some.wants_route("orders", at) for at in (10_000, 10_000, 10_999, 11_000, 11_999, 12_000)] == [
        True, False, False, True, False, True
    ]  # fmt: skip
    assert some.wants_route("bills", 12_000)
    some.learn_routes({"orders": {0: 1}}, 1, 20_000)
    assert ROUTE_MS == 30_000
    assert [some.wants_route("orders", at) for at in (20_000, 49_999, 50_000, 50_999, 51_000)] == [
        False, False, True, False, True
    ]  # fmt: skip


def test_nobody_is_asked_while_any_broker_throttles() -> None:
    some = brokers(1, 2)
    some.get(2).queue.pace.on_throttle(60_000, 0)
    assert not some.wants_route("orders", 59_999)
    assert some.wants_route("orders", 60_000)


# Whose a message is


def placed(some: Brokers, *, key: str | None = None, partition: int = ANY_PARTITION) -> tuple[int, int]:
    """The broker and the partition of a message."""
    one = message(10, 0, key=key, partition=partition)
    return some.of(one, 0).number, one.partition


def test_a_message_goes_to_the_leader_of_its_partition() -> None:
    some = brokers(1, 2)
    assert placed(some, partition=1) == (NO_BROKER, 1)
    assert placed(some, key="a") == (NO_BROKER, ANY_PARTITION)
    some.learn_routes({"orders": {0: 1, 1: 2, 2: NO_BROKER}}, 2, 0)
    assert [placed(some, partition=number) for number in range(5)] == [
        (1, 0), (2, 1), (NO_BROKER, 2), (NO_BROKER, 3), (NO_BROKER, 4)
    ]  # fmt: skip
    keyed = Partitioner().partition("a", 3)
    assert keyed is not None
    assert placed(some, key="a") == ([1, 2, NO_BROKER][keyed], keyed)


def offered(broker: Broker, *sizes: int) -> None:
    for size in sizes:
        assert broker.queue.offer(message(size, 0, partition=0)).accepted


def test_a_message_that_may_go_anywhere_goes_to_whoever_would_take_it_first() -> None:
    some = brokers(1, 2)
    some.learn_routes({"orders": {0: 1, 1: 2}}, 2, 0)
    assert placed(some) == (1, ANY_PARTITION)
    some.get(1).queue.pace.granted = 1
    assert placed(some) == (2, ANY_PARTITION)  # as soon, but it has had less
    offered(some.get(2), 1)
    assert placed(some) == (1, ANY_PARTITION)
    some.get(1).queue.pace.on_throttle(2_000, 0)
    offered(some.get(2), 5_000)
    assert placed(some) == (2, ANY_PARTITION)


def test_how_busy_a_broker_is_counts_what_waits_in_its_queue_and_before_it() -> None:
    broker = brokers(1).get(1)
    assert broker.busy(0) == (0, 0)
    offered(broker, 1_000, 1_500)
    before(broker, message(2_000, 0), message(500, 0))
    broker.queue.pace.granted = 7
    assert broker.queue.pace.time_of_ms(5_000) > 50
    assert broker.busy(0) == (broker.queue.pace.time_of_ms(5_000), 5_007)
    other = brokers(2).get(2)
    other.queue.pace.on_throttle(9_000, 0)
    assert other.busy(1_000) == (8_000, 0)


@pytest.mark.parametrize("count", [1, 2])
def test_those_that_wait_for_room_are_not_looked_at_again_for_each_that_comes(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = core_of(LIMITED)
    core.brokers.learn_routes({"orders": {number: number + 1 for number in range(count)}}, count, 0)
    monkeypatch.setattr(Line, "__iter__", None)
    monkeypatch.setattr(Broker, "waiting", None)
    waits = [core.offer(message(1_000, 0), 0) for _ in range(100)]
    assert waits[0] == 0
    assert waits[-1] > 0
    assert sum(line.raw_bytes for each in core.brokers for line in each.before.values()) > 50_000


def test_where_there_is_no_choice_nobody_asks_how_busy_a_broker_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broker, "busy", None)
    some = brokers(1, 2)
    some.learn_routes({"orders": {0: 2, 1: 2}}, 2, 0)
    assert placed(some) == (2, ANY_PARTITION)


def test_what_leaves_together_goes_where_it_must_or_to_the_partition_that_has_had_least() -> None:
    some = brokers(1, 2)

    def goes(partition: int, topic: str = "orders", broker: int = 1) -> int:
        return some.partition_of(some.get(broker), Grant(topic, partition, [], 40, 100, ""))

    assert goes(ANY_PARTITION) == ANY_PARTITION  # nobody knows who leads it
    some.learn_routes({"orders": {0: 2, 1: 1, 2: 1}}, 2, 0)
    assert [goes(0), goes(1)] == [0, 1]
    assert [goes(ANY_PARTITION) for _ in range(3)] == [1, 2, 1]
    assert goes(ANY_PARTITION, broker=2) == 0
    route = some.routes.get("orders")
    assert route is not None
    assert route.sent == [40, 80, 40]


# Who moves


def where(some: Brokers) -> dict[int, list[tuple[int, int]]]:
    """Sizes and partitions of what waits in each queue and before it."""
    return {
        each.number: [(one.raw_bytes, one.partition) for one in [*each.queue, *each.waiting()]]
        for each in some
        if len(each.queue) or each.before
    }


def before(broker: Broker, *them: Waiting) -> None:
    line = broker.before["", None] = Line()
    for each in them:
        line.append(each)


def test_what_may_go_anywhere_waits_on_where_it_is_as_long_as_that_broker_leads_any() -> None:
    some = brokers(1, 2)
    some.learn_routes({"orders": {0: 1, 1: 2}}, 2, 0)
    some.get(1).queue.offer(message(500, 0))
    before(some.get(1), message(700, 0))
    some.learn_routes({"orders": {0: 2, 1: 1}}, 2, 1)
    assert where(some) == {1: [(500, ANY_PARTITION), (700, ANY_PARTITION)]}
    some.learn_routes({"orders": {0: 2, 1: 2}}, 2, 2)
    assert where(some) == {2: [(500, ANY_PARTITION), (700, ANY_PARTITION)]}


def test_what_waited_for_nobody_goes_to_those_that_lead_once_they_are_known() -> None:
    some = brokers()
    only = some.get(NO_BROKER)
    for size in (500, 300):
        only.queue.offer(message(size, 0))
    before(only, message(700, 0), message(900, 0, partition=1))
    some.learn_routes({"orders": {0: 1, 1: 1}}, 1, 0)
    assert where(some) == {NO_BROKER: [(500, -1), (300, -1), (700, -1), (900, 1)]}
    some.learn_routes({"orders": {0: 1, 1: 2}}, 2, 0)
    found: Any = where(some)
    assert NO_BROKER not in found
    assert sorted(one for them in found.values() for one in them) == [(300, -1), (500, -1), (700, -1), (900, 1)]
    assert (900, 1) in found[2]
    assert only.before == {}


def test_what_has_a_partition_moves_with_its_leader_in_order_and_what_has_not_moved_stays_itself() -> None:
    some = brokers(1, 2)
    some.learn_routes({"orders": {0: 1, 1: 1}}, 2, 0)
    one = some.get(1)
    stays = message(100, 0, partition=0)
    for each in (message(200, 0, partition=1), stays, message(300, 0, partition=1)):
        one.queue.offer(each)
    before(one, message(400, 0, partition=1), message(500, 0, partition=0), message(600, 0, partition=1))
    some.learn_routes({"orders": {0: 1, 1: 2}}, 2, 0)
    assert where(some) == {1: [(100, 0), (500, 0)], 2: [(200, 1), (300, 1), (400, 1), (600, 1)]}
    assert list(one.queue) == [stays]
    assert some.get(2).queue.raw_bytes == 500


def test_a_key_keeps_its_order_where_its_topic_is_forgotten_while_it_waits() -> None:
    """Librdkafka is left to choose for those that come; for those before them it was not, and either went first."""
    known = brokers(1, 2)
    known.learn_routes({"orders": {0: 1, 1: 2}}, 2, 0)
    before, after = (message(10, at_ms, key="key") for at_ms in (0, 1))
    known.of(before, 0).queue.offer(before)
    assert before.partition != ANY_PARTITION
    known.learn_routes({"orders": {}}, 2, 1)
    known.of(after, 1).queue.offer(after)
    waiting = list(known.get(NO_BROKER).queue)
    assert [each.payload for each in waiting] == [before.payload, after.payload]
    assert {each.place for each in waiting} == {("orders", ANY_PARTITION)}
