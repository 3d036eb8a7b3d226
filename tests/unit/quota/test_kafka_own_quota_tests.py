"""Kafka's own unit tests of token buckets and quota managers, retold with their numbers."""

import pytest

from kclient_quota.quota.callback import ClientQuotaType, DefaultQuotaCallback
from kclient_quota.quota.delay_queue import DelayQueue
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from kclient_quota.quota.manager import ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager
from kclient_quota.quota.throttle import (
    UNLIMITED,
)
from kclient_quota.quota.token_bucket import TokenBucket, token_throttle_time_ms


def value_of(manager, name, now_ms):
    return next(metric.value for metric in manager.metrics(now_ms) if metric.name == name)


def test_case_1_quota_violation():
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE)
    manager.update_quota(ClientQuotaEntity.of(client_id=DEFAULT), 500)
    now = 0

    def use(value):
        return manager.maybe_record_and_get_throttle_time_ms("ANONYMOUS", "unknown", value, now)

    for _ in range(10):
        assert use(400) == 0
        now += 1000
    assert value_of(manager, "queue-size", now) == 0
    now += 500
    throttle = use(2300)
    assert throttle == 2100
    manager.throttle("ANONYMOUS", "unknown", throttle, now, channel="one")
    assert value_of(manager, "queue-size", now) == 1
    now += throttle - 1
    assert list(manager.unthrottled(now)) == []
    now += 1
    assert list(manager.unthrottled(now)) == ["one"]
    assert value_of(manager, "queue-size", now) == 0
    assert value_of(manager, "throttle-time", now) == 2100
    for _ in range(10):
        use(400)
        now += 1000
    assert use(0) == 0


def test_case_2_request_percentage():
    manager = ClientRequestQuotaManager()
    manager.update_quota(ClientQuotaEntity.of(client_id=DEFAULT), 1)
    now = 0

    def use(millis):
        return manager.record_nanos_and_get_throttle_time_ms("ANONYMOUS", "test-client", round(millis * 1e6), now)

    for _ in range(10):
        assert use(4) == 0
        now += 1000
    now += 500
    assert use(67.1) == 210
    now += 210
    for _ in range(11):
        use(4)
        now += 1000
    assert use(0) == 0
    assert use(500) == 1000
    for _ in range(10):
        now += 1000
        assert use(0) == 1000
    now += 1000
    assert use(0) == 0


@pytest.mark.parametrize(
    "entity",
    [
        {"user": DEFAULT},
        {"user": "userA"},
        {"client_id": DEFAULT},
        {"client_id": "client1"},
        {"user": DEFAULT, "client_id": DEFAULT},
        {"user": "userA", "client_id": "client1"},
    ],
    ids=str,
)
def test_case_40_set_and_remove(entity):
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE)
    entity = ClientQuotaEntity.of(**entity)
    manager.update_quota(entity, 10)
    assert manager.quota("userA", "client1") == 10
    assert manager.record_and_get_throttle_time_ms("userA", "client1", 1000 * 11, 0) > 0
    manager.update_quota(entity, None)
    assert manager.quota("userA", "client1") == UNLIMITED
    assert manager.record_and_get_throttle_time_ms("userA", "client1", 1000 * 11, 0) == 0


def set_quota(manager, value, user=None, client_id=None):
    manager.update_quota(ClientQuotaEntity.of(user=user, client_id=client_id), value)


