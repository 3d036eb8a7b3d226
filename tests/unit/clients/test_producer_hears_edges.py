"""What a producer's core makes of what librdkafka has sent, of throttles, and of a quota of which little is used."""

import json
from types import SimpleNamespace

import pytest

from kclient_quota.clients.limits import Limit
from kclient_quota.clients.producer.core import CALM_MS, ENOUGH_BYTES, SURE_MS, ProducerCore
from kclient_quota.clients.producer.outbox import Outbox
from kclient_quota.clients.producer.routes import NO_BROKER
from kclient_quota.clients.producer.sender.hearing import Hearing
from kclient_quota.config import Backoff, LimitSource
from kclient_quota.testing.clock import ManualClock
from tests.unit.clients.producer_world import LIMITED, core_of, hand, message
from tests.unit.clients.test_producer_core_edges import played

LARGE = Limit(80_000_000.0, None, LimitSource.CLUSTER)
HALF = 40_000_000
"""Of a second's worth of it, that may be to spare, where others may use the quota."""
MOST = 72_000_000
"""The same where no broker has throttled for a while."""


# What was sent


def test_what_several_connections_have_sent_one_broker_is_one_figure() -> None:
    core, (one, other) = played(1, 2)
    core.on_wire([(1, 30), (2, 400), (1, 7), (9, 1_000)], 5)
    assert one.pace.heard == [(37, 5, True)]
    assert other.pace.heard == [(400, 5, True)]
    core, (only,) = played()
    core.on_wire([(1, 30), (2, 400)], 6)
    assert only.pace.heard == [(430, 6, True)]


def test_of_a_broker_that_is_not_sent_what_was_granted_for_it_the_leaders_are_asked_for_anew() -> None:
    core, (_, other) = played(1, 2)
    for topic, leaders in {"a": {0: 1}, "b": {0: 2}, "c": {0: 1, 1: 2}}.items():
        core.brokers.routes.learn(topic, leaders, 5)
    other.pace.is_elsewhere = True
    core.on_wire([(1, 30), (2, 0)], 6)
    assert core.brokers.routes.old(6) == ["b", "c"]


def told(*brokers: tuple[int, int, int], messages: tuple[int, int] = (0, 0)) -> Hearing:
    """Statistics of these: node, requests and bytes; and of messages, and their bytes."""
    found = {}
    for node, requests, nbytes in brokers:
        name = f"b{node}:9092/{node}"
        found[name] = {"nodeid": node, "nodename": f"b{node}:9092", "name": name, "tx": requests, "txbytes": nbytes}
    outbox = Outbox()
    outbox.is_running = True
    hearing = Hearing(outbox, "app", LARGE, Backoff.BLOCK, ManualClock(9))
    hearing.on_statistics(json.dumps({"brokers": found, "txmsgs": messages[0], "txmsg_bytes": messages[1]}))
    return hearing


def test_the_length_of_a_request_is_not_counted_by_a_broker() -> None:
    core, (one, other) = played(1, 2)
    hearing = told((1, 3, 112), (2, 0, 0))
    hand(hearing._outbox, core, 9)
    assert one.pace.heard == [(100, 9, True)]
    assert other.pace.heard == [(0, 9, True)]
    assert hearing.only_id == 2
    hand(told()._outbox, core, 10)
    assert len(one.pace.heard) == 1


def test_statistics_of_all_brokers_are_of_the_time_in_which_callers_handed_messages_over_themselves() -> None:
    core, queues = played(1, 2, 3, limit=LARGE)
    core.spare_bytes(0, 0.0, may=True)
    core.spare_bytes(1, 5.0, may=True)
    hand(told((1, 1, 100), (2, 1, 100), (3, 1, 100))._outbox, core, 2)
    assert [[learns for _, _, learns in queue.pace.heard] for queue in queues] == [[False]] * 3


def taught(core: ProducerCore, now_ms: int = 0) -> list[bool]:
    """Which brokers learn of the next bytes on the wire."""
    core.on_wire([(broker.number, 10) for broker in core.brokers], now_ms)
    return [broker.queue.pace.heard[-1][2] for broker in core.brokers]  # type: ignore[attr-defined]


