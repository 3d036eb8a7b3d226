"""Connections of ours give way: a broker that counts them has room for librdkafka's, as with plain confluent_kafka."""

import random
import time

import confluent_kafka
import pytest

from kclient_quota import Consumer, Producer
from kclient_quota.broker import EmbeddedBroker

MESSAGES = 50
QUOTA = 1_000_000


@pytest.mark.parametrize("make", [confluent_kafka.Producer, Producer], ids=["plain", "ours"])
@pytest.mark.parametrize("limited", [True, False])
@pytest.mark.parametrize("most", [1, 2])
def test_a_producer_delivers_where_few_connections_are_allowed(most, limited, make):
    with EmbeddedBroker(topics={"t": 3}, properties={"max.connections.per.ip": str(most)}) as cluster:
        if limited:
            cluster.set_quota(client_id="mine", producer_byte_rate=QUOTA)
        producer = make({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "mine", "log_level": 0})
        told = []
        for _ in range(MESSAGES):
            producer.produce("t", b"x", on_delivery=lambda error, _: told.append(error))
        assert not producer.flush(60)
        assert told == [None] * MESSAGES
        producer.close()


def test_a_consumer_reads_where_one_connection_is_allowed_beside_its_coordinators():
    with EmbeddedBroker(topics={"t": 1}, properties={"max.connections.per.ip": "2"}) as cluster:
        cluster.set_quota(client_id="mine", consumer_byte_rate=QUOTA)
        writer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        writer.produce("t", b"x")
        assert not writer.flush(60)
        del writer
        conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "mine", "log_level": 0}
        consumer = Consumer({**conf, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        end = time.monotonic() + 60
        found = None
        while found is None and time.monotonic() < end:
            found = consumer.poll(1)
        assert found is not None
        assert found.value() == b"x"
        consumer.close()


def test_a_second_producers_messages_come_before_its_telemetry_asks(monkeypatch):
    """Of twenty made at once under `connection_creation_rate` the last delivered after 14 s in place of 2."""
    monkeypatch.setattr("kclient_quota.clients.telemetry.reporter.NOT_ALONE_MS", 3_600_000, raising=False)
    with EmbeddedBroker(topics={"t": 1}) as cluster:

        def asked(client_id):
            return [seen.api_name for seen in cluster.requests if seen.client_id == client_id]

        def make(client_id):
            return Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": client_id})

        with make("first") as first, make("second") as second:
            assert first.client_instance_id(60)
            second.produce("t", b"x")
            assert not second.flush(60)
            assert "Produce" in asked("second")
            assert "GetTelemetrySubscriptions" not in asked("second")
            assert second.client_instance_id(60), "whoever asks for it does not wait"
            assert "GetTelemetrySubscriptions" in asked("second")


def test_an_applications_random_numbers_are_its_own():
    random.seed(13)
    with EmbeddedBroker(brokers=3, topics={"t": 1}) as cluster:
        cluster.set_client_metrics("all", interval_ms=100)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce("t", b"x")
        assert not producer.flush(60)
        end = time.monotonic() + 60
        while not cluster.pushes and time.monotonic() < end:
            time.sleep(0.01)
        producer.close()
        assert cluster.pushes
    found = random.random()
    random.seed(13)
    assert found == random.random()
