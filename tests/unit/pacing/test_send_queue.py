"""The send queue: turns by partition, lanes, tenants, deadlines, and what happens when there is no room."""

import pytest

from kclient_quota.errors import ConfigError
from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.batch_cost import BatchCost
from kclient_quota.pacing.sending.lanes import Full, Lane, lanes_of
from kclient_quota.pacing.sending.send_pace import SendPace
from kclient_quota.pacing.sending.send_queue import NEVER, Grant, SendQueue
from kclient_quota.pacing.sending.turns import Waiting
from tests.unit.pacing.told_pacer import lump_ms_of

T0 = 1_000_000
QUOTA = 51_200


def queue_of(*lanes, limit=QUOTA, max_bytes=32 << 20, max_delay_ms=1_000, compressed=False):
    pace = SendPace(Pacer(limit), BatchCost(compressed=compressed), limit, linger_ms=5, max_delay_ms=max_delay_ms)
    if limit is None:  # one message has been delivered: batches may grow
        pace.on_granted(1, T0)
        pace.on_delivered(1, T0)
    return SendQueue(pace, lanes, max_bytes=max_bytes)


def message(number, partition=0, raw_bytes=300, at_ms=T0, **more):
    return Waiting("t", partition, raw_bytes, at_ms, number, **more)


def drain(queue, now_ms, until_ms, refill=None, most_ms=1_000):
    """Every grant until a time, delivered at once; `refill` is called before each question, `most_ms` apart at most."""
    grants = []
    while now_ms < until_ms:
        if refill is not None:
            refill(now_ms)
        grant = queue.next_grant(now_ms)
        if isinstance(grant, Grant):
            queue.pace.on_delivered(grant.raw_bytes, now_ms)
            grants.append((now_ms, grant))
        elif grant == NEVER:
            if refill is None:
                break
            now_ms += 1
        else:
            now_ms += min(max(1, int(grant)), most_ms)
    return grants


def numbers(grants):
    return [each.payload for _, grant in grants for each in grant.messages]


def test_without_any_delay_messages_go_one_by_one_at_the_quota_s_pace():
    queue = queue_of(max_delay_ms=0)
    for number in range(200):
        queue.offer(message(number, number % 3))
    offered = len(queue)
    grants = drain(queue, T0, T0 + 5_000)
    assert offered > 1
    assert sorted(numbers(grants)) == list(range(offered))
    assert all(len(grant.messages) == 1 for _, grant in grants)


def test_the_first_message_goes_at_once_and_an_empty_queue_is_never_asked_again():
    queue = queue_of()
    assert queue.next_grant(T0) == NEVER
    assert queue.offer(message(1)).accepted
    grant = queue.next_grant(T0)
    assert isinstance(grant, Grant)
    assert [each.payload for each in grant.messages] == [1]
    assert (len(queue), queue.raw_bytes) == (0, 0)
    assert queue.next_grant(T0) == NEVER


@pytest.mark.parametrize("late_ms", [10, 20, 40, 80])
def test_a_machine_that_is_slow_at_every_hand_over_uses_the_quota(late_ms):
    slow_hand_overs_use_the_quota(late_ms)


def slow_hand_overs_use_the_quota(late_ms):
    """Of 512 KB/s a batch is some messages: one batch for each hand-over would be 0.45 of it at 40 ms."""
    quota = 10 * QUOTA
    queue = queue_of(limit=quota)
    now_ms, wire_bytes = T0, 0
    while now_ms < T0 + 30_000:
        while queue.offer(message(0, raw_bytes=1_000, at_ms=now_ms)).accepted:
            pass
        while isinstance(grant := queue.next_grant(now_ms), Grant):
            wire_bytes += grant.wire_bytes
            queue.pace.on_delivered(grant.raw_bytes, now_ms)
        now_ms += late_ms
    assert 0.95 < wire_bytes / (30 * quota) < 1.01


def test_what_little_has_come_after_a_batch_waits_for_the_next_one():
    queue = queue_of()
    now_ms, sizes = T0, []
    while now_ms < T0 + 6_000:
        is_full = not queue.offer(message(0, raw_bytes=35, at_ms=now_ms)).accepted
        grant = queue.next_grant(now_ms)  # after each message, as a sender that is awake does
        if isinstance(grant, Grant):
            queue.pace.on_delivered(grant.raw_bytes, now_ms)
            sizes.append((now_ms, len(grant.messages)))
        elif is_full:
            now_ms += max(1, int(grant))
    steady = [size for at_ms, size in sizes if at_ms > T0 + 2_000]
    assert min(steady) > 0.9 * max(steady) > 20


