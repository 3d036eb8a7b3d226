"""What quota managers look up, count, throttle and forget when two things are equal or happen at once."""

import math
from collections.abc import Iterable, Mapping

import pytest

from kclient_quota.quota.callback import ClientQuotaCallback, ClientQuotaType
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from kclient_quota.quota.manager import (
    NANOS_TO_PERCENTAGE_PER_SECOND,
    SENSOR_EXPIRY_MS,
    BoundedQuotaManager,
    ClientQuotaManager,
    ClientRequestQuotaManager,
    ControllerMutationQuotaManager,
    Metric,
)
from kclient_quota.quota.managers import QuotaManagers, Throttle
from kclient_quota.quota.rate import SampledRate
from kclient_quota.quota.throttle import UNLIMITED, UNLIMITED_WINDOW_BYTES, ThrottleRule

MS = 1_000_000
"""Nanoseconds."""
HOUR_MS = 3_600_000
ALICE = ClientQuotaEntity.of(user="alice")
PRODUCE, FETCH, REQUEST, REQUEST_RATE, MUTATION = (
    ClientQuotaType.PRODUCE,
    ClientQuotaType.FETCH,
    ClientQuotaType.REQUEST,
    ClientQuotaType.REQUEST_RATE,
    ClientQuotaType.CONTROLLER_MUTATION,
)


def told(metrics: Iterable[Metric]) -> dict[tuple[str, ...], float]:
    return {(each.group, each.name, *each.tags.values()): each.value for each in metrics}


class Shared(ClientQuotaCallback):
    """Limits by user, asked for anew whenever it says so."""

    def __init__(self, **limits: float) -> None:
        self.limits = limits
        self.resets = 0

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: str, client_id: str) -> Mapping[str, str]:
        return {"user": principal, "client-id": client_id}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        return self.limits.get(metric_tags["user"])

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        self.resets -= 1
        return self.resets >= 0


def alice(quota_type: ClientQuotaType = PRODUCE, limit: float = 10.0, **options: int) -> ClientQuotaManager:
    manager = ClientQuotaManager(quota_type, **options)
    manager.update_quota(ALICE, limit)
    return manager


def test_a_second_of_a_thread_is_a_hundred_percent() -> None:
    assert NANOS_TO_PERCENTAGE_PER_SECOND == 1e-7
    manager = ClientRequestQuotaManager()
    manager.update_quota(ALICE, 50.0)
    assert manager.record_nanos_and_get_throttle_time_ms("alice", None, 5_000 * MS, 0) == 0
    assert told(manager.metrics(0))["Request", "request-time", "alice", ""] == 50.0
    manager.record_network_nanos("alice", None, 5 * MS, 0)
    assert manager.record_nanos_and_get_throttle_time_ms("alice", None, 0, 0) == 10
    manager.record_exempt(3_000 * MS, 0)
    manager.record_exempt(3_000 * MS, 0)
    assert told(manager.metrics(0))["Request", "exempt-request-time"] == 20.0  # over half a minute


def test_exempt_time_is_told_once_there_was_any() -> None:
    manager = ClientRequestQuotaManager()
    assert told(manager.metrics(0)) == {("Request", "queue-size"): 0.0}
    manager.record_exempt(0, 0)
    assert told(manager.metrics(0)) == {("Request", "queue-size"): 0.0, ("Request", "exempt-request-time"): 0.0}


def test_every_manager_has_kafkas_windows() -> None:
    managers = QuotaManagers()
    every = (managers.produce, managers.fetch, managers.request, managers.request_rate, managers.controller_mutation)
    assert [manager.quota_type for manager in every] == [PRODUCE, FETCH, REQUEST, REQUEST_RATE, MUTATION]
    alone = (ClientQuotaManager(PRODUCE), ClientRequestQuotaManager(), ControllerMutationQuotaManager())
    assert {(manager.samples, manager.window_ms) for manager in (*every, *alone)} == {(11, 1_000)}
    given = QuotaManagers(samples=3, window_ms=250)
    every = (given.produce, given.fetch, given.request, given.request_rate, given.controller_mutation)
    assert {(manager.samples, manager.window_ms) for manager in every} == {(3, 250)}
    assert (managers.rule, given.rule) == (ThrottleRule.KAFKA, ThrottleRule.KAFKA)


