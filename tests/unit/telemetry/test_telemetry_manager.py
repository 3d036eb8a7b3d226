"""The broker's end: Kafka's own tests (92 to 102), sequences captured from its jars (103, 104), and its limits."""

import gzip
import logging
import math
from dataclasses import replace
from uuid import UUID

import pytest
from kclient_telemetry.compression import CompressionType, compress
from kclient_telemetry.errors import InvalidRequestError
from kclient_telemetry.messages import ZERO_UUID, GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from kclient_telemetry.receiver.instance import TerminatingRule
from kclient_telemetry.receiver.manager import ClientMetricsManager

from tests.unit.telemetry.manager_broker import CONTEXT, START, Broker

NONE, INVALID_REQUEST, UNSUPPORTED, INVALID_RECORD, THROTTLED, UNKNOWN_SUBSCRIPTION, TOO_LARGE = (
    0,
    42,
    76,
    87,
    89,
    117,
    118,
)


def test_case_92_what_a_subscription_says():
    broker = Broker(metrics=None)
    response = broker.get(ZERO_UUID)
    assert response.error_code == NONE
    assert response.client_instance_id == UUID(int=100 << 64)
    assert response.accepted_compression_types == (4, 3, 1, 2)
    assert (response.push_interval_ms, response.telemetry_max_bytes) == (300_000, 100)
    assert response.delta_temporality
    assert response.requested_metrics == ()
    # Kafka's test counts 12: these 11 and its registry's own `count`.
    assert len(broker.manager.metrics(START)) == 11
    assert broker.metric("instance-count") == 1


def test_case_92_a_second_fetch_must_wait():
    broker = Broker(interval=300_000)
    first = broker.get()
    refused = broker.get()
    assert refused.error_code == THROTTLED
    assert (refused.client_instance_id, refused.requested_metrics) == (ZERO_UUID, ())
    assert broker.metric("throttle-count") == 1
    assert broker.metric("throttle-rate") == pytest.approx(1 / 30)
    broker.now += 300_000
    again = broker.get()
    assert (again.error_code, again.subscription_id) == (NONE, first.subscription_id)


def test_case_92_a_changed_subscription_is_given_at_once():
    broker = Broker()
    first = broker.get()
    broker.manager.update_subscription("s", {"metrics": "a", "interval.ms": 5_000})
    second = broker.get()
    assert second.error_code == NONE
    assert second.subscription_id != first.subscription_id
    assert (second.requested_metrics, second.push_interval_ms) == (("a",), 5_000)


def test_case_92_another_broker_takes_the_same_id():
    broker, other = Broker(), Broker()
    broker.get()
    other.subscription_id = broker.subscription_id
    assert other.push() == NONE
    assert other.get().error_code == THROTTLED


def test_case_93_one_push_an_interval():
    broker = Broker()
    broker.get()
    assert broker.push() == NONE
    assert broker.push() == THROTTLED
    broker.now += 29_999
    assert broker.push() == THROTTLED
    broker.now += 1
    assert broker.push() == NONE
    assert broker.metric("plugin-export-count") == 2


@pytest.mark.parametrize("client", [ZERO_UUID, UUID(int=1)])
def test_case_94_reserved_ids_may_not_push(client):
    broker = Broker()
    assert broker.push(client=client, subscription_id=1) == INVALID_REQUEST
    assert broker.metric("instance-count") == 0


def test_case_95_a_terminating_push_may_come_early_once():
    broker = Broker()
    broker.get()
    assert broker.push() == NONE
    assert broker.push(terminating=True) == NONE
    assert broker.metric("plugin-export-count") == 2
    assert broker.push(terminating=True) == INVALID_REQUEST
    assert [payload.is_terminating for _, payload in broker.exporter.pushes] == [False, True]


def test_case_96_unknown_subscription():
    broker = Broker()
    broker.get()
    assert broker.push(subscription_id=1234) == UNKNOWN_SUBSCRIPTION
    assert broker.metric("unknown-subscription-request-count") == 1
    assert broker.metric("unknown-subscription-request-rate") == pytest.approx(1 / 30)


