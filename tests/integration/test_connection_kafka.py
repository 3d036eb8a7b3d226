"""Our connections against Apache Kafka itself: every mechanism, TLS, refusals, KIP-368."""

from __future__ import annotations

import base64
import json
import ssl
import time

import pytest

from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.errors import ClusterError
from kclient_quota.testing.apache import ApacheKafka
from kclient_quota.wire.connection import Connection, ConnectionSettings, Sasl
from kclient_quota.wire.messages import (
    DescribeClusterRequest,
    ListConfigResourcesRequest,
    PushTelemetryRequest,
)
from tests.certificates import self_signed

PASSWORD = "se cret=,ü"
LIFETIME_MS = 60_000
SHORT_LIFETIME_MS = 6_000
ROUNDING_MS = 10
"""Kafka tells what is left of a token in whole milliseconds, and so do we: two of one second may end some apart."""
OAUTH = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="admin";'
    ),
    "connections.max.reauth.ms": str(LIFETIME_MS),
    "listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms": str(SHORT_LIFETIME_MS),
    "listener.name.sasl_plaintext.oauthbearer.connections.max.reauth.ms": "0",
}


class Hasty:
    """A clock on which two seconds pass in one."""

    def now_ms(self):
        return 2 * SYSTEM_CLOCK.now_ms()

    def sleep_ms(self, duration_ms):
        SYSTEM_CLOCK.sleep_ms(duration_ms // 2)


def certificate(folder):
    """A self-signed certificate for 127.0.0.1: PEM with chain and key, and the context that trusts it."""
    chain, private = self_signed()
    pem = folder / "broker.pem"
    pem.write_bytes(private + chain)
    return pem, ssl.create_default_context(cadata=chain.decode())


def token(lifetime_s=LIFETIME_MS // 1000):
    """An unsecured JWS, which Kafka takes where no validator is configured."""
    now = int(time.time())
    claims = {"sub": "alice", "iat": now, "exp": now + lifetime_s}
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims))
    return b".".join([*parts, b""]).decode()


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def cluster(tls):
    with ApacheKafka(users={"alice": PASSWORD}, tls_pem=tls[0], properties=OAUTH) as running:
        yield running


SASL = [
    Sasl("PLAIN", "alice", PASSWORD),
    Sasl("SCRAM-SHA-256", "alice", PASSWORD),
    Sasl("SCRAM-SHA-512", "alice", PASSWORD),
    Sasl("OAUTHBEARER", token=lambda: (token(), {})),
]
BY_MECHANISM = [pytest.param(sasl, id=sasl.mechanism) for sasl in SASL]


def settings(bootstrap, **options):
    host, _, port = bootstrap.partition(":")
    return ConnectionSettings(host, int(port), **options)


@pytest.mark.parametrize("sasl", BY_MECHANISM)
def test_every_mechanism_logs_in_and_again(cluster, sasl):
    with Connection(settings(cluster.sasl_bootstrap_servers, sasl=sasl), SYSTEM_CLOCK) as connection:
        assert connection.send(DescribeClusterRequest()).error_code == 0
        first = connection.reauthenticate_at_ms
        assert first is not None
        assert 0 < first - SYSTEM_CLOCK.now_ms() <= LIFETIME_MS * 0.85
        connection.reauthenticate()
        assert connection.reauthenticate_at_ms >= first - ROUNDING_MS
        assert connection.send(ListConfigResourcesRequest()).error_code == 0


def test_a_session_ends_with_its_token_without_connections_max_reauth_ms(cluster):
    """As the embedded broker has it, `test_a_session_ends_with_its_token_or_before`."""
    sasl = Sasl("OAUTHBEARER", token=lambda: (token(600), {}))
    with Connection(settings(cluster.sasl_bootstrap_servers, sasl=sasl), SYSTEM_CLOCK) as connection:
        due_ms = connection.reauthenticate_at_ms - SYSTEM_CLOCK.now_ms()
    assert 300_000 < due_ms <= 600_000 * 0.95


def test_a_session_outlives_its_lifetime(cluster):
    """Kafka closes a connection that has not logged in again when the lifetime is over.

    By a clock twice as fast it logs in again at half of it, and a machine that stands still then is not too late.
    """
    sasl = Sasl("SCRAM-SHA-512", "alice", PASSWORD)
    with Connection(settings(cluster.sasl_bootstrap_servers, sasl=sasl), Hasty()) as connection:
        due = {connection.reauthenticate_at_ms}
        end_ms = SYSTEM_CLOCK.now_ms() + SHORT_LIFETIME_MS + 500
        while SYSTEM_CLOCK.now_ms() < end_ms:
            SYSTEM_CLOCK.sleep_ms(100)
            assert connection.send(DescribeClusterRequest()).error_code == 0
            due.add(connection.reauthenticate_at_ms)
    assert len(due) >= 2


@pytest.mark.parametrize(
    ("sasl", "problem"),
    [
        (Sasl("PLAIN", "alice", "wrong"), r"refused the PLAIN credentials: SASL_AUTHENTICATION_FAILED \(58\)"),
        (Sasl("SCRAM-SHA-256", "alice", "wrong"), r"SCRAM-SHA-256 credentials: SASL_AUTHENTICATION_FAILED"),
        (Sasl("SCRAM-SHA-512", "nobody", PASSWORD), r"check sasl.username and sasl.password"),
        (Sasl("OAUTHBEARER", token=lambda: (token(-10), {})), r"OAUTHBEARER credentials: SASL_AUTHENTICATION_FAILED"),
    ],
    ids=["plain", "scram-256", "scram-512", "oauthbearer"],
)
def test_bad_credentials_are_named(cluster, sasl, problem):
    with pytest.raises(ClusterError, match=problem) as caught:
        Connection(settings(cluster.sasl_bootstrap_servers, sasl=sasl), SYSTEM_CLOCK).open(timeout_ms=60_000)
    assert caught.value.error_code == 58
    assert cluster.sasl_bootstrap_servers in str(caught.value)


def test_tls(cluster, tls):
    with Connection(settings(cluster.tls_bootstrap_servers, tls=tls[1]), SYSTEM_CLOCK) as connection:
        assert connection.send(DescribeClusterRequest()).brokers[0].host == "127.0.0.1"


def test_tls_with_a_stranger_is_refused(cluster):
    context = ssl.create_default_context()
    with pytest.raises(ClusterError, match=r"check ssl\.ca\.location"):
        Connection(settings(cluster.tls_bootstrap_servers, tls=context), SYSTEM_CLOCK).open(timeout_ms=60_000)


def test_tls_spoken_to_a_plain_listener(cluster, tls):
    with pytest.raises(ClusterError, match=r"security\.protocol"):
        Connection(settings(cluster.bootstrap_servers, tls=tls[1]), SYSTEM_CLOCK).open(timeout_ms=2_000)


def test_plain_spoken_to_a_tls_listener(cluster):
    with pytest.raises(ClusterError, match=r"security\.protocol"):
        Connection(settings(cluster.tls_bootstrap_servers), SYSTEM_CLOCK).open(timeout_ms=2_000)


def test_an_api_the_broker_lacks_is_named(cluster):
    with (
        Connection(settings(cluster.bootstrap_servers), SYSTEM_CLOCK) as connection,
        pytest.raises(ClusterError, match="speaks no version of it, we speak PushTelemetry") as caught,
    ):
        connection.send(PushTelemetryRequest())
    assert caught.value.error_code == 35