def test_limits_of_a_callback_hold_before_anything_was_set() -> None:
    manager = ClientQuotaManager(PRODUCE, Shared(alice=10.0))
    assert manager.record_and_get_throttle_time_ms("alice", None, 101, 0) == 100


def test_every_reset_has_every_limit_looked_up_again() -> None:
    callback = Shared(alice=10.0, bob=10.0)
    manager = ClientQuotaManager(PRODUCE, callback)
    for user in ("alice", "bob"):
        assert manager.record_and_get_throttle_time_ms(user, None, 200, 0) == 10_000
    callback.limits = {"alice": 5.0, "bob": 20.0}
    assert [manager.record_and_get_throttle_time_ms(user, None, 0, 0) for user in ("alice", "bob")] == [10_000, 10_000]
    callback.resets = 2
    assert [manager.record_and_get_throttle_time_ms("alice", None, 0, 0) for _ in range(2)] == [30_000, 30_000]
    assert manager.record_and_get_throttle_time_ms("bob", None, 0, 0) == 0
    callback.limits["bob"] = 10.0
    callback.resets = 1
    assert manager.record_and_get_throttle_time_ms("bob", None, 0, 0) == 10_000


def test_a_reset_does_not_undo_that_a_quota_was_set() -> None:
    callback = Shared(alice=10.0)
    manager = ClientQuotaManager(PRODUCE, callback)
    for limit, throttle_ms in ((5.0, 30_000), (20.0, 0), (10.0, 10_000)):
        manager.record_no_throttle("alice", None, 200 if limit == 5.0 else 0, 0)
        callback.limits["alice"] = limit
        manager.update_quota(ALICE, limit)
        callback.resets = 1
        assert manager.record_and_get_throttle_time_ms("alice", None, 0, 0) == throttle_ms


@pytest.mark.parametrize("updates", [1, 2, 3, 4])
def test_a_quota_that_is_set_several_times_is_looked_up(updates: int) -> None:
    manager = alice()
    assert manager.record_and_get_throttle_time_ms("alice", None, 200, 0) == 10_000
    for _ in range(updates):
        manager.update_quota(ALICE, 5.0)
    assert manager.record_and_get_throttle_time_ms("alice", None, 0, 0) == 30_000


def test_a_rate_at_its_bound_is_within_it() -> None:
    manager = alice(window_ms=1_000, samples=3)
    assert manager.record_and_get_throttle_time_ms("alice", None, 20, 0) == 0
    assert manager.projected_throttle_time_ms("alice", None, 0) == 0
    assert manager.record_and_get_throttle_time_ms("alice", None, 0.009, 0) == 1
    assert manager.projected_throttle_time_ms("alice", None, 0) == 1
    assert manager.projected_throttle_time_ms("alice", None, 1) == 0
    assert manager.projected_throttle_time_ms("bob", None, 0) == 0
    assert manager.record_and_get_throttle_time_ms("alice", None, 20, 0) == 2_001
    assert manager.projected_throttle_time_ms("alice", None, 999) == 1_002
    assert manager.projected_throttle_time_ms("alice", None, 1_000) == 2_001  # the window is as short again
    assert manager.projected_throttle_time_ms("alice", None, 2_999) == 1_002
    assert manager.projected_throttle_time_ms("alice", None, 3_000) == 0


def test_bounded_throttles_are_a_window_at_most() -> None:
    for most, window_ms in ((249, 250), (250, 250), (251, 250)):
        manager = BoundedQuotaManager(REQUEST_RATE, samples=3, window_ms=window_ms)
        manager.update_quota(ALICE, 2.0)
        taken = 1.0 + 2.0 * most / 1_000
        throttle_ms = manager.record_and_get_throttle_time_ms("alice", None, taken, 0)
        assert throttle_ms == manager.projected_throttle_time_ms("alice", None, 0) == min(most, 250)


