"""What we ask a cluster, asked of Apache Kafka: two brokers with an authoriser, before which alice may nothing."""

from __future__ import annotations

import socket
import time

import pytest

from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.brokers import describe_cluster
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.cluster.configs import (
    AlterOp,
    ConfigOp,
    ResourceType,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from kclient_quota.cluster.limits import discover_limit
from kclient_quota.cluster.quotas import ANY, EXACT, alter_client_quotas, describe_client_quotas
from kclient_quota.errors import ClusterError
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity
from kclient_quota.testing.apache import ApacheKafka
from kclient_quota.wire.messages import DescribeGroupsRequest, OffsetFetchRequest

GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "quota.window.num": "7",
    "quota.window.size.seconds": "2",
}


@pytest.fixture(scope="module")
def cluster():
    with ApacheKafka(
        brokers=2, topics={"orders": 3}, users={"alice": "a", "admin": "b"}, properties=GUARDED
    ) as running:
        yield running


@pytest.fixture
def client(cluster):
    with ClusterClient({"bootstrap.servers": cluster.bootstrap_servers}, SYSTEM_CLOCK) as made:
        yield made
        entries = describe_client_quotas(made)
        alter_client_quotas(made, [(entity, dict.fromkeys(values)) for entity, values in entries])


def login(cluster, user):
    return {
        "bootstrap.servers": cluster.sasl_bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": {"alice": "a", "admin": "b"}[user],
    }


def eventually(ask, wanted, timeout_s=60):
    """Brokers learn of quotas from the metadata log, a moment after the controller has answered."""
    end = time.monotonic() + timeout_s
    while (got := ask()) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    assert got == wanted


def as_dict(entries):
    return dict(entries)


def test_brokers_and_leaders(cluster, client):
    found = describe_cluster(client, ["orders", "nonexistent"])
    assert sorted(found.brokers) == [1, 2]
    addresses = ",".join(f"{broker.host}:{broker.port}" for _, broker in sorted(found.brokers.items()))
    assert addresses == cluster.bootstrap_servers
    assert set(found.leaders) == {("orders", 0), ("orders", 1), ("orders", 2)}
    assert set(found.leaders.values()) <= {1, 2}
    assert found.topic_errors == {"nonexistent": 3}
    assert found.cluster_id
    assert found.controller_id in {1, 2}
    assert ("orders", 0) in describe_cluster(client, None).leaders
    assert describe_cluster(client).leaders == {}


def test_quotas_are_altered_and_described(client):
    alice, pair = ClientQuotaEntity.of(user="alice"), ClientQuotaEntity.of(user="alice", client_id=DEFAULT)
    results = alter_client_quotas(
        client,
        [
            (alice, {"producer_byte_rate": 1024.0, "request_percentage": 12.5}),
            (pair, {"consumer_byte_rate": 2048.0}),
            (ClientQuotaEntity.of(client_id="bad"), {"producer_byte_rate": -1.0}),
        ],
    )
    assert [(result.entity, result.error_code) for result in results] == [
        (alice, 0),
        (pair, 0),
        (ClientQuotaEntity.of(client_id="bad"), 42),
    ]
    assert "must be greater than 0" in results[2].error_message
    both = {alice: {"producer_byte_rate": 1024.0, "request_percentage": 12.5}, pair: {"consumer_byte_rate": 2048.0}}
    eventually(lambda: as_dict(describe_client_quotas(client)), both)
    exact = [("user", EXACT, "alice")]
    assert as_dict(describe_client_quotas(client, exact, strict=True)) == {alice: both[alice]}
    assert as_dict(describe_client_quotas(client, exact)) == both
    assert as_dict(describe_client_quotas(client, [("client-id", ANY, None)])) == {pair: both[pair]}
    alter_client_quotas(client, [(alice, {"producer_byte_rate": None})])
    eventually(
        lambda: as_dict(describe_client_quotas(client, exact, strict=True)), {alice: {"request_percentage": 12.5}}
    )
    alter_client_quotas(client, [(alice, {"request_percentage": 99.0})], validate_only=True)
    assert as_dict(describe_client_quotas(client, exact, strict=True)) == {alice: {"request_percentage": 12.5}}


