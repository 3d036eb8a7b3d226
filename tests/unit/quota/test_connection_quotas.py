"""Connections per second of addresses and of whole brokers (KIP-612), by Kafka's formula on a clock of paper."""

import math

from kclient_quota.quota.connections import NO_CONNECTION_RATE, ConnectionQuotas
from kclient_quota.quota.entity import DEFAULT

START_MS = 1_700_000_000_000
KEY = "connection_creation_rate"


def limited(**limits):
    quotas = ConnectionQuotas()
    for address, limit in limits.items():
        quotas.update_quota(DEFAULT if address == "default" else address.replace("_", "."), KEY, limit)
    return quotas


def connect(quotas, count, address="10.0.0.1", at_ms=START_MS):
    """How long each of so many connections at once is refused for."""
    found = []
    for _ in range(count):
        quotas.waits_ms("PLAINTEXT", NO_CONNECTION_RATE, at_ms)
        found.append(quotas.refused_ms("PLAINTEXT", address, at_ms))
    return found


def metric(quotas, name, at_ms, **tags):
    return next(m.value for m in quotas.metrics(at_ms) if (m.name, dict(m.tags)) == (name, tags))


def test_a_whole_window_may_come_at_once_and_the_next_waits_until_the_rate_is_met():
    quotas = limited(**{"10_0_0_1": 5})
    assert connect(quotas, 51) == [0] * 50 + [200]  # (51 - 50) / 50 of ten seconds


def test_nobody_waits_longer_than_one_sample_of_the_window():
    quotas = limited(**{"10_0_0_1": 1})
    assert connect(quotas, 13) == [0] * 10 + [1000] * 3


def test_who_is_refused_does_not_count():
    quotas = limited(**{"10_0_0_1": 5})
    connect(quotas, 150)
    assert metric(quotas, "connection-accept-rate", START_MS, ip="10.0.0.1") == 5.0
    assert metric(quotas, "connection-accept-rate", START_MS, listener="PLAINTEXT") == 5.0
    assert metric(quotas, "broker-connection-accept-rate", START_MS) == 5.0
    assert metric(quotas, "ip-connection-accept-throttle-time", START_MS, listener="PLAINTEXT") == 200.0
    assert connect(quotas, 2, at_ms=START_MS + 200) == [0, 200]  # 51 are right in 10.2 s, 52 in 10.4 s


def test_others_are_measured_by_themselves_and_without_a_quota_not_at_all():
    quotas = limited(default=1, **{"10_0_0_2": 100})
    assert connect(quotas, 11, "10.0.0.1")[-1] == 1000
    assert connect(quotas, 11, "10.0.0.3")[-1] == 1000
    assert not any(connect(quotas, 1000, "10.0.0.2"))
    quotas.update_quota(DEFAULT, KEY, None)
    assert quotas.quota("10.0.0.1") == NO_CONNECTION_RATE
    assert not any(connect(quotas, 1000, "10.0.0.1"))
    assert metric(quotas, "connection-accept-rate", START_MS, ip="10.0.0.1") == 1.0


def test_a_changed_quota_holds_for_those_who_came_before():
    quotas = limited(**{"10_0_0_1": 5})
    connect(quotas, 50)
    quotas.update_quota("10.0.0.1", KEY, 10)
    assert not any(connect(quotas, 50))
    quotas.update_quota("10.0.0.1", KEY, 5)
    assert connect(quotas, 1) == [1000]


def test_an_address_is_the_same_however_it_is_written():
    quotas = limited(**{"0:0:0:0:0:0:0:1": 7, "10_0_0_1": 3})
    assert [quotas.quota(name) for name in ("::1", "::ffff:10.0.0.1", "10.0.0.1")] == [7, 3, 3]
    quotas.update_quota("::1", KEY, None)
    assert quotas.quota("::1") == NO_CONNECTION_RATE
    assert quotas.quota("no address") == NO_CONNECTION_RATE


def test_an_address_is_forgotten_after_an_hour():
    quotas = limited(default=1)
    connect(quotas, 1)
    later_ms = START_MS + 3_600_001
    assert [m.tags for m in quotas.metrics(later_ms) if "ip" in m.tags] == []


def test_a_broker_that_takes_few_holds_up_everybody_for_at_most_a_sample():
    quotas = ConnectionQuotas()
    assert [quotas.waits_ms("PLAINTEXT", 5, START_MS) for _ in range(52)] == [0] * 50 + [200, 400]
    assert quotas.waits_ms("SSL", 1, START_MS) == 1000
    assert metric(quotas, "connection-accept-throttle-time", START_MS, listener="PLAINTEXT") == 300.0
    assert math.isnan(metric(quotas, "ip-connection-accept-throttle-time", START_MS, listener="PLAINTEXT"))
