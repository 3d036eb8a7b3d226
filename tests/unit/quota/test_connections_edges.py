"""Connections per second at the bounds: who is measured, who is forgotten, and how exactly addresses are told apart."""

import math

import pytest

from kclient_quota.quota.connections import NO_CONNECTION_RATE, ConnectionQuotas
from kclient_quota.quota.entity import DEFAULT
from kclient_quota.quota.manager import SENSOR_EXPIRY_MS

KEY = "connection_creation_rate"
START_MS = 1_700_000_000_000
HERE = "10.0.0.1"


def quotas_of(limit: float, **options: int) -> ConnectionQuotas:
    quotas = ConnectionQuotas(**options)
    quotas.update_quota(HERE, KEY, limit)
    return quotas


def figures(quotas: ConnectionQuotas, now_ms: int) -> dict[tuple[str, str], float]:
    found = {}
    for metric in quotas.metrics(now_ms):
        assert metric.group == "socket-server-metrics"
        found[metric.name, ",".join(f"{key}={value}" for key, value in metric.tags.items())] = metric.value
    return found


def test_no_rate_is_javas_largest_int_and_the_window_is_that_of_quotas() -> None:
    quotas = ConnectionQuotas()
    assert NO_CONNECTION_RATE == 2**31 - 1
    assert (quotas.samples, quotas.window_ms) == (11, 1_000)
    assert (quotas.quota(HERE), quotas.quota("anything")) == (2**31 - 1, 2**31 - 1)
    assert figures(quotas, START_MS) == {("broker-connection-accept-rate", ""): 0.0}


def test_other_keys_change_nothing() -> None:
    quotas = quotas_of(5)
    for key in ("producer_byte_rate", "", "connection_creation_rat"):
        quotas.update_quota(HERE, key, 1)
        quotas.update_quota(DEFAULT, key, 1)
        quotas.update_quota(HERE, key, None)
    assert (quotas.quota(HERE), quotas.quota("10.0.0.2")) == (5, NO_CONNECTION_RATE)
    quotas.update_quota(HERE, KEY.encode().decode(), 6)  # as from the wire: equal, not the same
    assert quotas.quota(HERE) == 6


@pytest.mark.parametrize(
    ("limit", "measured"),
    [(2**31 - 2, True), (2**31 - 1, False), (float(2**31 - 1), False), (2**31, True), (1e300, True)],
)
def test_only_whom_a_quota_holds_is_measured_by_address(limit: float, measured: bool) -> None:
    quotas = quotas_of(limit)
    assert quotas.refused_ms("L", HERE, START_MS) == 0
    assert (("connection-accept-rate", f"ip={HERE}") in figures(quotas, START_MS)) is measured
    assert quotas.waits_ms("L", limit, START_MS) == 0


def test_a_small_window() -> None:
    quotas = quotas_of(4, samples=3, window_ms=500)  # a second's worth at once
    assert [quotas.refused_ms("L", HERE, START_MS) for _ in range(8)] == [0, 0, 0, 0, 250, 250, 250, 250]
    assert [quotas.refused_ms("L", HERE, START_MS + after_ms) for after_ms in (249, 250, 251)] == [1, 0, 249]
    longer = [quotas_of(1, samples=3, window_ms=500) for _ in range(2)]
    assert [longer[0].refused_ms("L", HERE, START_MS) for _ in range(3)] == [0, 500, 500]  # no longer than a sample
    assert [longer[1].waits_ms("L", 1, START_MS) for _ in range(3)] == [0, 500, 500]