def test_the_most_that_may_be_taken_at_once() -> None:
    manager = ClientQuotaManager(FETCH)
    assert manager.max_value_in_quota_window("alice", None) == UNLIMITED_WINDOW_BYTES
    manager.update_quota(ALICE, 7.0)
    assert manager.max_value_in_quota_window("alice", None) == 70.0
    assert manager.max_value_in_quota_window("bob", None) == UNLIMITED_WINDOW_BYTES
    assert (manager.quota("alice", None), manager.quota("bob", None)) == (7.0, UNLIMITED)


def test_while_no_quota_is_set_nothing_is_counted() -> None:
    manager = ClientQuotaManager(PRODUCE)
    assert manager.maybe_record_and_get_throttle_time_ms("alice", None, 1e6, 0) == 0
    manager.update_quota(ALICE, 10.0)
    assert manager.maybe_record_and_get_throttle_time_ms("alice", None, 100, 0) == 0
    assert manager.maybe_record_and_get_throttle_time_ms("alice", None, 10, 0) == 1_000
    manager.unrecord("alice", None, 10, 0)
    assert manager.maybe_record_and_get_throttle_time_ms("alice", None, 0, 0) == 0
    manager.unrecord("alice", None, 100, 0)
    assert told(manager.metrics(0))["Produce", "byte-rate", "alice", ""] == 0.0


def test_throttled_channels_come_back_in_the_order_of_their_ends() -> None:
    manager = alice()
    for name, throttle_ms in (("b", 20), ("a", 10), ("c", 20)):
        manager.throttle("alice", None, throttle_ms, 100, channel=name)
    assert told(manager.metrics(100))["Produce", "throttle-time", "alice", ""] == 50 / 3
    assert told(manager.metrics(100))["Produce", "queue-size"] == 3.0
    assert list(manager.unthrottled(109)) == []
    assert list(manager.unthrottled(110)) == ["a"]
    assert list(manager.unthrottled(119)) == []
    assert list(manager.unthrottled(500)) == ["b", "c"]
    assert told(manager.metrics(100))["Produce", "queue-size"] == 0.0


def test_who_is_only_throttled_is_remembered_for_an_hour_after_the_last_record() -> None:
    manager = alice()
    manager.record_no_throttle("alice", None, 5, 0)
    manager.record_no_throttle("bob", None, 5, 1)
    manager.throttle("alice", None, 10, 7, channel="x")
    assert SENSOR_EXPIRY_MS == HOUR_MS
    manager.expire(HOUR_MS)
    assert {key[2] for key in told(manager.metrics(HOUR_MS)) if len(key) > 2} == {"alice", "bob"}
    manager.expire(HOUR_MS + 1)
    assert {key[2] for key in told(manager.metrics(HOUR_MS)) if len(key) > 2} == {"bob"}


# Controller mutations


def test_mutations_are_measured_over_half_minutes_and_held_to_tokens() -> None:
    manager = ControllerMutationQuotaManager(samples=2, window_ms=500)
    manager.update_quota(ALICE, 4.0)
    now_ms = 1_000_000
    assert manager.record_and_get_throttle_time_ms("alice", None, 6.0, now_ms) == 0
    assert manager.record_and_get_throttle_time_ms("alice", None, 9.0, now_ms) == 500
    found = told(manager.metrics(now_ms))
    assert found["ControllerMutation", "tokens", "alice", ""] == -2.0
    assert found["ControllerMutation", "mutation-rate", "alice", ""] == 0.2
    assert math.isnan(found["ControllerMutation", "throttle-time", "alice", ""])
    assert len(found) == 4
    assert manager.record_and_get_throttle_time_ms("alice", None, 9.0, now_ms + 499) == 1
    assert manager.record_and_get_throttle_time_ms("alice", None, 1.0, now_ms + 500) == 0
    assert manager.record_and_get_throttle_time_ms("alice", None, 1.0, now_ms + 500) == 250


