"""The reporter's way to a broker: sticky, elsewhere when it breaks, told apart from what is pointless."""

import pytest
from kclient_telemetry.errors import TransportError
from kclient_telemetry.messages import GetTelemetrySubscriptionsRequest, PushTelemetryRequest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.telemetry.transport import BrokerTransport
from kclient_quota.clock import SYSTEM_CLOCK, SystemClock
from kclient_quota.wire.messages import ApiVersionsResponse

API_VERSIONS, GET, PUSH = 18, 71, 72


class MovedClock(SystemClock):
    """The system's, so much ahead."""

    ahead_ms = 0

    def now_ms(self):
        return super().now_ms() + self.ahead_ms


@pytest.fixture
def cluster():
    with EmbeddedBroker(brokers=3, users={"alice": "secret"}) as cluster:
        cluster.set_client_metrics("all", interval_ms=100)
        yield cluster


@pytest.fixture
def transport(cluster):
    transport = BrokerTransport(
        {"bootstrap.servers": cluster.bootstrap_servers.split(",")[0], "client.id": "mine"}, SYSTEM_CLOCK
    )
    yield transport
    transport.close()


def asked(cluster, *keys):
    return [seen.broker_id for seen in cluster.requests if seen.api_key in keys]


def test_both_requests_go_to_the_same_broker_and_come_back_whole(cluster, transport):
    told = transport.send(GetTelemetrySubscriptionsRequest(), 60_000)
    assert (told.push_interval_ms, told.requested_metrics, told.accepted_compression_types) == (
        100,
        ("*",),
        (4, 3, 1, 2),
    )
    push = PushTelemetryRequest(told.client_instance_id, told.subscription_id, metrics=b"\x0a\x00")
    assert transport.send(push, 60_000).error_code == 0
    assert len(set(asked(cluster, GET, PUSH))) == 1
    assert cluster.pushes[0].client_id == "mine"


def test_a_broker_that_is_gone_is_replaced_by_one_that_was_never_named(cluster, transport):
    transport.send(GetTelemetrySubscriptionsRequest(), 60_000)
    cluster.stop_broker(1)
    with pytest.raises(TransportError) as failed:
        transport.send(GetTelemetrySubscriptionsRequest(), 60_000)
    assert failed.value.retriable
    assert transport.send(GetTelemetrySubscriptionsRequest(), 60_000).error_code == 0
    assert set(asked(cluster, GET)) > {1}


def test_a_broker_without_telemetry_is_pointless(cluster, transport):
    known = ApiVersionsResponse.ApiVersion(api_key=API_VERSIONS, min_version=0, max_version=4)
    metadata = ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=9)
    cluster.control(API_VERSIONS, lambda _: ApiVersionsResponse(api_keys=[known, metadata]))
    with pytest.raises(TransportError, match="ask a broker that has the API") as failed:
        transport.send(GetTelemetrySubscriptionsRequest(), 60_000)
    assert not failed.value.retriable


@pytest.mark.parametrize(
    ("password", "retriable"), [("secret", None), ("wrong", False)], ids=["right password", "wrong password"]
)
def test_refused_credentials_are_pointless_and_asked_for_anew(cluster, password, retriable):
    conf = {
        "bootstrap.servers": cluster.sasl_bootstrap_servers,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": password,
    }
    transport = BrokerTransport(conf, SYSTEM_CLOCK)
    if retriable is False:
        with pytest.raises(TransportError) as failed:
            transport.send(GetTelemetrySubscriptionsRequest(), 60_000)
        assert not failed.value.retriable
        conf["sasl.password"] = "secret"
    assert transport.send(GetTelemetrySubscriptionsRequest(), 60_000).error_code == 0
    transport.close()


def test_what_an_oauth_callback_raises_is_worth_another_try(cluster):
    def oauth_cb(_config):
        raise RuntimeError("the token service is down")

    conf = {
        "bootstrap.servers": cluster.sasl_bootstrap_servers,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": oauth_cb,
    }
    with pytest.raises(TransportError, match="token service is down") as failed:
        BrokerTransport(conf, SYSTEM_CLOCK).send(GetTelemetrySubscriptionsRequest(), 60_000)
    assert failed.value.retriable


def test_nothing_is_sent_once_it_is_closed(cluster, transport):
    transport.close()
    with pytest.raises(TransportError, match="closed"):
        transport.send(GetTelemetrySubscriptionsRequest(), 60_000)
    assert asked(cluster, GET) == []


def test_a_session_that_ends_is_followed_by_one_with_the_credentials_of_then():
    """librdkafka, too, logs in again with the credentials that it was given last."""
    properties = {"connections.max.reauth.ms": "1000"}
    with EmbeddedBroker(users={"alice": "secret", "bob": "other"}, properties=properties) as cluster:
        cluster.set_client_metrics("all", interval_ms=100)
        conf = {
            "bootstrap.servers": cluster.sasl_bootstrap_servers,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "secret",
        }
        clock = MovedClock()
        transport = BrokerTransport(conf, clock)
        assert transport.send(GetTelemetrySubscriptionsRequest(), 60_000).error_code == 0
        conf |= {"sasl.username": "bob", "sasl.password": "other"}
        clock.ahead_ms = 900
        assert transport.send(GetTelemetrySubscriptionsRequest(), 60_000).error_code == 0
        assert [seen.principal for seen in cluster.requests if seen.api_key == GET] == ["alice", "bob"]
        transport.close()
