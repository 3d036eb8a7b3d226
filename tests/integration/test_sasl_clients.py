"""PLAIN and SCRAM of confluent-kafka, kafka-python and aiokafka on the embedded broker; users as principals."""

import asyncio
import time
from contextlib import closing

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.errors import ClusterError
from kclient_quota.testing.clock import ManualClock
from kclient_quota.wire.connection import Connection, ConnectionSettings, Sasl
from kclient_quota.wire.messages import MetadataRequest

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USERS = {"alice": "secret", "bob": "pässw²rd", "bøb": "pässword"}
INIT_PRODUCER_ID, PRODUCE, SASL_AUTHENTICATE = 22, 0, 36

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")


@pytest.fixture(scope="module")
def broker():
    with EmbeddedBroker(topics={"t": 1}, users=USERS) as running:
        yield running


def config(broker, mechanism, user="alice", password="secret"):
    return {
        "bootstrap.servers": broker.sasl_bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


@pytest.mark.parametrize(
    ("user", "mechanism"),
    # Kafka's SCRAM knows no names beyond ASCII
    [*((user, mechanism) for user in ("alice", "bob") for mechanism in MECHANISMS), ("bøb", "PLAIN")],
)
def test_confluent_kafka(broker, mechanism, user):
    delivered = []
    producer = Producer(config(broker, mechanism, user, USERS[user]) | {"linger.ms": 0, "client.id": mechanism})
    producer.produce("t", b"x", on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(60) == 0
    assert delivered == [None]
    seen = [s for s in broker.requests if s.api_key == PRODUCE and s.client_id == mechanism]
    assert seen[-1].principal == user


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_with_a_wrong_password(broker, mechanism):
    errors = []
    admin = AdminClient(config(broker, mechanism, password="wrong") | {"error_cb": errors.append})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    deadline = time.monotonic() + 60
    while not any(error.name() == "_AUTHENTICATION" for error in errors):
        assert time.monotonic() < deadline
        admin.poll(0.1)


def test_nothing_is_to_be_had_without_authentication(broker):
    admin = AdminClient({"bootstrap.servers": broker.sasl_bootstrap_servers})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(broker, mechanism):
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=broker.sasl_bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password="secret",
    )
    with closing(producer):
        assert producer.send("t", b"x").get(60).offset >= 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka(broker, mechanism):
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=broker.sasl_bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password="secret",
    )
    try:
        await producer.start()
        assert (await asyncio.wait_for(producer.send_and_wait("t", b"x"), 60)).offset >= 0
    finally:
        await producer.stop()


def test_a_session_that_ends_is_renewed_in_time():
    properties = {"connections.max.reauth.ms": "1000"}
    with EmbeddedBroker(topics={"t": 1}, users=USERS, properties=properties) as broker:
        producer = Producer(config(broker, "SCRAM-SHA-256") | {"linger.ms": 0})
        deadline = time.monotonic() + 60
        while sum(1 for seen in broker.requests if seen.api_key == SASL_AUTHENTICATE) < 6:
            assert time.monotonic() < deadline, "two tokens at the start and two for each renewal"
            producer.produce("t", b"x")
            assert producer.flush(60) == 0
            time.sleep(0.1)


def _send_for_a_minute(connection):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        connection.send(MetadataRequest(topics=[]))
        time.sleep(0.1)


def test_a_session_that_is_not_renewed_is_cut_off():
    properties = {"connections.max.reauth.ms": "500"}
    with EmbeddedBroker(users=USERS, properties=properties) as broker:
        host, _, port = broker.sasl_bootstrap_servers.rpartition(":")
        settings = ConnectionSettings(host, int(port), sasl=Sasl("PLAIN", "alice", "secret"))
        # by its clock no session ever ends
        with Connection(settings, ManualClock()) as connection, pytest.raises(ClusterError):
            _send_for_a_minute(connection)
        assert [seen.principal for seen in broker.requests if seen.api_key == SASL_AUTHENTICATE], "it was let in"
