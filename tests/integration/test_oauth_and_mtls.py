"""OAUTHBEARER and client certificates on the embedded broker: confluent-kafka's clients and connections of our own."""

import base64
import datetime as dt
import ipaddress
import json
import sys
import threading
import time

import confluent_kafka
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.security.bearer_tokens import TokenRules
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.wire.messages import MetadataRequest

PRODUCE, METADATA, AUTHENTICATE = 0, 3, 36
SECRET = b"a secret of at least thirty-two bytes"


def encoded(value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value):
    return encoded(value.to_bytes((value.bit_length() + 7) // 8))


def unsecured(name="alice", lifetime_s=600):
    return f"{encoded({'alg': 'none'})}.{encoded({'sub': name, 'exp': time.time() + lifetime_s})}."


@pytest.fixture(scope="module")
def rsa_key():
    return rsa.generate_private_key(65537, 2048)


def signed(key, name="bob", key_id="k1", lifetime_s=600):
    """A token signed by an independent hand."""
    text = f"{encoded({'alg': 'RS256', 'kid': key_id})}.{encoded({'sub': name, 'exp': time.time() + lifetime_s})}"
    return f"{text}.{encoded(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


@pytest.fixture(scope="module")
def cluster(rsa_key):
    public = rsa_key.public_key().public_numbers()
    jwks = {"keys": [{"kty": "RSA", "kid": "k1", "n": number(public.n), "e": number(public.e)}]}
    with EmbeddedBroker(topics={"t": 1}, oauth=TokenRules(jwks=jwks, is_unsecured=True)) as running:
        yield running


def config(cluster, token, client_id):
    return {
        "bootstrap.servers": cluster.sasl_bootstrap_servers,
        "client.id": client_id,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 600),
    }


@pytest.mark.parametrize("kind", ["unsecured", "signed"])
def test_librdkafka_with_a_token(cluster, rsa_key, kind):
    token, name = (unsecured(), "alice") if kind == "unsecured" else (signed(rsa_key), "bob")
    delivered = []
    producer = confluent_kafka.Producer(config(cluster, token, f"librdkafka-{kind}"))
    producer.produce("t", b"x", on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(60) == 0
    assert delivered == [None]
    assert {seen.principal for seen in cluster.requests if seen.client_id == f"librdkafka-{kind}"} >= {name}


@pytest.mark.parametrize("kind", ["unsecured", "signed"])
def test_a_connection_of_our_own_with_a_token(cluster, rsa_key, kind):
    token, name = (unsecured(), "alice") if kind == "unsecured" else (signed(rsa_key), "bob")
    with ClusterClient(config(cluster, token, f"own-{kind}"), SYSTEM_CLOCK) as client:
        client.ask(MetadataRequest(topics=[]), timeout_ms=60_000)
    assert {seen.principal for seen in cluster.requests if seen.client_id == f"own-{kind}"} >= {name}


def test_a_token_that_somebody_else_has_signed(cluster):
    forged = signed(rsa.generate_private_key(65537, 2048))
    client = ClusterClient(config(cluster, forged, "forger"), SYSTEM_CLOCK)
    with client, pytest.raises(ClusterError, match="no key of ours has signed this token"):
        client.ask(MetadataRequest(topics=[]), timeout_ms=60_000)


def test_an_expired_token(cluster):
    client = ClusterClient(config(cluster, unsecured(lifetime_s=-1), "late"), SYSTEM_CLOCK)
    with client, pytest.raises(ClusterError, match="the token has expired"):
        client.ask(MetadataRequest(topics=[]), timeout_ms=60_000)


def certificate(name, signer=None):
    """(key, certificate) as PEM; signed by `signer`, or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(name)
    issuer_key, issuer = signer or (key, subject)
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem, made.public_bytes(serialization.Encoding.PEM), (key, subject)


@pytest.fixture(scope="module")
def mutual(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mtls")
    _, ca, signer = certificate([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
    (folder / "ca.pem").write_bytes(ca)
    for who, names in {
        "broker": [(NameOID.COMMON_NAME, "localhost")],
        "client": [(NameOID.ORGANIZATION_NAME, "Example, Inc"), (NameOID.COMMON_NAME, "alice")],
    }.items():
        key, chain, _ = certificate([x509.NameAttribute(*name) for name in names], signer)
        (folder / f"{who}.pem").write_bytes(key + chain)
    with EmbeddedBroker(
        topics={"t": 1}, tls_pem=folder / "broker.pem", tls_client_ca=folder / "ca.pem", users={"u": "p"}
    ) as running:
        conf = {
            "bootstrap.servers": running.tls_bootstrap_servers,
            "security.protocol": "ssl",
            "ssl.ca.location": str(folder / "ca.pem"),
        }
        own = {
            "ssl.certificate.location": str(folder / "client.pem"),
            "ssl.key.location": str(folder / "client.pem"),
        }
        yield running, conf, own


def test_the_subject_of_a_client_certificate_is_the_user(mutual):
    cluster, conf, own = mutual
    producer = confluent_kafka.Producer({**conf, **own, "client.id": "librdkafka-mtls"})
    producer.produce("t", b"x")
    assert producer.flush(60) == 0
    with ClusterClient({**conf, **own, "client.id": "own-mtls"}, SYSTEM_CLOCK) as client:
        client.ask(MetadataRequest(topics=[]), timeout_ms=60_000)
    for client_id in ("librdkafka-mtls", "own-mtls"):
        principals = {seen.principal for seen in cluster.requests if seen.client_id == client_id}
        assert principals == {"CN=alice,O=Example\\, Inc"}, client_id


def test_a_client_without_a_certificate_is_not_let_in(mutual):
    cluster, conf, _ = mutual
    with ClusterClient({**conf, "client.id": "nobody"}, SYSTEM_CLOCK) as client, pytest.raises(ClusterError):
        client.ask(MetadataRequest(topics=[]), timeout_ms=60_000)
    assert "nobody" not in {seen.client_id for seen in cluster.requests}


def test_passwords_need_no_certificate(mutual):
    cluster, conf, _ = mutual
    sasl = {
        **conf,
        "client.id": "by-password",
        "bootstrap.servers": cluster.sasl_tls_bootstrap_servers,
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    with ClusterClient(sasl, SYSTEM_CLOCK) as client:
        client.ask(MetadataRequest(topics=[]), timeout_ms=60_000)
    assert {seen.principal for seen in cluster.requests if seen.client_id == "by-password"} >= {"u"}


def test_demanding_certificates_takes_one_of_its_own(tmp_path):
    with pytest.raises(ConfigError, match="tls_client_ca needs tls_pem"):
        EmbeddedBroker(tls_client_ca=tmp_path / "ca.pem").start()


def pushed_as(cluster, conf):
    """Principals of the telemetry that a producer of ours with this configuration pushes."""
    cluster.set_client_metrics("all", interval_ms=100)
    with Producer({**conf, "enable.metrics.push": True}):
        end = time.monotonic() + 60
        while not (found := [p for p in cluster.pushes if p.client_id == conf["client.id"]]) and time.monotonic() < end:
            time.sleep(0.02)
    return {push.context.principal for push in found}


def test_telemetry_logs_in_with_the_clients_own_token(cluster):
    assert pushed_as(cluster, config(cluster, unsecured("carol"), "telemetry-token")) == {"User:carol"}


def test_what_ends_a_process_ends_no_telemetry(cluster):
    failed = []

    def token(_config):
        if threading.current_thread().name == "kafka-client-telemetry" and not failed:
            failed.append(True)
            sys.exit("no token")
        return unsecured("dave"), time.time() + 600

    conf = {**config(cluster, "", "telemetry-exit"), "oauth_cb": token}
    assert pushed_as(cluster, conf) == {"User:dave"}
    assert failed


def test_telemetry_shows_the_clients_own_certificate(mutual):
    cluster, conf, own = mutual
    assert pushed_as(cluster, {**conf, **own, "client.id": "telemetry-mtls"}) == {"User:CN=alice,O=Example\\, Inc"}
