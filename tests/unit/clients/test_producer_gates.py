"""What a producer's gates make of statistics, throttles and limits."""

import json
import logging
from typing import Any

import pytest

from kclient_quota.clients.admission import Gate
from kclient_quota.clients.gate import CALM_MS, ProducerGates, warn_of_default_client_id
from kclient_quota.clients.limits import UNKNOWN, Limit
from kclient_quota.clients.routing import Route
from kclient_quota.config import Backoff, LimitSource
from kclient_quota.metrics import MetricName
from kclient_quota.testing.clock import ManualClock

NONE = Limit(None, None, LimitSource.CLUSTER)
LIMITED = Limit(50_000, None, LimitSource.CLUSTER, "{client-id=app}")


def made(limit: Limit, backoff: Backoff = Backoff.BLOCK) -> tuple[ProducerGates, ManualClock, list[bool]]:
    clock = ManualClock(1_000)
    gates = ProducerGates(backoff, "app", limit, clock)
    stances: list[bool] = []
    gates.on_stance = stances.append
    return gates, clock, stances


def only(gates: ProducerGates) -> Gate:
    assert gates.only is not None
    return gates.only


def statistics(node: int = 1, **counters: Any) -> str:
    broker = {"nodeid": node, "nodename": f"host:909{node}", "name": f"host:909{node}/{node}", **counters}
    return json.dumps({"brokers": {broker["name"]: broker}})


@pytest.mark.parametrize(
    ("limit", "backoff", "gated"),
    [
        (LIMITED, Backoff.BLOCK, True),
        (LIMITED, Backoff.RAISE, True),
        (LIMITED, Backoff.OFF, False),
        (UNKNOWN, Backoff.BLOCK, True),
        (NONE, Backoff.BLOCK, False),
        (Limit(None, 50.0, LimitSource.CLUSTER), Backoff.BLOCK, True),
    ],
)
def test_who_is_gated(limit: Limit, backoff: Backoff, gated: bool) -> None:
    gates, _, stances = made(limit, backoff)
    gates.review()
    assert stances == [gated]


def test_a_throttle_that_no_quota_explains_steps_in_asks_and_calms_down() -> None:
    gates, clock, stances = made(NONE)
    asked: list[int] = []
    gates.ask_soon = lambda: asked.append(clock.now_ms())
    gates.on_throttle("host:9091/1", 1, 500)
    assert stances[-1] is True
    assert asked == [1_000]
    gates.on_throttle("host:9091/1", 1, 500)
    assert asked == [1_000]
    clock.sleep_ms(CALM_MS + 501)
    gates.on_statistics(statistics())
    assert stances[-1] is False


def test_a_limit_that_appears_is_followed_by_the_gates_there_are(caplog: pytest.LogCaptureFixture) -> None:
    gates, _, stances = made(NONE)
    with caplog.at_level(logging.INFO, "kclient_quota"):
        gates.on_limit(LIMITED)
        gates.on_limit(LIMITED)
    assert gates.state()[-1].limit == 50_000
    assert gates.state()[-1].source == "cluster"
    assert caplog.text.count("50,000 B/s per broker, from cluster, {client-id=app}") == 1
    assert stances == []
    gates.on_statistics(statistics())
    assert stances == [True]


def test_throttling_is_logged_when_it_starts_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    gates, clock, _ = made(LIMITED)
    with caplog.at_level(logging.INFO, "kclient_quota"):
        for _ in range(10):
            gates.on_throttle("host:9091/1", 1, 700)
            clock.sleep_ms(700)
            gates.on_statistics(statistics())
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        for _ in range(10):
            clock.sleep_ms(1_000)
            gates.on_statistics(statistics())
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
        gates.on_throttle("host:9091/1", 1, 700)
        clock.sleep_ms(10_000)
        gates.on_statistics(statistics())
    # Within a minute of the first warning the second stretch stays silent, at both ends.
    assert len(caplog.records) == 2