@pytest.mark.parametrize("compression", [100, 10, -1, 5])
def test_case_97_unknown_compression_and_the_fetch_that_may_follow(compression):
    broker = Broker()
    broker.get()
    assert broker.push(compression=compression) == UNSUPPORTED
    assert broker.get().error_code == NONE


def test_case_98_too_large():
    broker = Broker(telemetry_max_bytes=1)
    broker.get()
    assert broker.push(b"ab") == TOO_LARGE
    assert broker.get().error_code == THROTTLED


@pytest.mark.parametrize("metrics", [None, b""])
def test_case_99_an_empty_push_is_accepted_and_not_exported(metrics):
    broker = Broker()
    broker.get()
    assert broker.push(metrics) == NONE
    assert broker.metric("plugin-export-count") == 0
    assert broker.exporter.pushes == []


def test_case_100_whatever_the_plugin_raises_is_an_invalid_record(caplog):
    broker = Broker()
    broker.get()
    broker.exporter.error = RuntimeError("plug-in")
    assert broker.push() == INVALID_RECORD
    assert broker.metric("plugin-error-count") == 1
    assert broker.metric("plugin-export-count") == 0
    assert math.isnan(broker.metric("plugin-export-time-avg"))
    assert "plug-in" in caplog.text


def test_case_101_two_pushes_after_a_change():
    broker = Broker()
    broker.get()
    broker.manager.update_subscription("s", {"metrics": "b"})
    assert [broker.push(), broker.push()] == [UNKNOWN_SUBSCRIPTION, THROTTLED]


@pytest.mark.parametrize(("interval", "expiry"), [(100, 300), (30_000, 90_000)])
def test_case_102_instances_not_heard_of_are_forgotten(interval, expiry):
    broker = Broker(interval=interval)
    broker.get()
    broker.now += expiry - 1
    broker.manager.expire(broker.now)
    assert broker.metric("instance-count") == 1
    broker.now += 1
    broker.manager.expire(broker.now)
    assert broker.metric("instance-count") == 0
    assert len(broker.manager.metrics(broker.now)) == 3


def test_case_102_every_request_puts_the_end_off():
    broker = Broker(interval=100)
    broker.get()
    for _ in range(5):
        broker.now += 299
        assert broker.push() == NONE
    assert broker.metric("instance-count") == 1
    broker.now += 300
    broker.manager.expire(broker.now)
    assert broker.metric("instance-count") == 0


def test_case_102_a_shorter_interval_brings_the_end_nearer():
    broker = Broker(interval=30_000)
    broker.get()
    broker.manager.update_subscription("s", {"metrics": "*", "interval.ms": 100})
    broker.get()
    broker.now += 300
    broker.manager.expire(broker.now)
    assert broker.metric("instance-count") == 0


def test_case_103_the_order_of_validation():
    broker = Broker(telemetry_max_bytes=2)
    broker.get()
    assert broker.push(b"123", subscription_id=1, compression=9) == UNKNOWN_SUBSCRIPTION
    assert broker.push(b"123", subscription_id=1, compression=9) == THROTTLED
    for metrics, compression, expected in [
        (b"123", 9, UNSUPPORTED),
        (b"123", 0, TOO_LARGE),
        (b"12", 0, NONE),
        (None, 0, NONE),
        (b"12", CompressionType.GZIP, INVALID_RECORD),
    ]:
        broker.now += 30_000
        assert broker.push(metrics, compression=compression) == expected


