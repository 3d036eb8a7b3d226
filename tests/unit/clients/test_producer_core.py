"""What a producer's core decides: who goes, who waits, where to."""

import pytest

from kclient_quota.clients.librdkafka.partitioner import Partitioner
from kclient_quota.clients.limits import UNKNOWN, Limit
from kclient_quota.clients.producer.core import ENOUGH_BYTES, Lost, ProducerCore
from kclient_quota.clients.producer.routes import NO_BROKER, ROUTE_MS
from kclient_quota.config import LimitSource
from kclient_quota.pacing.sending.turns import Waiting
from tests.unit.clients.producer_world import LIMITED, NONE, core_of, message


def sent(core: ProducerCore, now_ms: int) -> list[Waiting]:
    return [one for each in core.sent(now_ms) for one in each.messages]


def no_claim(_message: Waiting) -> bool:
    return True


def keep(_message: Waiting) -> None:
    """Nothing to give back."""


BY_REQUESTS = Limit(None, 50.0, LimitSource.CLUSTER)


@pytest.mark.parametrize(
    ("limit", "limited"),
    [(LIMITED, True), (UNKNOWN, True), (NONE, False), (BY_REQUESTS, False)],
)
def test_who_is_limited(limit: Limit, limited: bool) -> None:
    assert core_of(limit).is_limited(0) is limited


@pytest.mark.parametrize(("throttle_ms", "limited"), [(1_000, False), (1_001, True)])
def test_a_throttle_of_requests_limits_no_bytes(throttle_ms: int, limited: bool) -> None:
    """They are no longer than a window; what is longer is of bytes, by a quota that has not been seen yet."""
    core = core_of(BY_REQUESTS)
    core.on_throttle(1, throttle_ms, 0)
    assert core.is_limited(1) is limited
    assert (core.brokers.get(1).queue.pace.throttled_for_ms(1) > 0) is limited


def test_a_percentage_by_hand_says_nothing_of_bytes() -> None:
    """Who learns what bytes are limited to takes a throttle for theirs."""
    by_hand = Limit(None, 5.0, LimitSource.LEARNED)
    assert not (by_hand.frees_bytes)
    assert not (by_hand.is_of_requests(500))
    core = core_of(by_hand)
    core.on_throttle(1, 500, 0)
    assert core.is_limited(1)
    assert core.brokers.get(1).queue.pace.throttled_for_ms(1) == 499


def test_what_waits_is_handed_over_first_when_nothing_limits_any_more() -> None:
    """With callers who never pause something would always wait, and nobody go straight to librdkafka."""
    core = core_of(LIMITED)
    for number in range(50):
        core.offer(message(2_000, number), number)
    waiting = len(core.all_before())
    assert waiting > 10
    core.set_limit(NONE, 60)
    assert core.free_bytes(60) == 0
    assert core.offer(message(100, 61), 61) > 0
    took = []
    for now_ms in range(70, 70 + 10 * waiting, 5):
        sent(core, now_ms)
        took += list(core.admit(now_ms, no_claim, keep))
    assert len(took) == waiting + 1
    assert core.is_empty
    assert not core.is_limited(1_000)
    assert core.free_bytes(1_000) > 0


def test_who_waits_for_a_throttle_goes_on_once_its_quota_is_gone() -> None:
    """What the broker still holds back is librdkafka's to wait for, as it is for plain confluent_kafka's callers."""
    core = core_of(LIMITED)
    assert core.offer(message(1_000, 0), 0) == 0
    sent(core, 0)
    core.on_throttle(NO_BROKER, 50_000, 10)
    assert core.offer(message(1_000, 20), 20) > 10_000
    core.set_limit(NONE, 30)
    assert len(list(core.admit(40, no_claim, keep))) == 1
    assert len(sent(core, 40)) == 1
    assert core.offer(message(1_000, 50), 50) == 0


def test_whoever_knows_of_no_quota_is_let_go_after_much_that_nobody_has_throttled() -> None:
    core = core_of(UNKNOWN)
    assert core.offer(message(100, 0), 0) == 0
    broker = core.brokers.get(NO_BROKER)
    core.on_delivered(broker, ENOUGH_BYTES, 10)
    assert not core.is_limited(10)
    core.on_throttle(1, 100, 20)
    assert core.is_limited(20)
    assert core.is_limited(1_000_000)


