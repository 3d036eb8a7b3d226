"""Managers: history across changes, sharing, expiry, metrics, and what one request is held to."""

import math
import time

import pytest

from kclient_quota.errors import ConfigError
from kclient_quota.quota.callback import ClientQuotaCallback, ClientQuotaType, DefaultQuotaCallback
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from kclient_quota.quota.manager import (
    ClientQuotaManager,
    ClientRequestQuotaManager,
    ControllerMutationQuotaManager,
)
from kclient_quota.quota.managers import QuotaManagers, Throttle
from kclient_quota.quota.throttle import MAX_THROTTLE_MS, UNLIMITED, ThrottleRule

MS = 1_000_000  # nanoseconds


def manager_with(*quotas, quota_type=ClientQuotaType.PRODUCE, **options):
    manager = ClientQuotaManager(quota_type, **options)
    for value, entity in quotas:
        manager.update_quota(ClientQuotaEntity.of(**entity), value)
    return manager


def figures(source, now_ms):
    return {(m.group, m.name, *m.tags.values()): m.value for m in source.metrics(now_ms)}


def test_changed_quota_keeps_what_was_measured():
    manager = manager_with((500, {"user": "u"}))
    assert manager.record_and_get_throttle_time_ms("u", "c", 5000, 0) == 0
    manager.update_quota(ClientQuotaEntity.of(user="u"), 250)
    assert manager.record_and_get_throttle_time_ms("u", "c", 0, 0) == 10_000
    manager.update_quota(ClientQuotaEntity.of(user="u"), 1000)
    assert manager.record_and_get_throttle_time_ms("u", "c", 0, 0) == 0


def test_default_and_own_quota_of_a_user_measure_together():
    manager = manager_with((500, {"user": DEFAULT}))
    manager.record_and_get_throttle_time_ms("u", "c", 5000, 0)
    manager.update_quota(ClientQuotaEntity.of(user="u"), 250)
    assert manager.record_and_get_throttle_time_ms("u", "c", 0, 0) == 10_000


def test_another_group_of_levels_starts_afresh():
    manager = manager_with((500, {"user": "u"}), (500, {"client_id": "x"}))
    manager.record_and_get_throttle_time_ms("u", "c", 5000, 0)
    manager.update_quota(ClientQuotaEntity.of(user="u", client_id="c"), 250)
    assert manager.record_and_get_throttle_time_ms("u", "c", 2500, 0) == 0


def test_default_user_quota_is_per_user_and_default_client_id_quota_is_across_users():
    per_user = manager_with((100, {"user": DEFAULT}))
    assert per_user.record_and_get_throttle_time_ms("u", "c", 1000, 0) == 0
    assert per_user.record_and_get_throttle_time_ms("v", "c", 1000, 0) == 0
    across = manager_with((100, {"client_id": DEFAULT}))
    assert across.record_and_get_throttle_time_ms("u", "c", 1000, 0) == 0
    assert across.record_and_get_throttle_time_ms("v", "c", 1000, 0) == 10_000


@pytest.mark.parametrize(
    "entity", [{"client_id": DEFAULT}, {"user": "u"}, {"user": "u", "client_id": DEFAULT}], ids=str
)
def test_absent_and_empty_client_ids_share_one_quota(entity):
    manager = manager_with((100, entity))
    assert manager.record_and_get_throttle_time_ms("u", None, 600, 0) == 0
    assert manager.record_and_get_throttle_time_ms("u", "", 600, 0) == 2000
    assert len(manager._sensors) == 1


def test_without_kip_13_an_empty_client_id_has_no_client_id_quota():
    callback = DefaultQuotaCallback(share_empty_client_id=False)
    manager = manager_with((100, {"client_id": DEFAULT}), callback=callback)
    assert manager.record_and_get_throttle_time_ms("u", None, 10_000, 0) == 0
    assert manager.quota("u", "") == UNLIMITED
    assert manager.quota("u", "c") == 100
    assert list(callback.levels(ClientQuotaType.PRODUCE).matches("u", "")) == []