PRECEDENCE = [
    ("userA", "client1", 5000, 4500, False),
    ("userA", "client2", 4000, 4500, True),
    ("userA", "client3", 4000, 0, True),
    ("userA", "client1", 5000, 0, False),
    ("userB", "client1", 7000, 8000, True),
    ("userB", "client2", 8000, 7000, False),
    ("userB", "client3", 8000, 7000, False),
    ("userD", "client1", 3000, 3500, True),
    ("userD", "client2", 3000, 2500, False),
    ("userE", "client1", 3000, 2500, False),
    ("-", {"user": DEFAULT, "client_id": DEFAULT}, None),
    ("userD", "client1", 1000, 0, False),
    ("userE", "client4", 1000, 1500, True),
    ("userF", "client4", 1000, 800, False),
    ("userF", "client5", 1000, 800, True),
    ("-", {"user": DEFAULT}, None),
    ("userF", "client4", 2000, 0, False),
    ("userF", "client5", 2000, 0, False),
    ("userF", "client5", 2000, 2500, True),
    ("userG", "client5", 2000, 0, True),
    ("-", {"user": "userA"}, 8000),
    ("-", {"user": "userA", "client_id": "client1"}, 10_000),
    ("userA", "client2", 8000, 0, False),
    ("userA", "client2", 8000, 4500, True),
    ("userA", "client1", 10_000, 0, False),
    ("userA", "client1", 10_000, 6000, True),
    ("-", {"user": "userA", "client_id": "client1"}, None),
    ("userA", "client6", 8000, 0, True),
    ("-", {"user": "userA", "client_id": "client6"}, 11_000),
    ("userA", "client6", 11_000, 8500, False),
    ("-", {"user": "userA", "client_id": DEFAULT}, 12_000),
    ("-", {"user": "userA", "client_id": "client6"}, None),
    ("userA", "client6", 12_000, 4000, True),
]


@pytest.mark.parametrize("sticky", [True, False])
def test_case_41_to_65_precedence(sticky):
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE, DefaultQuotaCallback(sticky_types=sticky))
    set_quota(manager, 1000, DEFAULT)
    set_quota(manager, 2000, None, DEFAULT)
    set_quota(manager, 3000, DEFAULT, DEFAULT)
    set_quota(manager, 4000, "userA")
    set_quota(manager, 5000, "userA", "client1")
    set_quota(manager, 6000, "userB")
    set_quota(manager, 7000, "userB", "client1")
    set_quota(manager, 8000, "userB", DEFAULT)
    set_quota(manager, 10_000, "userC")
    set_quota(manager, 9000, None, "client1")
    for number, row in enumerate(PRECEDENCE):
        if row[0] == "-":
            set_quota(manager, row[2], **row[1])
            continue
        user, client_id, bound, value, throttled = row
        assert manager.quota(user, client_id) == bound, number
        throttle = manager.maybe_record_and_get_throttle_time_ms(user, client_id, value * 11, 0)
        assert (throttle > 0) is throttled, number


def test_case_68_client_id_is_not_sanitized_but_the_user_is():
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE)
    set_quota(manager, 500, None, "client@#$%")
    manager.maybe_record_and_get_throttle_time_ms("User A", "client@#$%", 400, 0)
    assert set(manager._sensors) == {("", "client@#$%")}
    set_quota(manager, 500, "User A")
    manager.maybe_record_and_get_throttle_time_ms("User A", "client@#$%", 400, 0)
    assert set(manager._sensors) == {("", "client@#$%"), ("User%20A", "")}


def test_case_69_delay_queue_releases_one_at_a_time():
    queue = DelayQueue()
    for number, delay_ms in enumerate((10, 30, 30, 20)):
        queue.add(number, delay_ms, 0)
    released = []
    for now_ms in (10, 20, 30, 30, 30):
        released.append(queue.poll(now_ms))
    assert released == [0, 3, 1, 2, None]
    assert len(queue) == 0
    assert queue.next_end_ms() is None


def test_case_70_quota_types_enabled():
    callback = DefaultQuotaCallback()
    manager = ClientQuotaManager(ClientQuotaType.PRODUCE, callback)
    steps = [
        (None, "client1", 5, 1),
        ("userA", None, 5, 3),
        (None, "client2", 5, 3),
        ("userB", None, 5, 3),
        ("userA", "client1", 10, 7),
        ("userA", "client1", 12, 7),
        ("userA", None, None, 7),
        ("userB", None, None, 5),
        (None, "client1", None, 5),
        (None, "client2", None, 4),
        ("userA", "client1", None, 0),
        ("userA", "client1", None, 0),
    ]
    for user, client_id, value, enabled in steps:
        set_quota(manager, value, user, client_id)
        assert callback.quota_types_enabled(ClientQuotaType.PRODUCE) == enabled
    assert callback.quota_types_enabled(ClientQuotaType.FETCH) == 0


