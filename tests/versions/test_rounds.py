"""Every client moves a message under a quota: what a version of Python or of a dependency could break."""

import time

import confluent_kafka
import pytest

from kclient_quota import AIOConsumer, AIOProducer, Consumer, Producer, QuotaAdmin
from kclient_quota.broker import EmbeddedBroker

READ = {"group.id": "g", "auto.offset.reset": "earliest"}


@pytest.fixture
def broker():
    with EmbeddedBroker(topics={"orders": 1}, users={"alice": "secret"}) as cluster:
        cluster.set_quota(client_id="app", producer_byte_rate=100_000, consumer_byte_rate=100_000)
        yield cluster


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_round(broker, codec):
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app"}
    with Producer({**conf, "compression.type": codec}) as producer:
        for number in range(20):
            producer.produce("orders", b"%d" % number)
    with Consumer({**conf, **READ}) as consumer:
        consumer.subscribe(["orders"])
        got = []
        while len(got) < 20:
            got += [message.value() for message in consumer.consume(20, 5)]
    assert got == [b"%d" % number for number in range(20)]


async def test_a_round_with_asyncio(broker):
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app"}
    async with AIOProducer(conf) as producer:
        delivered = [await producer.produce("orders", b"%d" % number) for number in range(20)]
        await producer.flush()
        assert [future.result().offset() for future in delivered] == list(range(20))
    async with AIOConsumer({**conf, **READ}) as consumer:
        await consumer.subscribe(["orders"])
        got = []
        while len(got) < 20:
            got += [message.value() for message in await consumer.consume(20, 5)]
    assert got == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("password", ["secret", "wrong"])
def test_log_ins(broker, mechanism, password):
    conf = {
        "bootstrap.servers": broker.sasl_bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }
    heard = []
    admin = confluent_kafka.admin.AdminClient({**conf, "error_cb": heard.append})
    if password == "secret":
        assert "orders" in admin.list_topics(timeout=10).topics
    else:
        with pytest.raises(confluent_kafka.KafkaException):
            admin.list_topics(timeout=2)
        deadline = time.monotonic() + 20  # on a busy machine it has not even connected within two seconds
        refused = confluent_kafka.KafkaError._AUTHENTICATION
        while refused not in {error.code() for error in heard} and time.monotonic() < deadline:
            admin.poll(0.5)
        assert refused in {error.code() for error in heard}


def test_quotas_are_told(broker):
    with QuotaAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        assert admin.describe_client_quotas()