def test_what_is_told_of_a_listener() -> None:
    quotas = quotas_of(1, samples=2, window_ms=1_000)
    assert [quotas.waits_ms("L", 2, START_MS) for _ in range(4)] == [0, 0, 500, 1_000]
    assert quotas.waits_ms("M", NO_CONNECTION_RATE, START_MS) == 0
    assert [quotas.refused_ms("L", HERE, START_MS) for _ in range(2)] == [0, 1_000]
    found = figures(quotas, START_MS)
    nans = {key for key, value in found.items() if math.isnan(value)}
    assert nans == {
        ("connection-accept-throttle-time", "listener=M"),
        ("ip-connection-accept-throttle-time", "listener=M"),
    }
    assert {key: value for key, value in found.items() if key not in nans} == {
        ("broker-connection-accept-rate", ""): 4.0,  # of five one was refused
        ("connection-accept-rate", "listener=L"): 3.0,
        ("connection-accept-rate", "listener=M"): 1.0,
        ("connection-accept-throttle-time", "listener=L"): 750.0,
        ("ip-connection-accept-throttle-time", "listener=L"): 1_000.0,
        ("connection-accept-rate", f"ip={HERE}"): 1.0,
    }


def test_who_was_never_held_up_has_no_throttle_time_of_zero() -> None:
    quotas = quotas_of(100)
    assert quotas.waits_ms("L", 100, START_MS) == quotas.refused_ms("L", HERE, START_MS) == 0
    found = figures(quotas, START_MS)
    assert math.isnan(found["connection-accept-throttle-time", "listener=L"])
    assert math.isnan(found["ip-connection-accept-throttle-time", "listener=L"])


@pytest.mark.parametrize(("after_ms", "refused_ms"), [(SENSOR_EXPIRY_MS, 3_600_000), (SENSOR_EXPIRY_MS + 1, 0)])
def test_who_comes_again_after_an_hour_is_remembered_and_no_later(after_ms: int, refused_ms: int) -> None:
    quotas = quotas_of(1 / 7_200, samples=3, window_ms=SENSOR_EXPIRY_MS)  # one in two hours
    assert quotas.refused_ms("L", HERE, START_MS) == 0
    assert quotas.refused_ms("L", HERE, START_MS + after_ms) == refused_ms


@pytest.mark.parametrize(("after_ms", "told"), [(SENSOR_EXPIRY_MS, True), (SENSOR_EXPIRY_MS + 1, False)])
def test_figures_of_an_address_are_told_for_an_hour(after_ms: int, told: bool) -> None:
    quotas = quotas_of(1)
    quotas.refused_ms("L", HERE, START_MS - 5)
    quotas.refused_ms("L", HERE, START_MS)
    assert (("connection-accept-rate", f"ip={HERE}") in figures(quotas, START_MS + after_ms)) is told


def test_addresses_are_told_apart() -> None:
    limits = {"::1": 1, "::2": 2, "2001:db8::1": 3, "10.0.0.1": 4, "::10.0.0.2": 5, "host": 6}
    quotas = ConnectionQuotas()
    for address, limit in limits.items():
        quotas.update_quota(address, KEY, limit)
    assert {address: quotas.quota(address) for address in limits} == limits
    assert quotas.quota("2001:0DB8:0:0:0:0:0:1") == 3
    assert quotas.quota("::ffff:a00:1") == 4
    assert [quotas.quota(name) for name in ("10.0.0.2", "::3", "HOST")] == [NO_CONNECTION_RATE] * 3
    quotas.refused_ms("L", "::ffff:10.0.0.1", START_MS)
    quotas.refused_ms("L", "10.0.0.1", START_MS)
    quotas.refused_ms("L", "::2", START_MS)
    found = figures(quotas, START_MS)
    assert {key[1]: value for key, value in found.items() if key[1]} == {"ip=10.0.0.1": 0.2, "ip=::2": 0.1}


def test_the_quota_of_whoever_has_none_comes_and_goes() -> None:
    quotas = quotas_of(5)
    quotas.update_quota(DEFAULT, KEY, 7)
    assert (quotas.quota(HERE), quotas.quota("10.0.0.2")) == (5, 7)
    quotas.update_quota(HERE, KEY, None)
    quotas.update_quota(HERE, KEY, None)
    assert quotas.quota(HERE) == 7
    quotas.update_quota(DEFAULT, KEY, None)
    assert quotas.quota(HERE) == NO_CONNECTION_RATE