def test_what_is_strict_waits_for_nothing_but_the_quota_for_itself():
    queue = queue_of(Lane("alerts", strict=True), compressed=True)
    drain(queue, T0, T0 + 1_000, lambda now_ms: queue.offer(message(0, raw_bytes=35, at_ms=now_ms)))
    for now_ms in range(T0 + 1_000, T0 + 5_000):
        while queue.offer(message(0, raw_bytes=35, at_ms=now_ms)).accepted:
            pass
        grant = queue.next_grant(now_ms)
        if isinstance(grant, Grant):
            queue.pace.on_delivered(grant.raw_bytes, now_ms)
            if now_ms > T0 + 3_000:
                break
    queue.offer(message(1, raw_bytes=35, at_ms=now_ms, lane="alerts"))
    assert lump_ms_of(queue.pace, 1) > 100
    assert [each.lane for _, each in drain(queue, now_ms, now_ms + 50)] == ["alerts"]


def test_as_much_as_has_left_may_come_without_asking():
    queue = queue_of(compressed=True)
    numbers = iter(range(10_000))
    while queue.offer(message(number := next(numbers), number % 12)).accepted:
        pass
    assert queue.free_bytes("", 1e9) < 300
    grant = queue.next_grant(T0)
    assert isinstance(grant, Grant)
    assert queue.free_bytes("", 1e9) > 0.8 * grant.raw_bytes > 1_000


def test_all_that_waits_for_the_partition_whose_oldest_waits_longest_leaves_together():
    queue = queue_of(limit=None)
    for number, partition in enumerate([3, 1, 1, 3, 2, 1]):
        queue.offer(message(number, partition, at_ms=T0 + number))
    assert [numbers([each]) for each in drain(queue, T0, T0 + 10)] == [[0, 3], [1, 2, 5], [4]]


def test_full_queue_says_when_to_come_again_and_takes_the_message_then():
    queue = queue_of()
    accepted = 0
    while (offered := queue.offer(message(accepted))).accepted:
        accepted += 1
    assert 0 < offered.wait_ms < 1_000
    assert accepted * 300 <= QUOTA  # no more than leaves within max_delay_ms
    drain(queue, T0, T0 + 1_000)
    assert queue.offer(message(accepted, at_ms=T0 + 1_000)).accepted


def test_what_librdkafka_refuses_goes_first_again():
    queue = queue_of(limit=None)
    for number in range(4):
        queue.offer(message(number))
    grant = queue.next_grant(T0)
    queue.offer(message(4))
    for refused in reversed(grant.messages[2:]):
        queue.pace.give_back(refused.raw_bytes)
        assert queue.put_back(refused)
    assert (len(queue), queue.pace.outstanding) == (3, 600)
    queue.pace.on_delivered(600, T0)
    assert numbers(drain(queue, T0, T0 + 10)) == [2, 3, 4]


def test_strict_lanes_go_first_and_have_room_of_their_own():
    queue = queue_of(Lane("alerts", strict=True), Lane("bulk"))
    count = 0
    while queue.offer(message(count, lane="bulk")).accepted:
        count += 1
    assert queue.offer(message("alert", lane="alerts", partition=7)).accepted
    first = queue.next_grant(T0)
    assert first.lane == "alerts"


def test_weighted_lanes_divide_bytes_on_the_wire():
    queue = queue_of(Lane("orders", weight=3), Lane("bulk"))

    def refill(now_ms):
        while queue.offer(message(0, lane="orders", partition=1, at_ms=now_ms)).accepted:
            pass
        while queue.offer(message(0, lane="bulk", partition=2, raw_bytes=1_000, at_ms=now_ms)).accepted:
            pass

    got = {"orders": 0, "bulk": 0}
    for _, grant in drain(queue, T0, T0 + 30_000, refill):
        got[grant.lane] += grant.wire_bytes
    assert got["orders"] / got["bulk"] == pytest.approx(3, rel=0.05)


