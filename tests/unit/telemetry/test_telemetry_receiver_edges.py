"""What a broker's end remembers, forgets and refuses just below, at and above its bounds."""

import logging
from dataclasses import replace
from uuid import UUID

import pytest
from kclient_telemetry.messages import GetTelemetrySubscriptionsRequest, PushTelemetryRequest, uuid_text
from kclient_telemetry.receiver.instance import NEVER_MS, ClientMetricsInstance, TerminatingRule
from kclient_telemetry.receiver.manager import ClientMetricsManager
from kclient_telemetry.receiver.subscription import Demand

from tests.unit.telemetry.manager_broker import CONTEXT, START, Broker

NONE, INVALID_REQUEST, UNSUPPORTED, INVALID_RECORD, THROTTLED, UNKNOWN_SUBSCRIPTION = 0, 42, 76, 87, 89, 117


# One instance


def instance(interval_ms: int = 100) -> ClientMetricsInstance:
    return ClientMetricsInstance(UUID(int=9), {}, Demand(("*",), interval_ms, 1), 0)


def test_a_new_instance_was_never_heard_of() -> None:
    new = instance()
    assert NEVER_MS == -(2**62)
    assert (new.expires_at_ms, new.queued_at_ms, new.terminating, new.last_known_error) == (NEVER_MS, None, False, NONE)
    assert (new.connections, new.stats.throttle.ever) == (set(), 0)
    assert new != instance()  # one is only itself, whatever it holds
    assert len({new, instance()}) == 2
    for now_ms in (-(10**15), -1, 0, 10**15):
        assert instance().may_get(now_ms)
        assert instance().may_push(now_ms)


def test_a_fetch_is_due_an_interval_after_whatever_came_last() -> None:
    one = instance()
    assert [one.may_get(now_ms) for now_ms in (0, 99, 100, 101, 199, 200)] == [True, False, True, False, False, True]
    assert one.may_push(250)
    assert [one.may_get(now_ms) for now_ms in (300, 349, 350)] == [False, False, True]


def test_a_push_is_due_after_a_fetch_and_an_interval_after_a_push() -> None:
    one = instance()
    assert one.may_get(10)
    assert [one.may_push(now_ms) for now_ms in (10, 10, 11, 109, 110)] == [True, False, False, False, True]
    assert one.may_get(210)
    assert [one.may_push(now_ms) for now_ms in (211, 211, 310, 311)] == [True, False, False, True]


@pytest.mark.parametrize(
    ("code", "at_once"), [(0, False), (42, False), (76, True), (87, False), (89, False), (117, True)]
)
def test_after_which_errors_a_fetch_may_follow_at_once(code: int, at_once: bool) -> None:
    one = instance()
    assert one.may_get(0)
    assert one.may_push(5)
    one.last_known_error = code
    assert one.may_get(5) is at_once
    assert one.may_push(6) is False  # a fetch out of turn brings no push forward
    assert [one.may_get(now_ms) for now_ms in (104, 105)] == [at_once, True]
    assert one.may_push(106)


@pytest.mark.parametrize(
    ("rule", "answers"),
    [
        (TerminatingRule.SHIPPED, [NONE, THROTTLED, NONE, NONE, NONE]),
        (TerminatingRule.KIP, [NONE, THROTTLED, NONE, THROTTLED, NONE]),
    ],
)
def test_what_follows_a_push_by_rule(rule: TerminatingRule, answers: list[int]) -> None:
    """Shipped brokers set `terminating` themselves, so that here nothing is refused for it."""
    one = instance()
    pushes = [(0, False), (99, False), (99, True), (99, True), (100, False)]
    assert [one.refuse_push(now_ms, rule, terminating=last) for now_ms, last in pushes] == answers
    assert one.terminating is False
    one.terminating = True
    assert one.refuse_push(200, rule, terminating=False) == (
        INVALID_REQUEST if rule is TerminatingRule.SHIPPED else NONE
    )


# The manager


def client(number: int) -> UUID:
    """Anew each time, as from the wire."""
    return UUID(int=number << 64)


def test_the_id_of_nobody_is_answered_with_a_new_one_and_may_not_push() -> None:
    broker = Broker()
    for number in (100, 101):
        assert broker.get(UUID(int=0)).client_instance_id == UUID(int=number << 64)
    assert [broker.push(client=UUID(int=number)) for number in (0, 1, 2)] == [
        INVALID_REQUEST,
        INVALID_REQUEST,
        UNKNOWN_SUBSCRIPTION,
    ]


@pytest.mark.parametrize(
    ("interval", "cache_expiry_ms", "expiry_ms"),
    [(1_000, 2_999, 3_000), (1_000, 3_000, 3_000), (1_000, 3_001, 3_001), (1_000, 60_000, 60_000), (100, 0, 300)],
)
def test_an_instance_lasts_for_the_longer_of_both_times(interval: int, cache_expiry_ms: int, expiry_ms: int) -> None:
    broker = Broker(interval=interval, cache_expiry_ms=cache_expiry_ms)
    broker.get()
    for after_ms, instances in ((expiry_ms - 1, 1), (expiry_ms, 0)):
        broker.manager.expire(START + after_ms)
        assert broker.metric("instance-count") == instances


def test_each_instance_waits_in_the_queue_of_expiries_once() -> None:
    broker = Broker(interval=100)
    for number in range(50):
        broker.get()
        broker.push()
        broker.now += number % 7
    assert len(broker.manager._expiries) == 1
    broker.get(client(8))
    broker.get(client(8))
    assert len(broker.manager._expiries) == 2