def test_case_103_garbage_is_found_without_any_exporter():
    manager = ClientMetricsManager(new_id=lambda: UUID(int=5))
    subscription = manager.get_telemetry_subscriptions(GetTelemetrySubscriptionsRequest(UUID(int=9)), CONTEXT, 0)
    garbage = PushTelemetryRequest(UUID(int=9), subscription.subscription_id, compression_type=1, metrics=b"garbage")
    assert manager.push_telemetry(garbage, CONTEXT, 0).error_code == INVALID_RECORD
    good = PushTelemetryRequest(UUID(int=9), subscription.subscription_id, metrics=b"x")
    assert manager.push_telemetry(good, CONTEXT, 300_000).error_code == NONE


def test_case_104_the_captured_sequence_of_intervals():
    broker = Broker(interval=10_000)
    broker.get()
    answers = []
    for at_ms in (7_000, 12_000, 17_000):
        broker.now = START + at_ms
        answers.append(broker.push())
    assert answers == [NONE, THROTTLED, NONE]
    broker.now = START + 22_000
    broker.manager.update_subscription("s", {"metrics": "*", "interval.ms": 8_000})
    assert broker.push() == UNKNOWN_SUBSCRIPTION
    assert broker.get().push_interval_ms == 8_000
    broker.now += 4_800
    assert broker.push() == THROTTLED
    assert broker.get().error_code == THROTTLED
    broker.now += 3_200
    assert broker.push() == NONE
    assert broker.get().error_code == THROTTLED


def test_case_104_the_captured_sequence_of_terminating_pushes():
    broker = Broker(interval=300_000)
    broker.get()
    answers = [broker.push(terminating=last) for last in (False, False, True, True, False)]
    assert answers == [NONE, THROTTLED, NONE, INVALID_REQUEST, INVALID_REQUEST]
    broker.now += 300_000
    assert broker.push() == NONE


def test_case_104_one_uuid_is_an_id_like_any_for_a_fetch():
    broker = Broker()
    assert broker.get(UUID(int=1)).client_instance_id == UUID(int=1)


@pytest.mark.parametrize(
    ("raw_bytes", "compression", "expected"),
    [(1_000, 1, NONE), (1_000, 0, NONE), (1_001, 1, INVALID_RECORD), (1_001, 0, TOO_LARGE)],
)
def test_decompressed_pushes_are_bounded_as_in_4_3_1(raw_bytes, compression, expected):
    broker = Broker(telemetry_max_bytes=1_000)
    broker.get()
    metrics = compress(bytes(raw_bytes), CompressionType(compression))
    assert broker.push(metrics, compression=compression) == expected
    assert [len(payload.data) for _, payload in broker.exporter.pushes] == ([raw_bytes] if expected == NONE else [])


def test_the_exporter_gets_the_payload_decompressed_and_knows_the_client():
    broker = Broker()
    broker.get()
    assert broker.push(gzip.compress(b"otlp"), compression=1) == NONE
    ((context, payload),) = broker.exporter.pushes
    assert (context.push_interval_ms, context.authorizable_request_context) == (30_000, CONTEXT)
    assert (payload.client_instance_id, payload.data, payload.content_type) == (broker.client, b"otlp", "OTLP")


def test_the_time_of_exports():
    times = iter([10.0, 14.0, 20.0, 28.0])
    broker = Broker(elapsed_ms=lambda: next(times))
    broker.get()
    broker.push()
    broker.now += 30_000
    broker.push()
    assert broker.metric("plugin-export-time-avg") == 6.0
    assert broker.metric("plugin-export-time-max") == 8.0
    assert broker.metric("plugin-export-rate") == pytest.approx(2 / 30)
    broker.now += 59_999
    broker.manager.expire(broker.now)
    assert broker.metric("plugin-export-rate") == pytest.approx(1 / 59.999)
    broker.now += 1
    assert broker.metric("plugin-export-rate") == 0
    assert broker.metric("plugin-export-count") == 2


def test_a_lost_connection_forgets_the_client_and_its_rate_limit():
    broker = Broker()
    broker.get()
    assert broker.push() == NONE
    broker.manager.connection_closed("unknown")
    assert broker.push() == THROTTLED
    broker.manager.connection_closed("c1")
    assert broker.metric("instance-count") == 0
    assert broker.push() == NONE
    assert broker.push() == THROTTLED