def test_tenants_divide_a_lane_equally_however_much_one_offers():
    queue = queue_of()

    def refill(now_ms):
        for tenant, most in (("greedy", 100), ("modest", 20)):
            for _ in range(most):
                if not queue.offer(message(tenant, partition=len(tenant), at_ms=now_ms, tenant=tenant)).accepted:
                    break

    sent = numbers(drain(queue, T0, T0 + 10_000, refill))
    assert sent.count("greedy") == pytest.approx(sent.count("modest"), rel=0.05)


def test_expired_messages_leave_before_they_cost_anything():
    queue = queue_of(Lane(deadline_ms=50))
    queue.offer(message(1))
    queue.offer(message(2, expires_at_ms=T0 + 500))
    assert queue.next_expiry_ms == T0 + 50
    assert queue.expire(T0 + 49) == []
    assert [each.payload for each in queue.expire(T0 + 50)] == [1]
    assert numbers(drain(queue, T0 + 60, T0 + 100)) == [2]
    assert queue.next_expiry_ms is None


@pytest.mark.parametrize("full", [Full.DROP_OLDEST, Full.DROP_NEWEST])
def test_full_lane_drops_and_says_whom(full):
    queue = queue_of(Lane(full=full), limit=1_000)
    dropped = []
    for number in range(100):
        offered = queue.offer(message(number))
        assert offered.accepted
        dropped += [each.payload for each in offered.dropped]
    kept = [each.payload for each in queue.purge()]
    assert sorted(dropped + kept) == list(range(100))
    assert kept == (list(range(100 - len(kept), 100)) if full is Full.DROP_OLDEST else list(range(len(kept))))


def test_newest_value_of_each_key_takes_the_place_of_the_older():
    queue = queue_of(Lane(newest=True), limit=None)
    offers = [("a", 1), ("b", 2), ("a", 3), (None, 4), ("a", 5), (None, 6)]
    replaced = [each.payload for key, number in offers for each in queue.offer(message(number, key=key)).replaced]
    assert replaced == [1, 3]
    assert numbers(drain(queue, T0, T0 + 10)) == [5, 2, 4, 6]


def test_purge_takes_everything_out():
    queue = queue_of(Lane("alerts", strict=True))
    for number in range(9):
        queue.offer(message(number, lane="alerts" if number % 3 else "", tenant=number % 2))
    waiting = len(queue)
    assert len(queue.purge()) == waiting
    assert (len(queue), queue.raw_bytes, queue.next_grant(T0)) == (0, 0, NEVER)


def test_state_shows_each_lane():
    queue = queue_of(Lane("alerts", strict=True))
    queue.offer(message(1, lane="alerts", raw_bytes=70))
    states = queue.state(T0 + 40)
    assert (states["alerts"].messages, states["alerts"].raw_bytes, states["alerts"].waits_ms) == (1, 70, 40)
    assert states[""].messages == 0


def test_lanes_as_configured():
    alerts, orders, bulk = lanes_of(
        {"alerts": {"priority": "strict", "deadline.ms": 5_000}, "orders": {"weight": 3, "full": "raise"}, "bulk": {}}
    )
    assert (alerts.strict, alerts.deadline_ms) == (True, 5_000)
    assert (orders.weight, orders.full) == (3, Full.RAISE)
    assert (bulk.strict, bulk.weight, bulk.full) == (False, 1, Full.BLOCK)


@pytest.mark.parametrize(
    ("configured", "named"),
    [
        ({"a": {"wieght": 3}}, "wieght"),
        ({"a": {"weight": 0}}, "weight"),
        ({"a": {"weight": "many"}}, "'a'"),
        ({"a": {"priority": "high"}}, "priority"),
        ({"a": {"full": "explode"}}, "explode"),
        ({"a": {"deadline.ms": 0}}, "deadline.ms"),
        ({"a": 3}, "'a'"),
    ],
)
def test_misspelt_lanes_are_refused_by_name(configured, named):
    with pytest.raises(ConfigError, match=named):
        lanes_of(configured)


