"""Clients that produce to, and read, a topic that is only made by their asking for it, in any compression."""

import asyncio
import time
from contextlib import closing

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import Producer as PlainProducer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from kclient_quota import Consumer, Producer
from kclient_quota.broker import EmbeddedBroker


def librdkafka(broker, producer_class=PlainProducer, consumer_class=PlainConsumer):
    errors = []
    producer = producer_class({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("new", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]
    consumer = consumer_class(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["new"])
    message = consumer.poll(60)
    consumer.close()
    return message.value()


def ours(broker):
    return librdkafka(broker, Producer, Consumer)


def kafka_python(broker):
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers)) as producer:
        producer.send("new", b"x").get(60)
    options = {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
    with closing(KafkaConsumer("new", **options)) as consumer:
        return next(consumer).value


def aiokafka(broker):
    async def run():
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait("new", b"x")
        options = {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer("new", **options) as consumer:
            return (await consumer.getone()).value

    return asyncio.run(asyncio.wait_for(run(), 90))


@pytest.mark.parametrize("client", [librdkafka, ours, kafka_python, aiokafka])
def test_what_is_sent_to_a_topic_that_asking_makes_arrives(client):
    with EmbeddedBroker() as broker:
        assert client(broker) == b"x"


def test_a_subscription_may_come_before_its_topic():
    with EmbeddedBroker() as broker:
        consumer = PlainConsumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": "200",
            }
        )
        consumer.subscribe(["new"])
        consumer.poll(0.5)
        producer = PlainProducer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("new", b"x")
        assert producer.flush(60) == 0
        polled, deadline = iter(lambda: consumer.poll(0.2), "never"), time.monotonic() + 60
        seen = next(
            message
            for message in polled
            if (message is not None and not message.error()) or time.monotonic() > deadline
        )
        consumer.close()
        assert seen.value() == b"x"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_clients_compress_is_found_sound(codec):
    with EmbeddedBroker(topics={"t": 1}) as broker:
        errors = []
        plain = PlainProducer(
            {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 50}
        )
        for index in range(2_000):
            value, headers = b"x" * (index % 300), [("h", b"v")] * (index % 3)
            plain.produce(
                "t", value, key=str(index), headers=headers, on_delivery=lambda error, _: errors.append(error)
            )
        assert plain.flush(60) == 0
        assert set(errors) == {None}
        asyncio.run(asyncio.wait_for(sent_by_aiokafka(broker, None if codec == "none" else codec), 90))
        assert broker_end(broker) == 4_000


async def sent_by_aiokafka(broker, codec):
    options = {"bootstrap_servers": broker.bootstrap_servers, "compression_type": codec, "linger_ms": 50}
    async with AIOKafkaProducer(**options) as producer:
        sent = [await producer.send("t", b"x" * (index % 300), headers=[("h", b"v")]) for index in range(2_000)]
        await asyncio.gather(*sent)


def broker_end(broker):
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)) as consumer:
        (end,) = consumer.end_offsets([TopicPartition("t", 0)]).values()
    return end