def test_case_71_token_bucket():
    bucket, now = TokenBucket(10, 2000), 100_000
    assert bucket.measure(5, now) == 100
    bucket.record(60, 5, now)
    assert bucket.measure(5, now) == 40
    bucket.record(5, 5, now + 2000)
    assert bucket.measure(5, now + 2000) == 45
    bucket.record(60, 5, now + 4000)
    assert bucket.measure(5, now + 4000) == -5


def test_case_71_token_bucket_unrecord():
    bucket, now = TokenBucket(10, 2000), 100_000
    for at_ms, taken, left in ((0, 0, 100), (0, -60, 100), (0, 60, 40), (2000, -60, 100)):
        bucket.record(taken, 5, now + at_ms)
        assert bucket.measure(5, now + at_ms) == left


@pytest.mark.parametrize(("tokens", "throttle"), [(0, 0), (-5, 500), (-10, 1000)])
def test_case_72_token_throttle_time(tokens, throttle):
    assert token_throttle_time_ms(tokens, 10) == throttle


def mutations(quota, samples=10):
    manager = ControllerMutationQuotaManager(samples=samples)
    set_quota(manager, quota, "userA", "client1")
    return manager


def test_case_73_strict():
    manager, now = mutations(10), 1_000_000
    quota = manager.quota_for("userA", "client1", now, strict=True)
    assert not quota.is_exceeded
    for taken, throttle in ((True, 0), (True, 0), (False, 8000)):
        assert quota.record(90, now) is taken
        assert quota.is_exceeded is not taken
        assert quota.throttle_time_ms(now) == throttle
    assert quota.throttle_time_ms(now + 5000) == 3000


def test_case_74_permissive():
    manager, now = mutations(10), 1_000_000
    quota = manager.quota_for("userA", "client1", now, strict=False)
    for throttle in (0, 8000, 17_000):
        assert quota.record(90, now)
        assert not quota.is_exceeded
        assert quota.throttle_time_ms(now) == throttle
    assert quota.throttle_time_ms(now + 5000) == 12_000


def test_case_75_controller_mutation_manager():
    manager, now = mutations(10), 1_000_000
    for _ in range(10):
        assert manager.maybe_record_and_get_throttle_time_ms("userA", "client1", 10, now) == 0
        now += 1000
    assert manager.maybe_record_and_get_throttle_time_ms("userA", "client1", 110, now) == 0
    assert manager.maybe_record_and_get_throttle_time_ms("userA", "client1", 110, now) == 1000
    manager.throttle("userA", "client1", 1000, now)
    assert value_of(manager, "queue-size", now) == 1
    assert value_of(manager, "tokens", now) == -10
    now += 1000
    assert list(manager.unthrottled(now)) == [None]
    assert manager.maybe_record_and_get_throttle_time_ms("userA", "client1", 110, now) == 0


def test_case_75_no_quota_is_no_limit():
    manager = ControllerMutationQuotaManager()
    quota = manager.quota_for("userA", "client1", 0, strict=True)
    assert quota.record(1e9, 0)
    assert quota.throttle_time_ms(0) == 0
    assert manager.maybe_record_and_get_throttle_time_ms("userA", "client1", 1e9, 0) == 0


def test_case_76_overdrawn_bucket():
    bucket, now = TokenBucket(10, 1000), 1_000_000
    bucket.record(30, 2, now)
    assert bucket.measure(2, now) == -10
    assert bucket.measure(2, now + 5000) == 0
    bucket.record(30, 2, now + 5000)
    assert bucket.measure(2, now + 5000) == -30


def test_case_77_two_topics_of_thirty_partitions():
    strict, now = mutations(2).quota_for("userA", "client1", 1_000_000, strict=True), 1_000_000
    assert [strict.record(30, now), strict.record(30, now)] == [True, False]
    assert 0 < strict.throttle_time_ms(now) <= 5000
    permissive = mutations(2).quota_for("userA", "client1", now, strict=False)
    assert [permissive.record(30, now), permissive.record(30, now)] == [True, True]
    assert 0 < permissive.throttle_time_ms(now) <= 20_000
