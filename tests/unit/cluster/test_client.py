"""Whom a ClusterClient asks, with brokers written down in the test and a clock that only waiting moves."""

from __future__ import annotations

import pytest

from kclient_quota.cluster import client as client_module
from kclient_quota.cluster.brokers import describe_cluster
from kclient_quota.cluster.client import TRANSACTION, ClusterClient
from kclient_quota.cluster.limits import discover_limit
from kclient_quota.errors import ClusterError
from kclient_quota.testing.clock import ManualClock
from kclient_quota.wire.messages import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

BROKERS = {1: ("one", 9092), 2: ("two", 9092)}


class Script:
    """The brokers: who is down, what each request is answered, and what happened."""

    def __init__(self):
        self.clock = ManualClock()
        self.down = set()
        self.controller_id = 1
        self.answers = {MetadataRequest: self.metadata}
        self.coordinator_version = 6
        self.log = []

    def metadata(self, _peer, _request):
        brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=node_id, host=host, port=port)
            for node_id, (host, port) in BROKERS.items()
        ]
        return MetadataResponse(brokers=brokers, controller_id=self.controller_id)


class ScriptedConnection:
    script = None

    def __init__(self, settings, clock):
        self.settings = settings
        self.script = type(self).script
        assert clock is self.script.clock
        self.closed = False

    def open(self, timeout_ms):
        host = self.settings.host
        self.script.log.append(f"open {host} {timeout_ms}")
        if host in self.script.down:
            self.script.clock.sleep_ms(timeout_ms)
            raise ClusterError(f"{host} did not accept a connection")
        return self

    def pick_version(self, _request):
        return self.script.coordinator_version

    def send_many(self, requests, *, timeout_ms):
        assert timeout_ms > 0
        if self.settings.host in self.script.down:
            raise ClusterError(f"{self.settings.host} is gone")
        self.script.log += [f"{self.settings.host} {type(request).__name__}" for request in requests]
        return [self.script.answers[type(request)](self.settings.host, request) for request in requests]

    def close(self):
        self.closed = True


@pytest.fixture
def script(monkeypatch):
    made = Script()
    monkeypatch.setattr(ScriptedConnection, "script", made)
    monkeypatch.setattr(client_module, "Connection", ScriptedConnection)
    return made


def client_of(script, servers="one,two"):
    return ClusterClient({"bootstrap.servers": servers}, script.clock)


def test_connections_are_kept(script):
    with client_of(script) as client:
        describe_cluster(client, timeout_ms=1000)
        describe_cluster(client, timeout_ms=1000)
    assert script.log == ["open one 500", "one MetadataRequest", "one MetadataRequest"]


def test_each_bootstrap_server_has_its_share_of_the_time(script):
    script.down = {"one", "two", "three"}
    with pytest.raises(ClusterError, match=r"one did not .*; two did not .*; three did not") as caught:
        describe_cluster(client_of(script, "one,two,three"), timeout_ms=900)
    assert caught.value.error_code is None
    assert script.log == ["open one 300", "open two 300", "open three 300"]
    assert script.clock.now_ms() == 900


def test_a_dead_connection_is_replaced_by_another_broker(script):
    client = client_of(script)
    describe_cluster(client, timeout_ms=1000)
    script.down = {"one"}
    describe_cluster(client, timeout_ms=1000)
    assert script.log[2:] == ["open one 500", "open two 500", "two MetadataRequest"]


def test_the_controller_is_found_again_when_it_has_moved(script):
    def end(peer, _request):
        if peer == "one":
            script.controller_id = 2
        return EndTxnResponse(error_code=41 if peer == "one" else 0)

    script.answers[EndTxnRequest] = end
    assert client_of(script).ask_controller(EndTxnRequest(), timeout_ms=1000).error_code == 0
    assert [line for line in script.log if "EndTxn" in line] == ["one EndTxnRequest", "two EndTxnRequest"]
    assert script.clock.now_ms() == 100


def test_a_dead_controller_is_forgotten(script):
    script.answers[EndTxnRequest] = lambda *_: EndTxnResponse(error_code=0)
    client = client_of(script)
    client.ask_controller(EndTxnRequest(), timeout_ms=1000)
    script.down = {"one"}
    script.controller_id = 2
    script.log.clear()
    assert client.ask_controller(EndTxnRequest(), timeout_ms=5_000).error_code == 0
    assert script.log[-1] == "two EndTxnRequest"
    script.log.clear()
    client.ask_controller(EndTxnRequest(), timeout_ms=1000)
    assert script.log == ["two EndTxnRequest"]


def test_a_controller_that_died_is_forgotten_even_when_the_time_is_over(script):
    script.answers[EndTxnRequest] = lambda *_: EndTxnResponse(error_code=0)
    client = client_of(script)
    client.ask_controller(EndTxnRequest(), timeout_ms=1000)
    script.down = {"one"}
    with pytest.raises(ClusterError, match="one did not accept"):
        client.ask_controller(EndTxnRequest(), timeout_ms=1000)
    script.controller_id = 2
    assert client.ask_controller(EndTxnRequest(), timeout_ms=1000).error_code == 0