def test_who_was_forgotten_and_came_back_over_another_connection_does_not_go_with_the_old_one():
    broker = Broker(interval=100)
    broker.get()
    broker.now += 300
    broker.manager.expire(broker.now)
    broker.get(context=replace(CONTEXT, connection_id="c2"))
    broker.manager.connection_closed("c1")
    assert broker.metric("instance-count") == 1
    broker.manager.connection_closed("c2")
    assert broker.metric("instance-count") == 0


def test_a_subscription_change_keeps_what_was_counted():
    broker = Broker()
    broker.get()
    broker.get()
    broker.manager.update_subscription("s", {"metrics": "b"})
    broker.get()
    assert broker.metric("throttle-count") == 1
    broker.manager.connection_closed("c1")
    assert broker.metric("instance-count") == 0


def test_the_cache_is_bounded_and_the_least_recently_heard_of_goes_first():
    broker = Broker(cache_size=2)
    first, second, third = (UUID(int=n << 64) for n in (1, 2, 3))
    for client in (first, second, first, third):
        broker.get(client)
    assert broker.metric("instance-count") == 2
    assert broker.get(first).error_code == THROTTLED
    assert broker.get(second).error_code == NONE
    assert broker.get(third).error_code == NONE


def test_new_ids_are_neither_taken_nor_reserved_nor_like_an_option():
    offered = iter([ZERO_UUID, UUID(int=1), UUID(int=0xF8 << 120), UUID(int=7 << 64), UUID(int=8 << 64)])
    manager = ClientMetricsManager(new_id=lambda: next(offered))
    manager.get_telemetry_subscriptions(GetTelemetrySubscriptionsRequest(UUID(int=7 << 64)), CONTEXT, 0)
    fresh = manager.get_telemetry_subscriptions(GetTelemetrySubscriptionsRequest(), CONTEXT, 0)
    assert fresh.client_instance_id == UUID(int=8 << 64)


def test_subscriptions_come_and_go():
    broker = Broker(metrics=None)
    broker.manager.update_subscription("none", {})
    first = broker.get().subscription_id
    broker.manager.update_subscription("none", {})
    assert broker.get().error_code == THROTTLED
    broker.manager.update_subscription("s", {"metrics": "a"})
    assert broker.get().requested_metrics == ("a",)
    assert list(broker.manager.subscriptions) == ["s"]
    broker.manager.update_subscription("s", {})
    assert broker.get().subscription_id == first
    with pytest.raises(InvalidRequestError):
        broker.manager.update_subscription("s", {"bogus": "1"})
    assert broker.get().error_code == THROTTLED


def test_a_new_client_is_always_heard_whatever_the_clocks_origin():
    broker = Broker()
    broker.now = 0
    assert broker.get().error_code == NONE
    other = Broker()
    other.now = 0
    other.subscription_id = broker.subscription_id
    assert other.push() == NONE


def test_the_rule_of_the_kip_ignores_terminating_until_the_interval_has_passed():
    broker = Broker(interval=10_000, terminating_rule=TerminatingRule.KIP)
    broker.get()
    answers = [broker.push(terminating=last) for last in (False, False, True, True, False)]
    assert answers == [NONE, THROTTLED, NONE, THROTTLED, THROTTLED]
    broker.now += 10_000
    assert [broker.push(terminating=last) for last in (False, True, True)] == [NONE, NONE, THROTTLED]
    broker.now += 10_000
    assert [broker.push(terminating=last) for last in (True, True)] == [NONE, THROTTLED]
    assert broker.metric("throttle-count") == 5


def test_refused_pushes_are_logged_without_a_traceback(caplog):
    broker = Broker()
    broker.get()
    with caplog.at_level(logging.WARNING):
        broker.push(b"garbage", compression=1)
    (record,) = caplog.records
    assert "no gzip data" in record.getMessage()
    assert record.exc_info is None