def test_tenants_are_fair_within_every_ten_seconds_across_grants():
    """Three have more than their part, one of them a hundred times; the fourth has half of it, and gets that."""
    queue = queue_of()
    fair = QUOTA * 0.98 / 300 / 3.5  # messages per second, about, beside the headers of batches
    offers = {"greedy": 100 * fair, "busy": 2 * fair, "eager": 1.5 * fair, "modest": 0.4 * fair}
    due = dict.fromkeys(offers, float(T0))

    def refill(now_ms):
        for number, (tenant, per_s) in enumerate(offers.items()):
            while due[tenant] <= now_ms:
                if not queue.offer(message(tenant, number % 3, at_ms=now_ms, tenant=tenant)).accepted:
                    due[tenant] = now_ms + 1
                    break
                due[tenant] += 1000 / per_s

    grants = drain(queue, T0, T0 + 45_000, refill, most_ms=10)
    for begin_ms in range(T0 + 12_000, T0 + 35_001, 1_000):
        inside = [each.tenant for at, grant in grants if begin_ms <= at < begin_ms + 10_000 for each in grant.messages]
        had = {tenant: inside.count(tenant) for tenant in offers}
        assert had["modest"] == pytest.approx(10 * offers["modest"], rel=0.05)
        full = [had["greedy"], had["busy"], had["eager"]]
        assert max(full) <= 1.05 * min(full)
        assert min(full) > had["modest"]


def test_messages_of_nobody_are_one_tenant_more():
    queue = queue_of(Lane(full=Full.DROP_OLDEST), limit=1_000)
    dropped = []
    for number in range(60):
        offered = queue.offer(message(number, tenant=("a", None, "b")[number % 3]))
        dropped += [each.payload for each in offered.dropped]
    waiting = {each.payload for each in queue.purge()}
    assert {number % 3 for number in waiting} == {0, 1, 2}
    assert sorted([*waiting, *dropped]) == list(range(60))
    assert queue.offer(message(60)).accepted
    assert numbers(drain(queue, T0, T0 + 2_000)) == [60]


def test_as_long_as_no_limit_is_known_one_message_goes_first_and_then_ever_more():
    pace = SendPace(Pacer(), BatchCost(), linger_ms=5)
    queue = SendQueue(pace)
    for number in range(2_000):
        assert queue.offer(message(number)).accepted
    sizes = []
    for _ in range(6):
        while isinstance(grant := queue.next_grant(T0), Grant):
            sizes.append(len(grant.messages))
        pace.on_delivered(pace.outstanding, T0)
    assert sizes[0] == 1
    assert sum(sizes) * 300 <= 16_384 * 2**6
    assert max(sizes) > 4 * sizes[1]


@pytest.mark.parametrize(("link", "in_flight", "round_trip_ms"), [(0.9, 5, 20), (0.3, 1, 300)])
def test_what_queues_behind_our_own_batches_is_not_taken_for_a_distance(link, in_flight, round_trip_ms):
    our_own_queue_is_no_distance(link, in_flight, round_trip_ms)


def our_own_queue_is_no_distance(link, in_flight, round_trip_ms):
    """A link slower than the quota: were more sent ahead for it, that would queue for longer, and so on for ever."""
    rate = 1_000_000.0
    pace = SendPace(Pacer(rate), BatchCost(), rate, linger_ms=5, in_flight=in_flight)
    queue = SendQueue(pace)
    unsent, flying, free_ms, most = [], [], 0.0, 0
    for now_ms in range(0, 40_000, 5):
        while flying and flying[0][0] <= now_ms:
            pace.on_delivered(flying.pop(0)[1], now_ms)
        while queue.offer(message(now_ms, raw_bytes=5_000, at_ms=now_ms)).accepted:
            pass
        while isinstance(grant := queue.next_grant(now_ms), Grant):
            unsent.append(grant)
        while unsent and len(flying) < in_flight:
            grant = unsent.pop(0)
            free_ms = max(free_ms, now_ms) + grant.wire_bytes * 1_000 / (link * rate)
            flying.append((free_ms + round_trip_ms, grant.raw_bytes))
        most = max(most, pace.outstanding)
    assert most <= 1.5 * rate, "half a second's worth, and no more than a second for the distance"


def test_a_short_throttle_lasts_no_longer_because_the_clock_was_put_back():
    pace, now = queue_of().pace, 10 * T0
    pace.on_granted(30_000, now)
    pace.on_wire(30_000, now)
    pace.on_throttle(300, now)
    assert pace.throttled_for_ms(now + 100) == 200
    assert pace.throttled_for_ms(now - 3_600_000) == 300
    pace.on_throttle(100, now - 3_600_000)
    assert pace.throttled_for_ms(now - 3_600_000) == 300


@pytest.mark.parametrize(("rate", "answer_ms"), [(QUOTA, 600), (QUOTA, 1_000)])
def test_a_broker_that_has_become_slow_to_answer_is_sent_what_the_quota_allows_all_the_same(rate, answer_ms):
    slow_to_answer_is_sent_what_the_quota_allows(rate, answer_ms)