def test_who_came_back_waits_in_the_queue_of_expiries_once_when_the_former_time_is_over() -> None:
    broker = Broker(interval=100)
    broker.get()
    broker.manager.connection_closed("c1")
    broker.now += 100
    broker.get()
    assert [at_ms for at_ms, _ in sorted(broker.manager._expiries)] == [START + 300, START + 400]
    broker.manager.expire(START + 300)
    assert [at_ms for at_ms, _ in broker.manager._expiries] == [START + 400]
    assert broker.metric("instance-count") == 1


@pytest.mark.parametrize(("after_ms", "instances"), [(5_299, 2), (5_300, 1), (94_999, 1), (95_000, 0)])
def test_who_is_gone_already_keeps_nobody_else_in_the_cache(after_ms: int, instances: int) -> None:
    broker = Broker(interval=30_000)
    broker.get(client(1))  # would be forgotten after 90 s
    broker.now += 5_000
    broker.get(client(2))  # after 95 s
    broker.manager.update_subscription("s", {"metrics": "*", "interval.ms": 100})
    broker.get(client(1))  # now after 5.3 s
    broker.now = START + after_ms
    broker.manager.expire(broker.now)
    assert broker.metric("instance-count") == instances


def test_who_was_heard_of_since_is_looked_at_again_when_that_time_is_over() -> None:
    broker = Broker(interval=100)
    broker.get()
    broker.now += 250
    broker.push()
    for after_ms, instances in ((300, 1), (549, 1), (550, 0)):
        broker.now = START + after_ms
        broker.manager.expire(broker.now)
        assert broker.metric("instance-count") == instances


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_a_connection_belongs_to_the_client_that_came_over_it_last(first: int, second: int) -> None:
    broker = Broker(interval=100)
    broker.get(client(first))
    broker.now += 200
    broker.get(client(second))
    broker.now += 100
    broker.manager.expire(broker.now)  # the first is forgotten, the connection is the second's
    assert broker.metric("instance-count") == 1
    broker.manager.connection_closed("c1")
    assert broker.metric("instance-count") == 0
    broker.manager.connection_closed("c1")


def test_who_is_put_out_of_a_full_cache_has_no_connection_any_more() -> None:
    broker = Broker(cache_size=1)
    broker.get(client(1))
    broker.manager.update_subscription("s", {"metrics": "b"})
    broker.get(client(1))
    broker.get(client(2), replace(CONTEXT, connection_id="c2"))
    assert broker.metric("instance-count") == 1
    broker.get(client(1), replace(CONTEXT, connection_id="c3"))
    broker.manager.connection_closed("c1")
    assert broker.metric("instance-count") == 1
    broker.manager.connection_closed("c3")
    assert broker.metric("instance-count") == 0


def test_every_change_of_subscriptions_is_told_once() -> None:
    broker = Broker()
    broker.get()
    for number in range(5):
        broker.manager.update_subscription("s", {"metrics": f"m{number}"})
        assert broker.get().requested_metrics == (f"m{number}",)
        assert broker.get().error_code == THROTTLED
    assert broker.metric("throttle-count") == 5.0
    assert broker.metric("throttle-rate") == 5 / 30


def test_what_a_plug_in_raises_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    broker.get()
    broker.exporter.error = RuntimeError("plug-in")
    with caplog.at_level(logging.WARNING):
        assert broker.push() == INVALID_RECORD
    (record,) = caplog.records
    assert record.exc_info
    assert record.exc_info[1] is broker.exporter.error
    assert uuid_text(broker.client) in record.getMessage()
    assert broker.metric("plugin-error-rate") == 1 / 30


@pytest.mark.parametrize(
    ("code", "unknown", "throttled"), [(NONE, 0, 0), (UNSUPPORTED, 0, 0), (UNKNOWN_SUBSCRIPTION, 1, 0)]
)
def test_which_refusals_are_counted_as_what(code: int, unknown: int, throttled: int) -> None:
    broker = Broker()
    broker.get()
    changes = {NONE: {}, UNSUPPORTED: {"compression": 9}, UNKNOWN_SUBSCRIPTION: {"subscription_id": 1}}
    assert broker.push(**changes[code]) == code
    assert broker.push() == THROTTLED
    assert broker.metric("unknown-subscription-request-count") == unknown
    assert broker.metric("throttle-count") == throttled + 1
    assert broker.push(terminating=True) == NONE
    assert broker.push(terminating=True) == INVALID_REQUEST
    assert broker.metric("throttle-count") == throttled + 1
    assert broker.metric("plugin-export-count") == (2 if code == NONE else 1)


def test_exports_without_a_clock_take_no_time() -> None:
    broker = Broker()
    broker.get()
    assert broker.push() == NONE
    assert (broker.metric("plugin-export-time-avg"), broker.metric("plugin-export-time-max")) == (0.0, 0.0)


def test_a_manager_without_options_takes_what_kafkas_does() -> None:
    manager = ClientMetricsManager(new_id=lambda: client(5))
    answer = manager.get_telemetry_subscriptions(GetTelemetrySubscriptionsRequest(), CONTEXT, START)
    assert (answer.client_instance_id, answer.telemetry_max_bytes, answer.throttle_time_ms) == (client(5), 2**20, 0)
    assert (answer.push_interval_ms, answer.delta_temporality, answer.requested_metrics) == (300_000, True, ())
    for after_ms, code in ((0, NONE), (300_000, 118)):
        push = PushTelemetryRequest(client(5), answer.subscription_id, metrics=bytes(2**20 + (code != NONE)))
        assert manager.push_telemetry(push, CONTEXT, START + after_ms).error_code == code