def test_no_broker_learns_of_bytes_that_callers_may_have_handed_over_themselves() -> None:
    core, _ = played(1, 2, 3, limit=LARGE)
    assert core.spare_bytes(0, 0.0, may=True) == HALF
    assert taught(core) == [True] * 3  # nobody has used it yet
    core.spare_bytes(10, HALF - 1.0, may=True)
    core.spare_bytes(20, HALF, may=True)
    assert taught(core) == [False] * 3
    assert taught(core) == [True] * 3
    core.spare_bytes(30, HALF, may=True)
    core.spare_bytes(40, HALF + 1.0, may=True)
    assert taught(core) == [True] * 3


@pytest.mark.parametrize(("left", "learns"), [(-1.0, False), (0.0, True), (1.0, True)])
def test_before_the_first_look_nothing_was_given(left: float, learns: bool) -> None:
    core, _ = played(1, limit=LARGE)
    core.spare_bytes(0, left, may=True)
    assert taught(core) == [learns]


# What is to spare


def test_what_passes_the_queues_is_taken_from_what_is_to_spare() -> None:
    core, (one, other) = played(1, 2, limit=LARGE)
    one.pace.granted, other.pace.granted = 1_000, 500
    assert core.spare_bytes(0, 0.0, may=True) == HALF - 1_500
    one.pace.granted = 5_003
    assert core.spare_bytes(0, HALF - 1_500.0, may=True) == HALF - 1_500 - 4_003
    assert core.spare_bytes(0, HALF - 5_503.0, may=True) == HALF - 5_503
    assert core.spare_bytes(100, 1_000.0, may=True) == 1_000 + HALF / 10


def test_what_is_to_spare_is_shared_with_all_that_use_the_quota() -> None:
    core, _ = played(1, limit=LARGE)
    core.shared_pace = SimpleNamespace(join=lambda who: 4 if who is core else 0)
    assert core.spare_bytes(0, 0.0, may=True) == HALF / 4


def test_nothing_is_to_spare_while_it_could_overtake_a_message() -> None:
    core, (queue,) = played(1, limit=LARGE)
    assert core.spare_bytes(0, 0.0, may=False) == 0.0
    assert core.is_spare_due
    queue.came = [message(1, 0)]
    assert core.spare_bytes(0, 0.0, may=True) == 0.0
    assert core.is_spare_due
    queue.came = []
    assert core.spare_bytes(0, 0.0, may=True) == HALF
    assert not core.is_spare_due


@pytest.mark.parametrize(
    ("limit", "source", "at_first", "when_sure"),
    [
        (80_000_000.0, LimitSource.CLUSTER, HALF, MOST),
        (10_000_000.0, LimitSource.CLUSTER, 5_000_000, 9_000_000),
        (9_999_999.0, LimitSource.CLUSTER, 0, pytest.approx(8_999_999.1)),
        (2_000_000.0, LimitSource.CLUSTER, 0, 1_800_000),
        (1_999_999.0, LimitSource.CLUSTER, 0, 0),
        (80_000_000.0, LimitSource.LEARNED, 0, 0),
    ],
)
def test_nothing_is_to_spare_of_a_quota_that_is_not_known_or_too_small(
    limit: float, source: LimitSource, at_first: float, when_sure: float
) -> None:
    core = played(1, limit=Limit(limit, None, source))[0]
    found = [core.spare_bytes(now_ms, at_first, may=True) for now_ms in (7, 6 + SURE_MS, 7 + SURE_MS, 5_007 + SURE_MS)]
    assert found[:2] == [at_first, at_first]
    assert found[2] >= at_first
    assert found[3] == when_sure


def test_who_has_been_throttled_is_not_sure_to_be_alone_however_long_that_is_ago() -> None:
    core, _ = played(1, limit=LARGE)
    core.spare_bytes(0, 0.0, may=True)
    core.on_throttle(1, 60, 40)
    for now_ms in (50, 100 + CALM_MS, 100 + CALM_MS + SURE_MS):
        core.spare_bytes(now_ms, HALF, may=True)
    assert core.spare_bytes(100 + 2 * CALM_MS, HALF, may=True) == HALF