def test_sensors_expire_after_an_hour():
    manager = manager_with((100, {"client_id": DEFAULT}))
    manager.record_and_get_throttle_time_ms("u", "old", 10, 0)
    manager.record_and_get_throttle_time_ms("u", "new", 10, 60_000)
    assert ("Produce", "byte-rate", "", "old") in figures(manager, 3_600_000)
    found = figures(manager, 3_600_001)
    assert ("Produce", "byte-rate", "", "old") not in found
    assert ("Produce", "byte-rate", "", "new") in found
    assert manager.record_and_get_throttle_time_ms("u", "old", 1001, 3_700_000) == 10


def test_recorded_without_check_counts_at_the_next_check():
    manager = manager_with((100, {"user": "u"}))
    manager.record_no_throttle("u", "c", 2000, 0)
    assert manager.record_and_get_throttle_time_ms("u", "c", 0, 0) == 10_000


@pytest.mark.parametrize(("samples", "window_ms"), [(11, 1000), (4, 250), (2, 30_000)])
def test_window_is_configurable(samples, window_ms):
    manager = manager_with((1000, {"user": "u"}), samples=samples, window_ms=window_ms)
    whole = (samples - 1) * window_ms
    assert manager.record_and_get_throttle_time_ms("u", "c", whole, 0) == 0
    assert manager.record_and_get_throttle_time_ms("u", "c", 100, 0) == 100
    assert manager.max_value_in_quota_window("u", "c") == whole


def test_no_quota_records_nothing():
    manager = manager_with()
    assert manager.maybe_record_and_get_throttle_time_ms("u", "c", 1e9, 0) == 0
    assert figures(manager, 0) == {("Produce", "queue-size"): 0.0}


def test_saturated_throttle_of_years():
    manager = manager_with((1, {"user": "u"}))
    assert manager.record_and_get_throttle_time_ms("u", "c", 1e15, 0) == MAX_THROTTLE_MS


def test_metrics_have_kafkas_names():
    managers = QuotaManagers()
    for key in (
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
        "request_rate",
    ):
        managers.update_quota(ClientQuotaEntity.of(user="u", client_id="c"), key, 1000)
    now = 1_000_000
    managers.on_produce("u", "c", 20_000, 100 * MS, now, acks=1)
    managers.on_fetch("u", "c", 100, 10 * MS, now)
    quota = managers.controller_mutation.quota_for("u", "c", now, strict=True)
    assert quota.record(10, now)
    managers.request.record_exempt(300 * MS, now)
    managers.throttle("u", "c", Throttle(500, ClientQuotaType.PRODUCE), now, channel="x")
    found = figures(managers, now)
    assert found["Produce", "byte-rate", "u", "c"] == 2000
    assert found["Fetch", "byte-rate", "u", "c"] == 10
    assert found["Request", "request-time", "u", "c"] == pytest.approx(1.1)
    assert found["Request", "exempt-request-time"] == pytest.approx(1.0)
    assert found["RequestRate", "request-rate", "u", "c"] == pytest.approx(0.2)
    assert found["ControllerMutation", "tokens", "u", "c"] == 10_990
    assert found["ControllerMutation", "mutation-rate", "u", "c"] == pytest.approx(10 / 30)
    assert found["Produce", "throttle-time", "u", "c"] == 500
    assert math.isnan(found["Fetch", "throttle-time", "u", "c"])
    assert {key: found[key] for key in found if key[1] == "queue-size"} == {
        ("Produce", "queue-size"): 1,
        ("Fetch", "queue-size"): 0,
        ("Request", "queue-size"): 0,
        ("RequestRate", "queue-size"): 0,
        ("ControllerMutation", "queue-size"): 0,
    }
    assert managers.next_end_ms() == now + 500
    assert list(managers.unthrottled(now + 500)) == ["x"]
    assert managers.next_end_ms() is None