def test_a_request_without_a_quota_of_mutations_is_never_exceeded() -> None:
    manager = ControllerMutationQuotaManager()
    quota = manager.quota_for("alice", None, 1_000_000, strict=True)
    assert (quota.strict, quota.record(1e9, 1_000_000), quota.is_exceeded) == (True, True, False)
    assert told(manager.metrics(1_000_000)) == {("ControllerMutation", "queue-size"): 0.0}
    manager.update_quota(ALICE, 1.0)
    for strict, taken in ((True, True), (False, True), (True, False)):  # the first overdraws the bucket
        quota = manager.quota_for("alice", None, 1_000_000, strict=strict)
        assert (quota.strict, quota.record(12.0, 1_000_000)) == (strict, taken)


# One request and all of its quotas


def held(rule: ThrottleRule = ThrottleRule.KAFKA, **quotas: float) -> QuotaManagers:
    managers = QuotaManagers(rule=rule)
    for key, value in quotas.items():
        managers.update_quota(ALICE, key, value)
    return managers


def test_a_throttle_of_nothing_is_the_request_quotas() -> None:
    for managers in (held(), held(producer_byte_rate=1e6, request_rate=1e6, request_percentage=100)):
        for acks in (-1, 0, 1):
            assert managers.on_produce("alice", None, 1, 1, 0, acks=acks) == Throttle(0, REQUEST)
        assert managers.on_fetch("alice", None, 1, 1, 0) == Throttle(0, REQUEST)
        assert managers.on_request("alice", None, 1, 0) == Throttle(0, REQUEST)
        quota = managers.controller_mutation.quota_for("alice", None, 0, strict=True)
        assert managers.on_controller_mutation("alice", None, quota, 1, 0) == Throttle(0, REQUEST)


@pytest.mark.parametrize(("acks", "timed_ms", "exempt"), [(-1, 300, None), (0, 0, 0.1), (1, 300, None), (2, 300, None)])
def test_only_what_wants_no_acknowledgement_is_exempt(acks: int, timed_ms: int, exempt: float | None) -> None:
    managers = held(request_percentage=0.1)  # a hundredth of a second in ten
    nanos = 10 * MS + 300_000
    assert managers.on_produce("alice", None, 1, nanos, 0, acks=acks) == Throttle(timed_ms, REQUEST)
    found = told(managers.metrics(0))
    assert ("Request", "exempt-request-time") not in found if exempt is None else True
    assert found.get(("Request", "exempt-request-time"), 0.0) == pytest.approx(nanos / 3e8 if exempt else 0.0)


def test_of_two_equal_delays_the_request_times_counts() -> None:
    managers = held(request_rate=1, request_percentage=0.1)
    for _ in range(11):
        managers.on_request("alice", None, 0, 0)
    assert managers.on_request("alice", None, 0, 0) == Throttle(1_000, REQUEST_RATE)
    assert managers.on_request("alice", None, 20 * MS, 0) == Throttle(1_000, REQUEST)


def test_a_request_counts_as_one() -> None:
    managers = held(request_rate=1)
    found = [managers.on_request("alice", None, 0, 0) for _ in range(11)]
    assert found == [Throttle(0, REQUEST)] * 10 + [Throttle(1_000, REQUEST_RATE)]
    assert told(managers.metrics(0))["RequestRate", "request-rate", "alice", ""] == 1.1


@pytest.mark.parametrize(
    ("nbytes", "throttle"), [(120, (1_000, REQUEST)), (99, (1_000, REQUEST)), (121, (2_100, PRODUCE))]
)
def test_of_bytes_and_requests_the_longer_delay_counts(nbytes: int, throttle: tuple[int, ClientQuotaType]) -> None:
    managers = held(producer_byte_rate=10, request_percentage=0.1)
    found = managers.on_produce("alice", None, nbytes - 10 * (nbytes == 120), 20 * MS, 0, acks=1)
    assert found == throttle


def test_a_fetch_is_taken_back_where_it_is_throttled_and_only_where_fetches_are_counted() -> None:
    managers = held(request_percentage=0.1)
    assert managers.on_fetch("alice", None, 100, 20 * MS, 0) == Throttle(1_000, REQUEST)
    assert "Fetch" not in {key[0] for key in told(managers.metrics(0)) if len(key) > 2}
    counted = held(consumer_byte_rate=10)
    assert counted.on_fetch("alice", None, 100, 0, 0) == Throttle(0, REQUEST)
    assert counted.on_fetch("alice", None, 1, 0, 0) == Throttle(100, FETCH)
    assert told(counted.metrics(0))["Fetch", "byte-rate", "alice", ""] == 10.0
    fast = held(consumer_byte_rate=1_000)
    assert fast.on_fetch("alice", None, 10_001, 0, 0) == Throttle(1, FETCH)  # a millisecond is a throttle, too
    assert told(fast.metrics(0))["Fetch", "byte-rate", "alice", ""] == 0.0