def test_an_invalid_filter_is_refused_in_kafkas_words(client):
    with pytest.raises(ClusterError, match=r"UNSUPPORTED_VERSION \(35\)") as caught:
        describe_client_quotas(client, [("planet", EXACT, "earth")])
    assert caught.value.error_code == 35


def test_client_metrics_subscriptions(client):
    ops = [ConfigOp("interval.ms", "5000"), ConfigOp("metrics", "a,b")]
    incremental_alter_configs(client, ResourceType.CLIENT_METRICS, "BASIC", ops)
    eventually(
        lambda: list_config_resources(client, [ResourceType.CLIENT_METRICS]), [(ResourceType.CLIENT_METRICS, "BASIC")]
    )
    told = describe_configs(client, ResourceType.CLIENT_METRICS, "BASIC")
    assert {name: (entry.value, entry.source) for name, entry in told.items()} == {
        "interval.ms": ("5000", 7),
        "metrics": ("a,b", 7),
        "match": ("", 5),
    }
    with pytest.raises(ClusterError, match=r"client-metrics 'BASIC' was not altered: .*Can't APPEND"):
        incremental_alter_configs(
            client, ResourceType.CLIENT_METRICS, "BASIC", [ConfigOp("metrics", "c", AlterOp.APPEND)]
        )
    gone = [ConfigOp("interval.ms", None, AlterOp.DELETE), ConfigOp("metrics", None, AlterOp.DELETE)]
    incremental_alter_configs(client, ResourceType.CLIENT_METRICS, "BASIC", gone)
    eventually(lambda: list_config_resources(client, [ResourceType.CLIENT_METRICS]), [])


def test_configs_of_brokers_and_topics(client):
    for node_id in (1, 2):
        told = describe_configs(client, ResourceType.BROKER, str(node_id), ["quota.window.num", "broker.id", "node.id"])
        assert told["quota.window.num"].value == "7"
        assert told["node.id"].value == str(node_id)
        assert told["node.id"].read_only
    assert describe_configs(client, ResourceType.TOPIC, "orders")["retention.ms"].value == "604800000"
    assert (ResourceType.TOPIC, "orders") in list_config_resources(client)
    with pytest.raises(ClusterError, match="topic 'nope' was not described: UNKNOWN_TOPIC_OR_PARTITION"):
        describe_configs(client, ResourceType.TOPIC, "nope")
    with pytest.raises(ClusterError, match="there is no broker 9"):
        describe_configs(client, ResourceType.BROKER, "9")
    with pytest.raises(ClusterError, match="no node id"):
        describe_configs(client, ResourceType.BROKER, "one")


def test_coordinators_are_found(client):
    def ask():
        response = client.ask_coordinator(DescribeGroupsRequest(groups=["g"]), "g", timeout_ms=60_000)
        return [(group.group_id, group.error_code) for group in response.groups]

    eventually(ask, [("g", 69)])  # the coordinator may be loading still
    everything = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    found = client.ask_coordinator(OffsetFetchRequest(groups=[everything]), "g")
    assert [(group.group_id, group.error_code, group.topics) for group in found.groups] == [("g", 0, [])]


def test_dead_brokers_are_passed_over(cluster):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = listener.getsockname()[1]
    conf = {"bootstrap.servers": f"127.0.0.1:{dead},{cluster.bootstrap_servers}"}
    with ClusterClient(conf, SYSTEM_CLOCK) as client:
        assert len(describe_cluster(client).brokers) == 2
    with (
        ClusterClient({"bootstrap.servers": f"127.0.0.1:{dead},localhost:{dead}"}, SYSTEM_CLOCK) as client,
        pytest.raises(ClusterError, match=f"127.0.0.1:{dead} did not accept .*; localhost:{dead} did not accept"),
    ):
        describe_cluster(client)


