"""What quota managers, rates and levels say just below, at and above their bounds."""

import pytest

from kclient_quota.quota.callback import ClientQuotaCallback, ClientQuotaType, DefaultQuotaCallback
from kclient_quota.quota.delay_queue import DelayQueue
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from kclient_quota.quota.manager import SENSOR_EXPIRY_MS, ClientQuotaManager, ClientRequestQuotaManager
from kclient_quota.quota.managers import QuotaManagers
from kclient_quota.quota.rate import SampledAvg, SampledMax, SampledRate
from kclient_quota.quota.resolution import QuotaLevels
from kclient_quota.quota.throttle import UNLIMITED

ALICE = ClientQuotaEntity.of(user="alice")


@pytest.mark.parametrize(("samples", "window_ms"), [(0, 1_000), (1, 0), (-1, 1), (1, -1)])
def test_a_rate_needs_a_sample_and_a_window(samples: int, window_ms: int) -> None:
    with pytest.raises(ValueError, match=f"at least 1, not {samples} and {window_ms}"):
        SampledRate(samples, window_ms)


def test_the_least_rate_has_one_sample_of_a_millisecond() -> None:
    rate = SampledRate(1, 1)
    rate.record(3, 0)
    assert rate.measure(0) == 3_000.0


def test_what_a_rate_will_have_forgotten_and_when() -> None:
    rate = SampledRate(3, 1_000)
    rate.record(10, 0)
    rate.record(20, 1_500)
    forgetting = rate.forgetting(1_600)
    assert forgetting == [
        (1_600, 30.0, 2_600),  # two windows at least, and the 600 ms of the running one
        (2_000, 30.0, 2_000),  # the first sample is as old as all but one window
        (3_000, 20.0, 2_500),  # it is gone
        (3_500, 20.0, 2_000),
    ]
    assert [rate.project(at_ms) for at_ms, _, _ in forgetting] == [row[1:] for row in forgetting]
    assert rate.history(1_600) == [(1_500, 20.0), (0, 10.0)]
    assert rate.history(2_999) == [(1_500, 20.0), (0, 10.0)]
    assert rate.history(3_000) == [(1_500, 20.0)]
    assert rate.opened_ms == 1_500


def test_a_sample_lasts_for_less_than_its_window() -> None:
    rate = SampledRate(2, 1_000)
    rate.record(1, 0)
    rate.record(1, 999)
    assert rate.history(999) == [(0, 2.0)]
    rate.record(1, 1_000)
    assert rate.history(1_000) == [(1_000, 1.0), (0, 2.0)]


def test_mean_and_largest_of_two_half_minutes() -> None:
    mean, largest = SampledAvg(), SampledMax()
    for stat in (mean, largest):
        stat.record(4.0, 0)
        stat.record(-2.0, 29_999)
        stat.record(7.0, 30_000)
    assert (mean.measure(30_000), largest.measure(30_000)) == (3.0, 7.0)
    assert (mean.measure(89_998), largest.measure(89_998)) == (3.0, 7.0)
    assert (mean.measure(89_999), largest.measure(89_999)) == (7.0, 7.0)
    assert str((mean.measure(90_000), largest.measure(90_000))) == "(nan, nan)"


def test_a_channel_is_let_go_in_the_millisecond_in_which_its_throttling_ends() -> None:
    queue: DelayQueue[str] = DelayQueue()
    queue.add("late", 100, 50)
    queue.add("early", 100, 0)
    queue.add("early too", 50, 50)
    assert (len(queue), queue.next_end_ms(), queue.poll(99)) == (3, 100, None)
    assert [queue.poll(100), queue.poll(100), queue.poll(149)] == ["early", "early too", None]
    assert [queue.poll(150), queue.poll(150), queue.next_end_ms()] == ["late", None, None]


def test_an_entity_tells_its_parts() -> None:
    entity = ClientQuotaEntity.of(user=DEFAULT, client_id="app")
    assert (entity.user, entity.client_id, entity.ip) == (DEFAULT, "app", None)
    assert dict(entity.entries) == {"user": DEFAULT, "client-id": "app"}
    assert ClientQuotaEntity.of(ip="10.0.0.1").ip == "10.0.0.1"


@pytest.mark.parametrize(
    ("share_empty", "client_id", "limits"),
    [
        (True, "app", [1.0, 2.0, 3.0, 4.0]),
        (True, "", [2.0, 3.0, 4.0]),  # who sent no client-id shares the default client-id's
        (False, "", [3.0]),  # Kafka's own code leaves them without
    ],
)
def test_the_levels_that_match_a_client(share_empty: bool, client_id: str, limits: list[float]) -> None:
    levels = QuotaLevels(share_empty_client_id=share_empty)
    levels.set(("alice", "app"), 1.0)
    levels.set(("alice", DEFAULT), 2.0)
    levels.set(("alice", None), 3.0)
    levels.set((None, DEFAULT), 4.0)
    levels.set(("bob", None), 5.0)
    assert [limit for _, limit in levels.matches("alice", client_id)] == limits
    assert len(levels) == 5