def test_a_bucket_overdrawn_by_a_thousandth_of_a_second_is_given_nothing_more():
    manager = ControllerMutationQuotaManager()
    manager.update_quota(ClientQuotaEntity.of(user="u"), 1_000)
    now = 1_000_000
    assert manager.record_and_get_throttle_time_ms("u", "c", 11_001, now) == 0
    assert manager.record_and_get_throttle_time_ms("u", "c", 5_000, now) == 1
    assert manager.record_and_get_throttle_time_ms("u", "c", 5_000, now + 1) == 0
    assert manager.record_and_get_throttle_time_ms("u", "c", 1, now + 1) == 5_000


def held(**quotas):
    managers = QuotaManagers(rule=quotas.pop("rule", ThrottleRule.KAFKA))
    for key, value in quotas.items():
        managers.update_quota(ClientQuotaEntity.of(user="u"), key, value)
    return managers


def test_produce_takes_the_longer_delay():
    both = {"producer_byte_rate": 1000, "request_percentage": 1}
    assert held(**both).on_produce("u", "c", 10_500, 0, 0, acks=1) == (500, ClientQuotaType.PRODUCE)
    assert held(**both).on_produce("u", "c", 10_500, 200 * MS, 0, acks=1) == (1000, ClientQuotaType.REQUEST)
    assert held(**both).on_produce("u", "c", 11_000, 200 * MS, 0, acks=1) == (1000, ClientQuotaType.REQUEST)
    assert held(**both).on_produce("u", "c", 11_001, 200 * MS, 0, acks=1) == (1001, ClientQuotaType.PRODUCE)


def test_produce_without_acknowledgement_is_exempt_from_request_time():
    managers = held(request_percentage=1)
    assert managers.on_produce("u", "c", 10, 500 * MS, 0, acks=0).time_ms == 0
    assert figures(managers, 0)["Request", "exempt-request-time"] == pytest.approx(50 / 30)


def test_throttled_fetch_is_unrecorded_but_its_time_is_not():
    managers = held(consumer_byte_rate=100, request_percentage=1)
    assert managers.on_fetch("u", "c", 1500, 50 * MS, 0) == (5000, ClientQuotaType.FETCH)
    assert figures(managers, 0)["Fetch", "byte-rate", "u", ""] == 0
    assert figures(managers, 0)["Request", "request-time", "u", ""] == pytest.approx(0.5)
    assert managers.on_fetch("u", "c", 1000, 40 * MS, 0).time_ms == 0
    # The request quota alone un-records as well.
    assert managers.on_fetch("u", "c", 0, 110 * MS, 0) == (1000, ClientQuotaType.REQUEST)
    assert figures(managers, 0)["Fetch", "byte-rate", "u", ""] == 100


def test_requests_per_second_are_bounded_at_one_window():
    managers = held(request_rate=10)
    throttles = [managers.on_request("u", "c", 0, 0).time_ms for _ in range(120)]
    assert throttles[:100] == [0] * 100
    assert throttles[100:103] == [100, 200, 300]
    assert throttles[-1] == 1000
    assert managers.on_request("u", "c", 0, 0).quota_type is ClientQuotaType.REQUEST_RATE


def test_draft_of_kip_124_asks_the_request_quota_again_after_the_byte_delay():
    quotas = {"producer_byte_rate": 1000, "request_rate": 10}
    for rule, expected in ((ThrottleRule.KAFKA, 500), (ThrottleRule.KIP_124_DRAFT, 500)):
        managers = held(rule=rule, **quotas)
        for _ in range(102):
            managers.on_request("u", "c", 0, 0)
        assert managers.on_produce("u", "c", 10_500, 0, 0, acks=1).time_ms == expected
    # Once the byte delay is over the window is back at ten seconds, and the request quota is still exceeded.
    for rule, expected in ((ThrottleRule.KAFKA, 1000), (ThrottleRule.KIP_124_DRAFT, 1300)):
        managers = held(rule=rule, **quotas)
        for _ in range(102):
            managers.on_request("u", "c", 0, 0)
        assert managers.on_produce("u", "c", 11_000, 0, 0, acks=1).time_ms == expected