@pytest.mark.parametrize(("at_ms", "spare"), [(100 + CALM_MS - 1, 0), (100 + CALM_MS, HALF)])
def test_nothing_is_to_spare_for_a_minute_after_a_throttle(at_ms: int, spare: int) -> None:
    core, _ = played(1, limit=LARGE)
    core.on_throttle(1, 60, 40)
    assert core.spare_bytes(at_ms, 0.0, may=True) == spare


def test_what_messages_cost_on_the_busiest_broker_s_wire_is_what_is_to_spare_of_them() -> None:
    core, _ = played(1, 2, limit=LARGE)
    assert core.spare_bytes(0, 0.0, may=True) == HALF
    hand(told((1, 1, 504), (2, 1, 255), messages=(100, 800))._outbox, core, 9)  # 2,000 bytes as callers count them
    assert core.spare_bytes(0, HALF, may=True) == pytest.approx(4 * HALF, rel=0.001)


# Deliveries and throttles


def test_what_is_delivered_counts_until_the_next_throttle() -> None:
    core, (one, other) = played(1, 2, limit=Limit(None, None, LimitSource.LEARNED))
    brokers = list(core.brokers)
    core.on_delivered(brokers[0], ENOUGH_BYTES // 2, 3)
    core.on_delivered(brokers[1], ENOUGH_BYTES // 2, 4)
    assert (one.pace.delivered, other.pace.delivered) == ([(ENOUGH_BYTES // 2, 3)], [(ENOUGH_BYTES // 2, 4)])
    assert not core.is_limited(4)
    core.on_throttle(1, 0, 5)
    assert core.is_limited(5 + CALM_MS)
    core.on_delivered(brokers[1], ENOUGH_BYTES, 5)
    assert core.is_limited(4 + CALM_MS)
    assert not core.is_limited(5 + CALM_MS)


def test_the_end_of_the_latest_throttle_is_remembered() -> None:
    core, (one, other) = played(1, 2)
    ends = [core.throttled_at_ms]
    for number, throttle_ms, now_ms in ((1, 0, 0), (2, 30, 10), (1, 10, 20)):
        core.on_throttle(number, throttle_ms, now_ms)
        ends.append(core.throttled_at_ms)
    assert ends == [None, 0, 40, 40]
    assert (one.pace.throttled_until_ms, other.pace.throttled_until_ms) == (30, 40)
    assert core.throttles_ms(25) == [5, 15]


def test_who_has_yet_to_report_something_is_busy() -> None:
    core, queues = played(1, 2, 3)
    for number, queue in enumerate(queues, 1):
        queue.pace.throttled_until_ms = 100 * number
    queues[1].pace.outstanding = 1
    assert core.throttles_ms(0, busy=True) == [200]
    queues[2].came = [message(1, 0)]
    assert core.throttles_ms(0, busy=True) == [200, 300]


# What others ask


def test_of_several_brokers_each_has_its_own_number_even_the_one_that_has_none() -> None:
    core = core_of(LIMITED)
    core.offer(message(10, 0), 0)
    assert list(core.state(9, 0)) == [9]
    core.brokers.is_split = True
    core.brokers.get(4)
    assert list(core.state(9, 0)) == [NO_BROKER, 4]


def test_the_state_is_that_of_the_pace_and_the_queue() -> None:
    core = core_of(LIMITED)
    core.offer(message(100, 0), 0)
    core.offer(message(30, 0), 0)
    (sent,) = core.sent(0)
    core.on_throttle(NO_BROKER, 70, 10)
    (state,) = core.state(NO_BROKER, 20).values()
    left = sum(each.raw_bytes for each in sent.messages)
    assert (state.admitted, state.outstanding) == (left, left)
    assert state.throttled_until_ms == 60
    assert sum(lane.raw_bytes for lane in state.lanes.values()) == 130 - left
    core.on_delivered(sent.broker, left, 30)
    (state,) = core.state(NO_BROKER, 100).values()
    assert (state.admitted, state.outstanding, state.throttled_until_ms) == (left, 0, 0)