def test_a_full_queue_says_how_long_to_wait_and_lets_in_by_turns_of_arrival() -> None:
    core = core_of(LIMITED)
    came = [message(1_000, 0) for _ in range(300)]
    waits = [core.offer(each, 0) for each in came]
    taken = waits.index(next(wait for wait in waits if wait))
    assert 2 <= taken < 250
    assert all(waits[taken:])
    assert core.offer(message(10, 0), 0, is_patient=False) > 0
    order: list[Waiting] = []
    for now_ms in range(0, 8_000, 10):
        order += core.admit(now_ms, no_claim, keep)
        for each in core.sent(now_ms):
            core.on_delivered(each.broker, sum(one.raw_bytes for one in each.messages), now_ms)
    assert order == came[taken:]
    assert core.is_empty


def test_those_whose_callers_have_gone_are_passed_over() -> None:
    core = core_of(LIMITED)
    came = [message(1_000, 0) for _ in range(300)]
    waiting = [each for each in came if core.offer(each, 0)]
    wanted = waiting[1::2]
    let_in: list[Waiting] = []
    for now_ms in range(0, 10_000, 10):
        let_in += core.admit(now_ms, lambda each: any(each is one for one in wanted), keep)
        for each in core.sent(now_ms):
            core.on_delivered(each.broker, sum(one.raw_bytes for one in each.messages), now_ms)
    assert let_in == wanted


def test_a_long_throttle_is_waited_for_outside_the_queue_a_short_one_inside() -> None:
    core = core_of(LIMITED)
    core.on_throttle(1, 5_000, 0)
    assert core.offer(message(100, 0), 0) == 5_000
    assert core.retry(message(100, 0), 1_000) == (4_000, None)
    assert core.free_bytes(0) == 0
    assert list(core.admit(4_100, no_claim, keep))
    assert sent(core, 4_100) == []
    assert len(sent(core, 5_100)) == 1


def test_keys_go_where_librdkafka_would_send_them_and_others_to_whoever_is_idle() -> None:
    core = core_of(LIMITED)
    core.brokers.learn_routes({"orders": {0: 1, 1: 2, 2: 3}}, 3, 0)
    for number in range(60):
        core.offer(message(100, 0), 0)
        core.offer(message(100, 0, key=f"{number}"), 0)
    found: dict[int, list[Waiting]] = {}
    for now_ms in range(0, 5_000, 10):
        list(core.admit(now_ms, no_claim, keep))
        for each in core.sent(now_ms):
            found.setdefault(each.partition, []).extend(each.messages)
            core.on_delivered(each.broker, sum(one.raw_bytes for one in each.messages), now_ms)
    assert set(found) == {0, 1, 2}
    free = [sum(one.payload.key is None for one in messages) for messages in found.values()]
    assert sum(free) == 60
    assert max(free) <= 1.5 * min(free)


def test_what_may_go_anywhere_is_spread_evenly_over_partitions_of_one_broker() -> None:
    core = core_of(LIMITED)
    core.brokers.learn_routes({"orders": {0: 1, 1: 1, 2: 1}}, 1, 0)
    bytes_of = dict.fromkeys(range(3), 0)
    for now_ms in range(0, 30_000, 20):
        core.offer(message(1_000, now_ms), now_ms)
        list(core.admit(now_ms, no_claim, keep))
        for each in core.sent(now_ms):
            bytes_of[each.partition] += sum(one.raw_bytes for one in each.messages)
            core.on_delivered(each.broker, sum(one.raw_bytes for one in each.messages), now_ms)
    assert max(bytes_of.values()) <= 1.1 * min(bytes_of.values())


def test_a_topic_is_asked_for_once_and_again_when_it_is_old_but_not_under_a_throttle() -> None:
    core = core_of(LIMITED)
    assert core.brokers.wants_route("orders", 0)
    assert not core.brokers.wants_route("orders", 500)
    assert core.brokers.wants_route("orders", 1_000)
    core.brokers.learn_routes({"orders": {0: 1}}, 1, 1_000)
    assert not core.brokers.wants_route("orders", 1_000 + ROUTE_MS - 1)
    core.on_throttle(1, 5_000, ROUTE_MS)
    assert not core.brokers.wants_route("orders", ROUTE_MS + 2_000)
    assert core.brokers.wants_route("orders", ROUTE_MS + 6_000)