def slow_to_answer_is_sent_what_the_quota_allows(rate, answer_ms):
    """Nobody's queue has grown: more on its way is answered no later, and what was near is near again at once."""
    pace = SendPace(Pacer(rate), BatchCost(), rate, linger_ms=5)
    queue = SendQueue(pace)
    unsent, flying, delivered, ways = [], [], 0, []
    for now_ms in range(0, 60_000, 5):
        while flying and flying[0][0] <= now_ms:
            raw_bytes = flying.pop(0)[1]
            pace.on_delivered(raw_bytes, now_ms)
            delivered += raw_bytes * (30_000 <= now_ms < 50_000)
        while queue.offer(message(now_ms, raw_bytes=500, at_ms=now_ms)).accepted:
            pass
        while isinstance(grant := queue.next_grant(now_ms), Grant):
            unsent.append(grant)
        while unsent and len(flying) < 5:
            flying.append((now_ms + (answer_ms if 10_000 <= now_ms < 50_000 else 5), unsent.pop(0).raw_bytes))
        ways.append(pace._way.ms)
    assert delivered > 0.8 * rate * 20
    assert ways[-1] <= 10


def test_what_cannot_be_delivered_for_minutes_holds_up_nothing_else():
    """A partition without a leader: the way is measured without it."""
    pace = SendPace(Pacer(QUOTA), BatchCost(), QUOTA, linger_ms=5)
    queue = SendQueue(pace)
    flying, delivered, is_lost = [], 0, False
    for now_ms in range(0, 60_000, 5):
        while flying and flying[0][0] <= now_ms:
            raw_bytes = flying.pop(0)[1]
            pace.on_delivered(raw_bytes, now_ms)
            delivered += raw_bytes * (now_ms >= 20_000)
        while queue.offer(message(now_ms, raw_bytes=500, at_ms=now_ms)).accepted:
            pass
        while isinstance(grant := queue.next_grant(now_ms), Grant):
            if now_ms >= 10_000 and not is_lost:
                is_lost = True
            else:
                flying.append((now_ms + (600 if now_ms >= 10_000 else 5), grant.raw_bytes))
    assert is_lost
    assert delivered > 0.6 * QUOTA * 40


def told(pace, wire_part, now_ms, *, late=0):
    """Ten batches of 1,000 messages' bytes leave, statistics tell of all but `late` of them; bytes that one takes."""
    for _ in range(10):
        pace.on_granted(10_000, now_ms, messages=10)
    pace.on_delivered(pace.outstanding - late * 10_000, now_ms)
    pace.on_wire(round((10 - late) * (150 + 10_000 * wire_part)), now_ms)
    return pace.wire_of(10_000)


def test_statistics_that_come_while_a_batch_is_on_its_way_wait_for_those_that_tell_exactly():
    pace = queue_of(compressed=True).pace
    exact = told(pace, 0.5, T0)
    for second in range(1, 8):
        assert told(pace, 0.5, T0 + second * 1_000, late=1) == exact
        pace.on_wire(round(150 + 10_000 * 0.5), T0 + second * 1_000 + 500)
    assert told(pace, 0.5, T0 + 9_000) == pytest.approx(exact, rel=0.01)


def test_where_something_is_always_on_its_way_it_is_learnt_all_the_same():
    pace = queue_of(compressed=True).pace
    told(pace, 0.5, T0)
    found = [told(pace, 0.25, T0 + second * 1_000, late=1) for second in range(1, 40)]
    assert found[-1] < 0.6 * found[0]


def test_a_batch_that_was_counted_on_one_side_only_is_not_taken_for_worse_data_afterwards():
    """Eight statistics in a row find something on its way; the ninth has its bytes, and batches of another size."""
    pace = queue_of(compressed=True).pace
    for second in range(9):
        told(pace, 0.5, T0 + second * 1_000, late=int(second > 0))
    before = pace._cost.overhead
    for _ in range(10):
        pace.on_granted(8_000, T0 + 10_000, messages=8)
    pace.on_delivered(pace.outstanding, T0 + 10_000)
    pace.on_wire(10 * (150 + 4_000) + 8 * (150 + 5_000), T0 + 10_000)  # a batch of each second was not told of
    assert pace._cost.overhead == pytest.approx(before, rel=0.1)
