"""What Apache Kafka 4.1.0 and 4.3.1 themselves answered (golden/), to the millisecond."""

import math
import re
from pathlib import Path

import pytest

from kclient_quota.quota.callback import ClientQuotaType, DefaultQuotaCallback
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from kclient_quota.quota.manager import ClientQuotaManager, ClientRequestQuotaManager
from kclient_quota.quota.rate import SampledRate
from kclient_quota.quota.throttle import MAX_THROTTLE_MS, UNLIMITED_WINDOW_BYTES
from kclient_quota.quota.token_bucket import TokenBucket

GOLDEN = Path(__file__).parent / "golden"
T0 = 1_700_000_000_000


def golden(name, prefix):
    lines = (GOLDEN / name).read_text().splitlines()
    return [line for line in lines if line.startswith(prefix)]


def matches(pattern, lines):
    found = [re.search(pattern, line) for line in lines]
    assert all(found), (pattern, lines)
    return [match.groups() for match in found]


def produce_manager(limit, **entity):
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE)
    manager.update_quota(ClientQuotaEntity.of(**(entity or {"client_id": DEFAULT})), limit)
    return manager


def used(manager, value, now_ms):
    return manager.maybe_record_and_get_throttle_time_ms("ANONYMOUS", "client", value, now_ms)


@pytest.mark.parametrize(
    ("value", "quota", "throttle"),
    matches(r"v=(\S+) quota=(\d+) -> throttle=(\d+)", golden("rates-4.1.0.txt", "Q1")),
)
def test_case_3_to_7_single_burst(value, quota, throttle):
    assert used(produce_manager(float(quota)), float(value), T0) == int(throttle)


def test_case_8_to_20_zero_records_keep_a_burst_in_the_window():
    manager = produce_manager(500.0)
    rows = matches(r"t=(\d+) rec=(\d+) throttle=(\d+) rate=(\S+)", golden("rates-4.1.0.txt", "Q2 "))
    assert len(rows) == 13
    for at_ms, value, throttle, rate in rows:
        assert used(manager, float(value), T0 + int(at_ms)) == int(throttle), at_ms
        assert rates(manager, T0 + int(at_ms)) == [float(rate)], at_ms


def test_case_8_to_20_as_kafka_4_3_1_answers():
    manager = produce_manager(500.0)
    used(manager, 6000, T0)
    for at_ms, throttle in matches(r"t=(\d+) throttle=(\d+)", golden("rates-4.3.1.txt", "Q2 "))[1:]:
        assert used(manager, 0, T0 + int(at_ms)) == int(throttle), at_ms


@pytest.mark.parametrize(("at_ms", "throttle"), matches(r"0@(\d+) -> throttle=(\d+)", golden("rates-4.1.0.txt", "Q2b")))
def test_case_21_one_check_after_a_burst(at_ms, throttle):
    manager = produce_manager(500.0)
    assert used(manager, 6000, T0) == 2000
    assert used(manager, 0, T0 + int(at_ms)) == int(throttle)


def test_case_22_steady_overload():
    manager = produce_manager(500.0)
    throttles = [used(manager, 60, T0 + 100 * i) for i in range(300)]
    (line,) = golden("rates-4.1.0.txt", "Q3")
    assert next(i for i, throttle in enumerate(throttles) if throttle) == 90
    pairs = re.findall(r"i=(\d+):(\d+)", line)
    assert len(pairs) == 11
    assert [throttles[int(i)] for i, _ in pairs] == [int(throttle) for _, throttle in pairs]


def test_case_23_unrecord():
    manager = ClientQuotaManager(ClientQuotaType.FETCH)
    manager.update_quota(ClientQuotaEntity.of(user="ANONYMOUS"), 100)
    assert used(manager, 1500, T0) == 5000
    manager.unrecord("ANONYMOUS", "client", 1500, T0)
    assert rates(manager, T0) == [0.0]
    assert used(manager, 1000, T0) == 0
    assert used(manager, 1, T0) == 10
    assert manager.max_value_in_quota_window("ANONYMOUS", "client") == 1000.0


def rates(manager, now_ms):
    return [metric.value for metric in manager.metrics(now_ms) if metric.name == "byte-rate"]


def test_case_24_rate_and_window():
    rate = SampledRate()
    rows = matches(r"rec(\d+)@(\d+) window=(\d+) rate=(\S+)", golden("rates-4.1.0.txt", "Q7"))
    assert len(rows) == 11
    for value, at_ms, window_ms, expected in rows:
        now_ms = T0 + int(at_ms)
        rate.record(float(value), now_ms)
        assert rate.project(now_ms)[1] == int(window_ms)
        assert rate.window_size_ms(now_ms) == int(window_ms)
        assert rate.measure(now_ms) == float(expected)