def test_draft_of_kip_124_does_not_disturb_the_window():
    quotas = {"producer_byte_rate": 1, "request_rate": 10}
    managers = held(rule=ThrottleRule.KIP_124_DRAFT, **quotas)
    for _ in range(105):
        managers.on_request("u", "c", 0, 0)
    # So long a delay that the request window would be empty at its end.
    assert managers.on_produce("u", "c", 100_000, 0, 0, acks=1).time_ms == 99_990_000
    assert managers.on_request("u", "c", 0, 0).time_ms == 700


def test_controller_mutations_take_the_longer_delay():
    managers = held(controller_mutation_rate=2, request_percentage=1)
    now = 1_000_000
    quota = managers.controller_mutation.quota_for("u", "c", now, strict=False)
    quota.record(24, now)
    result = managers.on_controller_mutation("u", "c", quota, 0, now)
    assert result == (1000, ClientQuotaType.CONTROLLER_MUTATION)
    result = managers.on_controller_mutation("u", "c", quota, 500 * MS, now)
    assert result == (1000, ClientQuotaType.REQUEST)


def test_network_time_counts_only_under_a_quota():
    manager = ClientRequestQuotaManager()
    manager.record_network_nanos("u", "c", 10**9, 0)
    assert not manager._sensors
    manager.update_quota(ClientQuotaEntity.of(user="u"), 1)
    manager.record_network_nanos("u", "c", 200 * MS, 0)
    assert manager.record_nanos_and_get_throttle_time_ms("u", "c", 0, 0) == 1000


def test_unknown_key_is_named():
    with pytest.raises(ConfigError, match="connection_creation_rate is no quota of users and client-ids"):
        QuotaManagers().update_quota(ClientQuotaEntity.of(user="u"), "connection_creation_rate", 1)


class ByFirstLetter(ClientQuotaCallback):
    """Users whose names begin alike share a quota."""

    def __init__(self):
        self.limits = {"a": 100.0}
        self.changed = False

    def quota_metric_tags(self, quota_type, principal, client_id):
        return {"letter": principal[:1]}

    def quota_limit(self, quota_type, metric_tags):
        return self.limits.get(metric_tags["letter"])

    def quota_reset_required(self, quota_type):
        changed, self.changed = self.changed, False
        return changed


def test_callback_of_the_user_decides():
    callback = ByFirstLetter()
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE, callback)
    assert manager.quotas_enabled
    assert manager.record_and_get_throttle_time_ms("alice", "c", 1000, 0) == 0
    assert manager.record_and_get_throttle_time_ms("anna", "d", 10, 0) == 100
    assert manager.record_and_get_throttle_time_ms("bob", "d", 1e9, 0) == 0
    callback.limits["a"] = 50.0
    assert manager.record_and_get_throttle_time_ms("anna", "d", 0, 0) == 100
    callback.changed = True
    assert manager.record_and_get_throttle_time_ms("anna", "d", 0, 0) == 10_200
    assert figures(manager, 0)["Produce", "byte-rate", "a"] == 101


def test_a_hundred_thousand_quotas_cost_no_more_than_ten():
    few, many = manager_with((10, {"user": "u"})), manager_with((10, {"user": "u"}))
    levels = many._callback.levels(ClientQuotaType.PRODUCE)
    for number in range(100_000):
        levels.set((f"user-{number}", DEFAULT if number % 2 else None), 5.0)
    assert many.quota("user-7", "c") == many.quota("user-8", "d") == 5.0

    def cost(manager):
        best = math.inf
        for _ in range(5):
            start = time.thread_time()
            for now in range(300):
                manager.record_and_get_throttle_time_ms("u", "c", 1, now)
            best = min(best, time.thread_time() - start)
        return best

    assert cost(many) < 5 * cost(few)
