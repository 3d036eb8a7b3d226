"""The TLS listener of the Apache Kafka harness."""

from pathlib import Path

from confluent_kafka import Producer

from kclient_quota.testing.apache import ApacheKafka
from tests.certificates import self_signed


def test_a_client_that_trusts_the_certificate_produces(tmp_path: Path) -> None:
    certificate, key = self_signed()
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
        assert producer.flush(60) == 0
        assert any(sample.client_id == "tls-app" for sample in cluster.byte_samples())
