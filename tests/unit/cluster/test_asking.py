"""Clients of one process ask a cluster together: in turn, on one connection, and no more often than one would."""

import threading
from typing import Any

import pytest

from kclient_quota.cluster import asking as module
from kclient_quota.cluster.asking import Asking, asking
from kclient_quota.cluster.brokers import ClusterMetadata
from kclient_quota.cluster.limits import EffectiveLimits
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.testing.clock import ManualClock

CONF = {"bootstrap.servers": "one:9092", "client.id": "asks"}


class Cluster:
    """What is asked, and by which connection; answers when it is let."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[Any, str]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.came = threading.Event()
        self.denied: str | None = None
        monkeypatch.setattr(module, "ask_limit", self.ask)

    def ask(self, client: Any, _user: Any, client_id: str, _deadline_ms: int, _clock: Any) -> EffectiveLimits:
        self.asked.append((client, client_id))
        self.came.set()
        assert self.may_answer.wait(60)
        return EffectiveLimits(producer_byte_rate=float(len(self.asked)), denied=self.denied)


def test_what_was_said_a_while_ago_is_said_again_to_those_who_do_not_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, clock = Cluster(monkeypatch), ManualClock()
    asks = Asking(CONF, clock)
    assert asks.limits("alice", "app", 1_000).producer_byte_rate == 1
    clock.sleep_ms(10_000)
    assert asks.limits("alice", "app", 1_000, fresh_ms=30_000).producer_byte_rate == 1
    assert asks.limits("alice", "app", 1_000).producer_byte_rate == 2
    assert asks.limits("alice", "other", 1_000, fresh_ms=30_000).producer_byte_rate == 3
    clock.sleep_ms(31_000)
    assert asks.limits("alice", "app", 1_000, fresh_ms=30_000).producer_byte_rate == 4
    assert len({id(client) for client, _ in cluster.asked}) == 1


def test_those_who_wait_for_their_turn_take_the_answer_that_was_asked_for_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, clock = Cluster(monkeypatch), ManualClock()
    asks = Asking(CONF, clock)
    cluster.may_answer.clear()
    found: list[float | None] = []

    def ask() -> None:
        found.append(asks.limits(None, "app", 60_000).producer_byte_rate)

    first = threading.Thread(target=ask)
    first.start()
    assert cluster.came.wait(60)
    clock.sleep_ms(1)
    others = [threading.Thread(target=ask) for _ in range(5)]
    for each in others:
        each.start()
    cluster.may_answer.set()
    for each in (first, *others):
        each.join(60)
    # The first question was asked before the others came: it may not know what they want to know.
    assert sorted(found) == [1, 2, 2, 2, 2, 2]


class Connections:
    """In place of a `ClusterClient`."""

    def __init__(self, _conf: Any, _clock: Any) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_no_connection_is_kept_while_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ClusterClient", Connections)
    cluster, clock = Cluster(monkeypatch), ManualClock()
    asks = Asking(CONF, clock)
    asks.limits(None, "app", 1_000)
    connections = cluster.asked[0][0]
    clock.sleep_ms(999)
    asks.rest()
    assert not connections.closed, "the next client of a process that starts asks on it, too"
    asks.limits(None, "other", 1_000)
    clock.sleep_ms(999)
    asks.rest()
    assert not connections.closed
    clock.sleep_ms(1)
    asks.rest()
    assert connections.closed == 1


def test_whoever_asks_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ClusterClient", Connections)
    cluster, clock = Cluster(monkeypatch), ManualClock()
    asks = Asking(CONF, clock)
    cluster.may_answer.clear()
    other = threading.Thread(target=asks.limits, args=(None, "app", 60_000))
    other.start()
    assert cluster.came.wait(60)
    clock.sleep_ms(5_000)
    asks.rest()
    assert not cluster.asked[0][0].closed
    cluster.may_answer.set()
    other.join(60)


def test_nobody_waits_for_the_others_for_longer_than_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    asks = Asking(CONF, ManualClock())
    cluster.may_answer.clear()
    other = threading.Thread(target=asks.limits, args=(None, "app", 60_000))
    other.start()
    assert cluster.came.wait(60)
    assert "other clients" in str(asks.limits(None, "app", 1).denied)
    cluster.may_answer.set()
    other.join(60)


def test_what_was_refused_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    asks = Asking(CONF, ManualClock())
    cluster.denied = "no"
    assert asks.limits(None, "app", 1_000).denied == "no"
    cluster.denied = None
    assert asks.limits(None, "app", 1_000, fresh_ms=30_000).producer_byte_rate == 2


def test_clients_of_one_cluster_and_principal_share_it_and_nobody_else_does() -> None:
    mine = asking(CONF)
    assert asking({**CONF, "client.id": "another", "linger.ms": 5}) is mine
    assert asking({**CONF, "bootstrap.servers": "two:9092"}) is not mine
    assert asking({**CONF, "sasl.username": "bob", "sasl.password": "x", "sasl.mechanism": "PLAIN"}) is not mine
    with pytest.raises(ConfigError):
        asking({"bootstrap.servers": ""})


def test_leaders_are_told_or_nobody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asks = Asking(CONF, ManualClock())
    known = ClusterMetadata("c", 1, {}, {("t", 0): 2}, {})
    monkeypatch.setattr(module, "describe_cluster", lambda *_, timeout_ms: known)
    assert asks.leaders(["t"], 1_000) == {("t", 0): 2}

    def refuse(*_: object, timeout_ms: int) -> ClusterMetadata:
        raise ClusterError(f"nobody answered in {timeout_ms} ms")

    monkeypatch.setattr(module, "describe_cluster", refuse)
    assert asks.leaders(["t"], 1_000) == {}


def test_no_connection_is_kept_for_leaders_whom_nobody_asks_for_again_within_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who asks for them may have no watch that lets a connection rest: its limit was given by hand."""
    made: list[Connections] = []

    def connections(conf: Any, clock: Any) -> Connections:
        made.append(Connections(conf, clock))
        return made[-1]

    monkeypatch.setattr(module, "ClusterClient", connections)
    known = ClusterMetadata("c", 1, {}, {("t", 0): 2}, {})
    monkeypatch.setattr(module, "describe_cluster", lambda *_, timeout_ms: known)
    asks = Asking(CONF, ManualClock())
    assert asks.leaders(["t"], 1_000) == {("t", 0): 2}
    assert made[0].closed == 1


def test_leaders_are_not_waited_for_while_others_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    asks = Asking(CONF, ManualClock())
    cluster.may_answer.clear()
    other = threading.Thread(target=asks.limits, args=(None, "app", 60_000))
    other.start()
    try:
        assert cluster.came.wait(60)
        assert asks.leaders(["t"], 1) == {}
    finally:
        cluster.may_answer.set()
        other.join(60)


def test_whatever_an_application_raises_while_leaders_are_asked_for_stays_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_args: Any, **_options: Any) -> None:
        raise RuntimeError("the token server is away")

    monkeypatch.setattr(module, "describe_cluster", refused)
    asks = Asking(CONF, ManualClock())
    assert asks.leaders(["orders"], 1_000) == {}
    assert asks.leaders(["orders"], 1_000) == {}, "and the next may ask"