def test_the_state_goes_by_the_brokers_id_as_soon_as_it_is_known() -> None:
    core = core_of(LIMITED)
    core.offer(message(100, 0), 0)
    assert len(sent(core, 0)) == 1
    assert list(core.state(-1, 0)) == [-1]
    assert core.state(7, 0)[7].admitted == 100


def test_near_the_end_of_a_transaction_messages_go_one_by_one() -> None:
    core = core_of(LIMITED)
    core.is_careful = True
    assert core.offer(message(100, 0), 0) == 0
    assert core.offer(message(100, 0), 0) > 0
    assert len(sent(core, 0)) == 1
    assert list(core.admit(5, no_claim, keep)) == []
    core.on_delivered(core.brokers.get(NO_BROKER), 100, 10)
    assert len(list(core.admit(10, no_claim, keep))) == 1


def test_purging_takes_out_all_that_wait() -> None:
    core = core_of(LIMITED)
    came = [message(1_000, 0) for _ in range(300)]
    for each in came:
        core.offer(each, 0)
    assert {id(each) for each in core.waiting() + core.purge()} == {id(each) for each in came}
    assert core.is_empty


def leave(core: ProducerCore, from_ms: int, until_ms: int) -> list[tuple[int, Waiting]]:
    """Partition and message of all that leaves meanwhile."""
    found = []
    for now_ms in range(from_ms, until_ms, 10):
        list(core.admit(now_ms, no_claim, keep))
        for each in core.sent(now_ms):
            found += [(each.partition, message) for message in each.messages]
            core.on_delivered(each.broker, sum(one.raw_bytes for one in each.messages), now_ms)
    return found


@pytest.mark.parametrize("known", [True, False], ids=["another leader", "not known before"])
def test_what_waits_goes_over_to_who_leads_its_partition_now(known: bool) -> None:
    core = core_of(LIMITED)
    brokers = core.brokers
    partition = Partitioner().partition("a", 2)
    assert partition is not None
    if known:
        brokers.learn_routes({"orders": {partition: 1, 1 - partition: 1}}, 2, 0)
    before = [message(1_000, 0, key="a") for _ in range(200)]
    for each in before:
        core.offer(each, 0)
    brokers.learn_routes({"orders": {partition: 2 if known else 1, 1 - partition: 1}}, 2, 0)
    after = [message(1_000, 0, key="a") for _ in range(50)]
    for each in after:
        core.offer(each, 0)
    assert {broker.number for broker in brokers if len(broker.queue) or broker.before} == {2 if known else 1}
    came = leave(core, 0, 10_000)
    assert {to for to, _ in came} == {partition}
    assert [id(each.payload) for _, each in came] == [id(each.payload) for each in [*before, *after]]
    assert core.is_empty


def test_deadlines_go_along() -> None:
    core = core_of(LIMITED)
    core.brokers.learn_routes({"orders": {0: 1, 1: 1}}, 2, 0)
    late = message(20_000, 0, partition=0)
    core.offer(message(60_000, 0, partition=0), 0)
    late.expires_at_ms = 500
    core.offer(late, 0)
    core.brokers.learn_routes({"orders": {0: 2, 1: 1}}, 2, 0)
    assert [(each.payload is late.payload, why) for each, why in core.lost(600)] == [(True, Lost.EXPIRED)]
    assert [each.raw_bytes for _, each in leave(core, 600, 5_000)] == [60_000]
    assert core.is_empty


def test_what_librdkafka_has_refused_waits_for_who_leads_its_partition_by_then() -> None:
    """It went back to its former leader's queue, and what had come for the next one's before it."""
    core = core_of(LIMITED)
    core.brokers.learn_routes({"orders": {0: 1, 1: 2}}, 2, 0)
    refused, later = (message(10, at_ms, partition=0) for at_ms in (0, 1))
    core.offer(refused, 0)
    (leaves,) = core.sent(0)
    core.brokers.learn_routes({"orders": {0: 2, 1: 2}}, 2, 1)
    core.offer(later, 1)
    core.put_back(leaves, leaves.messages, 1)
    assert list(core.brokers.get(2).queue) == [refused, later]
    assert core.brokers.get(1).queue.pace.outstanding == 0
