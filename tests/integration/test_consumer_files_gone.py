"""A quota that comes to a consumer whose certificates have been taken away since it was made: it reads on.

As where a program writes them from its environment for as long as it makes its clients, or gives up its right to read
them. confluent_kafka's consumer has read them once; ours makes another client for other sizes of fetches.
"""

import logging

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.consumer import Consumer
from tests.certificates import authority_and_certificate
from tests.integration.test_consumer_late_quota import Changing

MESSAGES = 3_000


@pytest.fixture
def cluster(tmp_path):
    authority_and_certificate(tmp_path)
    pem = tmp_path / "broker.pem"
    pem.write_bytes((tmp_path / "key.pem").read_bytes() + (tmp_path / "cert.pem").read_bytes())
    with EmbeddedBroker(topics={"orders": 1}, tls_pem=pem) as embedded:
        producer = confluent_kafka.Producer({"bootstrap.servers": embedded.bootstrap_servers})
        for _ in range(MESSAGES):
            producer.produce("orders", b"x" * 100)
        assert producer.flush(60) == 0
        yield embedded


def test_it_reads_on_says_so_once_and_follows_when_they_are_back(cluster, tmp_path, caplog):
    caplog.set_level(logging.WARNING, "kclient_quota")
    quota, authority = Changing(), tmp_path / "ca.pem"
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.tls_bootstrap_servers,
            "security.protocol": "ssl",
            "ssl.ca.location": str(authority),
            "group.id": "g",
            "client.id": "app",
            "enable.metrics.push": False,
            "client.quota.callback.class": quota,
        }
    )
    text = authority.read_bytes()
    authority.unlink()
    consumer.assign([TopicPartition("orders", 0, 0)])
    offsets = []

    def take():
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None
            offsets.append(message.offset())

    while len(offsets) < 100:
        take()
    quota.limit = 20_000_000
    while "cannot fetch as its quota wants it" not in caplog.text:
        take()
    assert consumer._kq_fetcher is None
    authority.write_bytes(text)
    consumer._kq_make_at_ms = 0  # it would try after a minute
    while consumer._kq_fetcher is None or len(offsets) < MESSAGES:
        take()
    consumer.close()
    assert offsets == list(range(MESSAGES))
    assert len([line for line in caplog.messages if "cannot fetch as its quota wants it" in line]) == 1