def test_silent_brokers_use_no_more_than_their_share(cluster):
    with socket.create_server(("127.0.0.1", 0)) as listener:  # connects, and never says a word
        conf = {"bootstrap.servers": f"127.0.0.1:{listener.getsockname()[1]},{cluster.bootstrap_servers}"}
        with ClusterClient(conf, SYSTEM_CLOCK) as client:
            # who is silent for its whole share leaves the other ten seconds
            assert len(describe_cluster(client, timeout_ms=20_000).brokers) == 2


def test_limits_are_discovered_level_by_level(cluster, client):
    """From the least specific of the eight levels up, each new entry takes over."""
    levels = [
        {"client_id": DEFAULT},
        {"client_id": "app"},
        {"user": DEFAULT},
        {"user": DEFAULT, "client_id": DEFAULT},
        {"user": DEFAULT, "client_id": "app"},
        {"user": "admin"},
        {"user": "admin", "client_id": DEFAULT},
        {"user": "admin", "client_id": "app"},
    ]
    strangers = (ClientQuotaEntity.of(user=f"u{index}", client_id="app") for index in range(50))
    alter_client_quotas(client, [(stranger, {"producer_byte_rate": 1.0}) for stranger in strangers])
    nothing = discover_limit(login(cluster, "admin"), "admin", "app", 30_000)
    assert (nothing.denied, nothing.producer_byte_rate, nothing.decided_by) == (None, None, None)
    assert (nothing.samples, nothing.window_ms) == (7, 2000)
    for rate, level in enumerate(levels, start=1):
        entity = ClientQuotaEntity.of(**level)
        alter_client_quotas(client, [(entity, {"producer_byte_rate": float(rate)})])
        eventually(
            lambda: discover_limit(login(cluster, "admin"), "admin", "app", 30_000).producer_byte_rate, float(rate)
        )
        found = discover_limit(login(cluster, "admin"), "admin", "app", 30_000)
        assert found.decided_by == str(entity)
        assert found.consumer_byte_rate is None


def test_a_client_without_log_in_is_anonymous(cluster, client):
    alter_client_quotas(client, [(ClientQuotaEntity.of(user="ANONYMOUS"), {"consumer_byte_rate": 5000.0})])
    conf = {"bootstrap.servers": cluster.bootstrap_servers}
    eventually(lambda: discover_limit(conf, None, "rdkafka", 30_000).consumer_byte_rate, 5000.0)


def test_who_may_not_ask_is_told_why(cluster):
    limits = discover_limit(login(cluster, "alice"), "alice", "app", 30_000)
    assert "CLUSTER_AUTHORIZATION_FAILED (31)" in limits.denied
    assert "DESCRIBE_CONFIGS on the cluster is needed" in limits.denied
    assert limits.producer_byte_rate is None


def test_a_wrong_password_is_told(cluster):
    conf = login(cluster, "alice") | {"sasl.password": "wrong"}
    assert "SASL_AUTHENTICATION_FAILED (58)" in discover_limit(conf, "alice", "app", 30_000).denied


def test_a_raising_oauth_cb_does_not_stop_the_client(cluster):
    def oauth_cb(_config):
        raise RuntimeError("the token service is down")

    conf = {
        "bootstrap.servers": cluster.sasl_bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": oauth_cb,
    }
    assert "the token service is down" in discover_limit(conf, "alice", "app", 30_000).denied


def test_a_connection_that_died_is_replaced(cluster):
    with ClusterClient({"bootstrap.servers": cluster.bootstrap_servers}, SYSTEM_CLOCK) as client:
        describe_cluster(client)
        for connection in client._connections.values():
            connection._socket.shutdown(socket.SHUT_RDWR)
        assert len(describe_cluster(client).brokers) == 2