@pytest.mark.parametrize(
    ("millis", "throttle"), matches(r"record (\S+)ms .* -> (\d+)", golden("rates-4.1.0.txt", "Q5"))
)
def test_case_25_to_30_request_percentage(millis, throttle):
    manager = ClientRequestQuotaManager()
    manager.update_quota(ClientQuotaEntity.of(user=DEFAULT), 1.0)
    nanos = round(float(millis) * 1_000_000)
    assert manager.record_nanos_and_get_throttle_time_ms("u", "c", nanos, T0) == int(throttle)


@pytest.mark.parametrize("sticky", [pytest.param(True, id="4.1.0"), pytest.param(False, id="4.3.1")])
def test_case_31_quota_removed(sticky):
    callback = DefaultQuotaCallback(sticky_types=sticky)
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE, callback)
    assert used(manager, 11_000, T0) == 0
    manager.update_quota(ClientQuotaEntity.of(user=DEFAULT), 10)
    assert manager.maybe_record_and_get_throttle_time_ms("userA", "client1", 11_000, T0) == 1_090_000
    manager.update_quota(ClientQuotaEntity.of(user=DEFAULT), None)
    assert manager.maybe_record_and_get_throttle_time_ms("userA", "client1", 11_000, T0) == 0
    assert manager.quotas_enabled is sticky
    assert manager.max_value_in_quota_window("userA", "client1") == UNLIMITED_WINDOW_BYTES
    if sticky:
        found = {(metric.name, metric.tags.get("user")): metric.value for metric in manager.metrics(T0)}
        assert math.isnan(found.pop(("throttle-time", "userA")))
        assert found.pop(("queue-size", None)) == 0.0


def test_case_67_saturates_where_kafka_wraps_around():
    rows = matches(r"quota=1 v=(\S+) -> (-?\d+)", golden("wrap-and-levels-4.1.0.txt", "quota"))
    assert len(rows) == 5
    for value, kafka in rows:
        exact = float(value) * 1000 - 10_000
        ours = used(produce_manager(1.0), float(value), T0)
        assert ours == min(exact, MAX_THROTTLE_MS)
        wrapped = (int(exact) + 2**31) % 2**32 - 2**31
        assert wrapped == int(kafka)
        if exact <= MAX_THROTTLE_MS:
            assert ours == int(kafka)


EIGHT = (
    {"user": "u", "client_id": "c"},
    {"user": "u", "client_id": DEFAULT},
    {"user": "u"},
    {"user": DEFAULT, "client_id": "c"},
    {"user": DEFAULT, "client_id": DEFAULT},
    {"user": DEFAULT},
    {"client_id": "c"},
    {"client_id": DEFAULT},
)


def test_case_66_eight_levels_removed_from_the_top():
    rows = matches(
        r"limit=(\S+) tags=Map\(user -> (\w*), client-id -> (\w*)\)",
        golden("wrap-and-levels-4.1.0.txt", "levels"),
    )
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE, DefaultQuotaCallback(sticky_types=True))
    for number, level in enumerate(EIGHT):
        manager.update_quota(ClientQuotaEntity.of(**level), 1001.0 + number)
    for removed, (limit, user, client_id) in enumerate(rows):
        if removed:
            manager.update_quota(ClientQuotaEntity.of(**EIGHT[removed - 1]), None)
        manager.record_and_get_throttle_time_ms("u", "c", 0, T0 + removed)
        tags = manager._callback.quota_metric_tags(ClientQuotaType.PRODUCE, "u", "c")
        assert manager.quota("u", "c") == float(limit)
        assert tags == {"user": user, "client-id": client_id}
    assert len(rows) == 9


def test_case_77_token_bucket_by_the_clock():
    bucket = TokenBucket()
    at = re.compile(r"(-?[\d.]+)$")
    assert bucket.measure(2.0, T0) == float(at.search(golden("rates-4.1.0.txt", "Q8 tb@T0")[0]).group(1))
    bucket.record(50, 2.0, T0)
    (line,) = golden("rates-4.1.0.txt", "Q8 after")
    expected = [float(value) for value in re.findall(r"=\s*(-?[\d.]+)", line)]
    assert [bucket.measure(2.0, T0 + after) for after in (0, 5_000, 14_000, 60_000)] == expected
    from_zero = TokenBucket()
    assert from_zero.measure(2.0, 0) == 0.0
    assert from_zero.measure(2.0, 1_000) == 2.0
