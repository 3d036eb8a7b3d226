"""What we ask a cluster, asked of the embedded broker: the same answers as Apache Kafka gives."""

from __future__ import annotations

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.brokers import describe_cluster
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.cluster.limits import discover_limit
from kclient_quota.cluster.quotas import alter_client_quotas, describe_client_quotas
from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity


@pytest.fixture
def cluster():
    with EmbeddedBroker(brokers=2, topics={"orders": 4}) as running:
        yield running


@pytest.fixture
def conf(cluster):
    return {"bootstrap.servers": cluster.bootstrap_servers}


def test_brokers_and_leaders(cluster, conf):
    with ClusterClient(conf, SYSTEM_CLOCK) as client:
        found = describe_cluster(client, ["orders"])
    addresses = ",".join(f"{broker.host}:{broker.port}" for _, broker in sorted(found.brokers.items()))
    assert addresses == cluster.bootstrap_servers
    assert sorted(found.leaders) == [("orders", index) for index in range(4)]


def test_quotas(conf):
    user, bob = ClientQuotaEntity.of(user="alice"), ClientQuotaEntity.of(user="bob")
    with ClusterClient(conf, SYSTEM_CLOCK) as client:
        results = alter_client_quotas(client, [(user, {"producer_byte_rate": 5.0}), (bob, {"bogus": 1.0})])
        assert [result.error_code for result in results] == [0, 42]
        assert results[1].error_message == "Invalid configuration key bogus"
        assert describe_client_quotas(client) == [(user, {"producer_byte_rate": 5.0})]


def test_limits(cluster, conf):
    cluster.set_quota(client_id="orders", producer_byte_rate=51_200)
    limits = discover_limit(conf, None, "orders", 60_000)
    assert (limits.denied, limits.producer_byte_rate, limits.decided_by) == (None, 51_200, "{client-id=orders}")
    assert (limits.samples, limits.window_ms) == (11, 1000)
    with ClusterClient(conf, SYSTEM_CLOCK) as client:
        everyone = ClientQuotaEntity.of(user=DEFAULT)
        alter_client_quotas(client, [(everyone, {"producer_byte_rate": 10_000.0})])
    assert discover_limit(conf, None, "orders", 60_000).deciding == {"producer_byte_rate": everyone}


def test_a_controller_that_was_killed_is_replaced_by_the_next(cluster, conf):
    alice = ClientQuotaEntity.of(user="alice")
    with ClusterClient(conf, SYSTEM_CLOCK) as client:
        alter_client_quotas(client, [(alice, {"producer_byte_rate": 5.0})])
        cluster.stop_broker(1)
        (result,) = alter_client_quotas(client, [(alice, {"producer_byte_rate": 6.0})], timeout_ms=60_000)
        assert result.error_code == 0
        assert describe_client_quotas(client) == [(alice, {"producer_byte_rate": 6.0})]
    assert {seen.broker_id for seen in cluster.requests if seen.api_name == "AlterClientQuotas"} == {1, 2}