def test_a_refusal_is_not_repeated(script):
    def refuse(*_):
        raise ClusterError("not for you", error_code=31)

    script.answers[EndTxnRequest] = refuse
    with pytest.raises(ClusterError, match="not for you"):
        client_of(script).ask_controller(EndTxnRequest(), timeout_ms=1000)
    assert script.clock.now_ms() == 0


def test_a_controller_that_is_never_found_ends_with_the_deadline(script):
    script.answers[EndTxnRequest] = lambda _peer, _request: EndTxnResponse(error_code=41)
    response = client_of(script).ask_controller(EndTxnRequest(), timeout_ms=1000)
    assert response.error_code == 41
    assert script.clock.now_ms() < 1000


@pytest.mark.parametrize("version", [3, 4])
def test_coordinators_are_found_in_old_and_new_versions(script, version):
    script.coordinator_version = version
    codes = iter([15, 0])

    def find(_peer, request):
        assert (request.key, request.coordinator_keys) == (("t", []) if version < 4 else ("", ["t"]))
        assert request.key_type == TRANSACTION
        code = next(codes)
        if version < 4:
            return FindCoordinatorResponse(error_code=code, node_id=2, host="two", port=9092)
        found = FindCoordinatorResponse.Coordinator(key="t", error_code=code, node_id=2, host="two", port=9092)
        return FindCoordinatorResponse(coordinators=[found])

    script.answers[FindCoordinatorRequest] = find
    script.answers[EndTxnRequest] = lambda peer, _request: EndTxnResponse(error_code=0 if peer == "two" else 16)
    response = client_of(script).ask_coordinator(EndTxnRequest(), "t", key_type=TRANSACTION, timeout_ms=5000)
    assert response.error_code == 0
    assert script.log[-2:] == ["open two 2450", "two EndTxnRequest"]


def test_a_coordinator_that_is_refused_is_an_error(script):
    found = FindCoordinatorResponse.Coordinator(error_code=30)
    script.answers[FindCoordinatorRequest] = lambda *_: FindCoordinatorResponse(coordinators=[found])
    with pytest.raises(ClusterError, match=r"coordinator of 'g' was not found: GROUP_AUTHORIZATION_FAILED \(30\)"):
        client_of(script).ask_coordinator(EndTxnRequest(), "g", timeout_ms=5000)


def test_unknown_brokers_are_named(script):
    with pytest.raises(ClusterError, match=r"there is no broker 7; the cluster has \[1, 2\]"):
        client_of(script).ask_broker(7, MetadataRequest())


def test_only_entries_that_can_apply_are_asked_for(script):
    asked = []

    def describe(_peer, request):
        asked.append((request.strict, [(part.entity_type, part.match_type, part.match) for part in request.components]))
        return DescribeClientQuotasResponse(entries=[])

    script.answers[DescribeClientQuotasRequest] = describe
    limits = discover_limit({"bootstrap.servers": "one"}, "alice", "app", 1000, script.clock)
    assert "KeyError" in limits.denied  # the script knows no DescribeConfigs
    user, any_user = ("user", 0, "alice"), ("user", 1, None)
    app, any_app = ("client-id", 0, "app"), ("client-id", 1, None)
    assert asked == [
        (True, parts)
        for parts in (
            [user, app],
            [user, any_app],
            [user],
            [any_user, app],
            [any_user, any_app],
            [any_user],
            [app],
            [any_app],
        )
    ]


@pytest.mark.parametrize(("code", "remedy"), [(31, True), (35, False), (42, False)])
def test_only_a_lack_of_permission_has_permission_for_its_remedy(script, code, remedy):
    script.answers[DescribeClientQuotasRequest] = lambda *_: DescribeClientQuotasResponse(
        error_code=code, error_message="because"
    )
    denied = discover_limit({"bootstrap.servers": "one"}, "alice", "app", 1000, script.clock).denied
    assert "because" in denied
    assert ("DESCRIBE_CONFIGS" in denied) == remedy


def test_brokers_that_know_quotas_of_client_ids_only_are_asked_for_those(script):
    def describe(_peer, request):
        if any(part.entity_type == "user" for part in request.components):
            return DescribeClientQuotasResponse(error_code=35, error_message="Entity type 'user' not yet supported")
        entity = [DescribeClientQuotasResponse.EntityData(entity_type="client-id", entity_name="app")]
        values = [DescribeClientQuotasResponse.ValueData(key="producer_byte_rate", value=7.0)]
        found = [DescribeClientQuotasResponse.EntryData(entity=entity, values=values)]
        return DescribeClientQuotasResponse(entries=found if request.components[0].match == "app" else [])

    script.answers[DescribeClientQuotasRequest] = describe
    script.answers[DescribeConfigsRequest] = lambda *_: DescribeConfigsResponse(results=[])
    limits = discover_limit({"bootstrap.servers": "one"}, None, "app", 1000, script.clock)
    assert (limits.denied, limits.producer_byte_rate, limits.decided_by) == (None, 7.0, "{client-id=app}")