def test_a_coordinators_throttle_goes_to_the_broker_at_its_address() -> None:
    gates, _, _ = made(LIMITED)
    gates.split()
    gates.on_statistics(statistics(node=2))
    gates.on_throttle("host:9092/bootstrap", -1, 5_000)
    assert gates.state()[2].throttled_until_ms == 5_000


def test_metrics_count_unthrottled_responses_too() -> None:
    gates, _, _ = made(LIMITED)
    gates.on_statistics(statistics(rx=10, tx=10, txbytes=1_000, throttle={"cnt": 2, "sum": 500, "max": 300}))
    found = gates.metrics()
    tags = (("client-id", "app"),)
    assert found[MetricName("produce-throttle-time-avg", "producer-metrics", tags)] == 50.0
    assert found[MetricName("produce-throttle-time-max", "producer-metrics", tags)] == 300.0


def test_metrics_are_zero_when_nothing_happened() -> None:
    gates, _, _ = made(LIMITED)
    assert set(gates.metrics().values()) == {0.0}


def test_the_state_goes_by_the_brokers_id_as_soon_as_it_is_known() -> None:
    gates, _, _ = made(LIMITED)
    assert gates.admit(only(gates), 100) == 0
    assert list(gates.state()) == [-1]
    gates.on_statistics(statistics(node=7))
    assert list(gates.state()) == [7]
    assert gates.state()[7].admitted > 0


def test_close_knows_whether_a_throttle_outlasts_it() -> None:
    gates, clock, _ = made(LIMITED)
    assert not gates.outlasts(clock.now_ms() + 60_000)
    gates.on_throttle("host:9091/1", 1, 43_200_000)
    assert gates.outlasts(clock.now_ms() + 60_000)
    assert gates.throttled()


def test_what_librdkafka_refuses_is_given_back() -> None:
    gates, _, _ = made(LIMITED)
    gate = only(gates)
    assert gates.admit(gate, 500) == 0
    before = gate.handed
    gates.give_back(gate, 500)
    assert gate.handed == before - 500


@pytest.mark.parametrize(
    ("conf", "limit", "said"),
    [
        ({}, LIMITED, True),
        ({"client.id": "rdkafka"}, LIMITED, True),
        ({"client.id": "app"}, LIMITED, False),
        ({}, Limit(50_000, None, LimitSource.CLUSTER, "{user=alice}"), False),
        ({}, NONE, False),
    ],
)
def test_the_default_client_id_under_a_client_id_quota_is_warned_of(
    conf: dict[str, Any], limit: Limit, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_default_client_id(conf, limit)
    assert ("client.id" in caplog.text) is said


def test_a_limit_that_could_not_be_asked_for_is_asked_for_again_once_the_broker_answers() -> None:
    gates, clock, _ = made(UNKNOWN)
    asked: list[int] = []
    gates.ask_soon = lambda: asked.append(clock.now_ms())
    for _ in range(40):
        gates.on_statistics(statistics())
        clock.sleep_ms(1_000)
    assert asked == [1_000, 31_000]


def test_what_may_go_anywhere_is_spread_evenly_over_partitions_of_one_broker() -> None:
    gates, clock, _ = made(LIMITED)
    gate = only(gates)
    route = Route([1, 1, 1], lambda _leader: gate, clock.now_ms())
    chosen = [gates.choose(route, 1_000) for _ in range(9)]
    assert sorted(chosen) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(("samples", "burst_ms"), [(31, 3_000), (11, 1_000), (3, 200)])
def test_an_idle_producer_sends_a_tenth_of_the_brokers_own_window_at_once(samples: int, burst_ms: int) -> None:
    gates, clock, _ = made(Limit(50_000, None, LimitSource.CLUSTER, samples=samples, window_ms=1_000))
    gate = only(gates)
    assert gates.admit(gate, 100) == 0
    gates.settled(gate, gate.handed)
    for _ in range(600):
        clock.sleep_ms(100)
        gate.wait_ms(1 << 40, clock.now_ms())
    begin = gate.handed
    while not gates.admit(gate, 500):
        gates.settled(gate, gate.handed)
    assert gate.handed - begin == pytest.approx(50 * burst_ms, rel=0.35, abs=3_000)
