"""The TLS listener of the Apache Kafka harness."""

import datetime as dt
import ipaddress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kclient_quota.testing.apache import ApacheKafka

pytestmark = pytest.mark.kafka


def _self_signed() -> tuple[bytes, bytes]:
    """A certificate for 127.0.0.1 and its key, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), secret


def test_a_client_that_trusts_the_certificate_produces(tmp_path: Path) -> None:
    certificate, key = _self_signed()
    pem = tmp_path / "broker.pem"
    pem.write_bytes(key + certificate)
    with ApacheKafka(topics={"t": 1}, tls_pem=pem) as cluster:
        cluster.set_quota(client_id="tls-app", producer_byte_rate=1_000_000)
        producer = Producer(
            {
                "bootstrap.servers": cluster.tls_bootstrap_servers,
                "security.protocol": "SSL",
                "ssl.ca.pem": certificate.decode(),
                "client.id": "tls-app",
            }
        )
        producer.produce("t", b"x" * 1000)
        assert producer.flush(20) == 0
        assert any(sample.client_id == "tls-app" for sample in cluster.byte_samples())