@pytest.mark.parametrize(
    ("permits", "throttle"), [(11, (0, REQUEST)), (12, (1_000, MUTATION)), (13, (2_000, MUTATION))]
)
def test_mutations_and_request_time(permits: int, throttle: tuple[int, ClientQuotaType]) -> None:
    managers = held(controller_mutation_rate=1)
    now_ms = 1_000_000
    quota = managers.controller_mutation.quota_for("alice", None, now_ms, strict=False)
    assert quota.record(permits, now_ms)
    assert managers.on_controller_mutation("alice", None, quota, 0, now_ms) == throttle


def test_throttles_of_several_quotas_end_in_their_time() -> None:
    managers = QuotaManagers()
    assert (managers.next_end_ms(), list(managers.unthrottled(10**9))) == (None, [])
    for number, quota_type in enumerate((FETCH, MUTATION, PRODUCE, REQUEST, REQUEST_RATE)):
        managers.throttle("alice", "c", Throttle(50 - number, quota_type), 100, channel=quota_type.value)
    managers.throttle("alice", "c", Throttle(0, PRODUCE), 0, channel="never")
    ends = []
    while (end_ms := managers.next_end_ms()) is not None:
        assert list(managers.unthrottled(end_ms - 1)) == []
        ends.append((end_ms, *managers.unthrottled(end_ms)))
    assert ends == [
        (146, "RequestRate"),
        (147, "Request"),
        (148, "Produce"),
        (149, "ControllerMutation"),
        (150, "Fetch"),
    ]


def test_the_draft_asks_the_longer_of_both_request_quotas_once_the_bytes_are_paid() -> None:
    for quotas, nanos, expected in (
        ({"request_rate": 10}, 0, 10),
        ({"request_percentage": 1}, 101 * MS, 10),
        ({"request_rate": 10, "request_percentage": 1}, 101 * MS, 10),
    ):
        for byte_ms in (0, 1_000):
            managers = held(ThrottleRule.KIP_124_DRAFT, producer_byte_rate=1, **quotas)
            for _ in range(100):
                managers.on_request("alice", None, 0, 0)
            nbytes = 10 + byte_ms // 1_000
            throttle = managers.on_produce("alice", None, nbytes, nanos, 0, acks=1)
            assert throttle.time_ms == byte_ms + expected * 10, (quotas, byte_ms)


def test_a_default_quota_reaches_every_type_by_its_key() -> None:
    managers = QuotaManagers()
    keys = {
        "producer_byte_rate": managers.produce,
        "consumer_byte_rate": managers.fetch,
        "request_percentage": managers.request,
        "request_rate": managers.request_rate,
        "controller_mutation_rate": managers.controller_mutation,
    }
    for number, key in enumerate(keys, 1):
        managers.update_quota(ClientQuotaEntity.of(user=DEFAULT), key, float(number))
    assert [manager.quota("anybody", None) for manager in keys.values()] == [1.0, 2.0, 3.0, 4.0, 5.0]
    for key in keys:
        managers.update_quota(ClientQuotaEntity.of(user=DEFAULT), key, None)
    assert not any(manager.quotas_enabled for manager in keys.values())


def test_a_manager_measures_as_a_rate_of_its_windows_does() -> None:
    manager, rate = alice(limit=1e9, samples=4, window_ms=100), SampledRate(4, 100)
    for now_ms in (0, 99, 100, 250, 399, 400, 801):
        manager.record_no_throttle("alice", None, now_ms + 1, now_ms)
        rate.record(now_ms + 1, now_ms)
        assert told(manager.metrics(now_ms))["Produce", "byte-rate", "alice", ""] == rate.measure(now_ms)