def test_a_level_that_is_set_again_is_gone_when_it_is_removed_once() -> None:
    levels = QuotaLevels()
    levels.set(("alice", None), 1.0)
    levels.set(("alice", None), 2.0)
    assert levels.tags("alice", "app") == ("alice", "")
    levels.remove(("alice", None))
    levels.remove(("alice", None))
    assert levels.tags("alice", "app") == ("", "app")
    assert levels.types_enabled == 0


def test_a_limit_is_looked_up_by_user_and_by_client() -> None:
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE)
    manager.update_quota(ClientQuotaEntity.of(client_id="app"), 10.0)
    assert (manager.quota("alice", "app"), manager.quota("alice", "other")) == (10.0, UNLIMITED)
    assert manager.projected_throttle_time_ms("alice", "app", 0) == 0
    assert manager.record_and_get_throttle_time_ms("alice", "app", 200, 0) == 10_000
    assert manager.projected_throttle_time_ms("alice", "app", 0) == 10_000
    assert manager.projected_throttle_time_ms("alice", None, 0) == 0
    assert manager.projected_throttle_time_ms("alice", "other", 0) == 0


def test_nobody_is_throttled_without_a_quota_or_within_it() -> None:
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE)
    assert manager.maybe_record_and_get_throttle_time_ms("alice", None, 1e9, 0) == 0
    manager.update_quota(ALICE, 10.0)
    assert manager.maybe_record_and_get_throttle_time_ms("alice", None, 100, 0) == 0
    assert manager.maybe_record_and_get_throttle_time_ms("alice", None, 1, 0) == 100
    manager.update_quota(ALICE, None)
    assert (manager.quota("alice", None), manager.quotas_enabled) == (UNLIMITED, False)


@pytest.mark.parametrize("throttle_ms", [0, -1, -5])
def test_no_throttle_is_accounted_for_as_none(throttle_ms: int) -> None:
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE)
    manager.throttle("alice", None, throttle_ms, 0, channel="one")
    assert [(each.name, each.value) for each in manager.metrics(0)] == [("queue-size", 0.0)]
    manager.throttle("alice", None, 1, 0, channel="one")
    assert (list(manager.unthrottled(0)), list(manager.unthrottled(1))) == ([], ["one"])


def test_who_is_silent_for_an_hour_is_remembered_and_no_longer() -> None:
    def throttled_ms(after_ms: int) -> int:
        manager = ClientQuotaManager(ClientQuotaType.PRODUCE, samples=3, window_ms=SENSOR_EXPIRY_MS)
        manager.update_quota(ALICE, 1.0)
        manager.record_no_throttle("alice", None, 20_000, 0)
        return manager.record_and_get_throttle_time_ms("alice", None, 0, after_ms)

    assert SENSOR_EXPIRY_MS == 60 * 60 * 1_000
    assert throttled_ms(SENSOR_EXPIRY_MS) == 20_000 * 1_000 - 2 * SENSOR_EXPIRY_MS
    assert throttled_ms(SENSOR_EXPIRY_MS + 1) == 0


def test_figures_of_who_is_silent_for_an_hour_are_told_and_no_longer() -> None:
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE)
    manager.record_no_throttle("alice", None, 1, 0)
    assert len(list(manager.metrics(SENSOR_EXPIRY_MS))) == 3
    assert len(list(manager.metrics(SENSOR_EXPIRY_MS + 1))) == 1


def test_a_request_throttle_is_a_window_at_most() -> None:
    manager = ClientRequestQuotaManager(samples=11, window_ms=1_000)
    manager.update_quota(ALICE, 1.0)  # a hundredth of a thread: 0.1 s in 10 s
    assert manager.record_nanos_and_get_throttle_time_ms("alice", None, 100_000_000, 0) == 0
    assert manager.record_nanos_and_get_throttle_time_ms("alice", None, 9_000_000, 0) == 900
    assert manager.record_nanos_and_get_throttle_time_ms("alice", None, 9_000_000, 0) == 1_000


class _Fixed(DefaultQuotaCallback):
    def quota_limit(self, quota_type, metric_tags):
        return 10.0


def test_a_callback_decides_for_every_manager() -> None:
    callback: ClientQuotaCallback = _Fixed()
    managers = QuotaManagers(callback)
    assert managers.callback is callback
    every = (managers.produce, managers.fetch, managers.request, managers.request_rate, managers.controller_mutation)
    assert [manager.quota("anybody", None) for manager in every] == [10.0] * 5


def test_without_a_callback_the_managers_share_one() -> None:
    managers = QuotaManagers()
    managers.update_quota(ALICE, "producer_byte_rate", 10.0)
    limit = managers.callback.quota_limit(ClientQuotaType.PRODUCE, {"user": "alice", "client-id": ""})
    assert limit == managers.produce.quota("alice", None) == 10.0
