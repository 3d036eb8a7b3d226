"""SerializingProducer and DeserializingConsumer: what they do to values is confluent_kafka's, when they do it ours."""

import asyncio
import inspect
import time
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.error import KeySerializationError, ValueDeserializationError
from confluent_kafka.serialization import (
    IntegerDeserializer,
    IntegerSerializer,
    SerializerBuilder,
    StringDeserializer,
    StringSerializer,
)

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.aio import AsyncDeserializingConsumer, AsyncSerializingProducer
from kclient_quota.clients.serializing import DeserializingConsumer, SerializingProducer
from kclient_quota.errors import ConfigError

pytestmark = pytest.mark.usefixtures("patiently_asked")


def producer_conf(broker: EmbeddedBroker, **more: Any) -> dict[str, Any]:
    serializers = {"key.serializer": StringSerializer(), "value.serializer": IntegerSerializer()}
    return {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", **serializers, **more}


def consumer_conf(broker: EmbeddedBroker, **more: Any) -> dict[str, Any]:
    deserializers = {"key.deserializer": StringDeserializer(), "value.deserializer": IntegerDeserializer()}
    group = {"group.id": "g", "auto.offset.reset": "earliest", "client.id": "app"}
    return {"bootstrap.servers": broker.bootstrap_servers, **group, **deserializers, **more}


def receive(consumer: DeserializingConsumer[str, int], count: int) -> list[tuple[str | None, int | None]]:
    got: list[tuple[str | None, int | None]] = []
    deadline = time.monotonic() + 60
    while len(got) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            got.append((message.deserialized_key(), message.deserialized_value()))
    return got


@pytest.mark.parametrize("rate", [None, 30_000])
def test_objects_go_round_under_a_quota_and_without(broker: EmbeddedBroker, rate: int | None) -> None:
    if rate is not None:
        broker.set_quota(client_id="app", producer_byte_rate=rate, consumer_byte_rate=rate)
    key = "k" * 1_000
    with SerializingProducer[str, int](producer_conf(broker)) as producer:
        assert isinstance(producer, confluent_kafka.SerializingProducer)
        begin = time.monotonic()
        for number in range(80):
            producer.produce("orders", key=key, value=number)
        took_s = time.monotonic() - begin
        assert [state.limit for state in producer.quota_state().values()] == [rate]
    if rate is not None:
        assert took_s > 1.0
    consumer = DeserializingConsumer[str, int](consumer_conf(broker))
    assert isinstance(consumer, confluent_kafka.DeserializingConsumer)
    consumer.subscribe(["orders"])
    assert receive(consumer, 80) == [(key, number) for number in range(80)]
    assert {state.limit for state in consumer.quota_state().values()} == {rate}
    consumer.close()


@pytest.mark.parametrize("rate", [None, 30_000])
async def test_objects_go_round_through_the_asyncio_pair(broker: EmbeddedBroker, rate: int | None) -> None:
    if rate is not None:
        broker.set_quota(client_id="app", producer_byte_rate=rate, consumer_byte_rate=rate)
    key = "k" * 1_000
    producer = await AsyncSerializingProducer[str, int](producer_conf(broker), batch_size=10)
    begin = time.monotonic()
    for number in range(80):
        await producer.produce("orders", key=key, value=number, headers={"h": b"v"})
    await producer.flush()
    took_s = time.monotonic() - begin
    assert [state.limit for state in producer.quota_state().values()] == [rate]
    await producer.close()
    if rate is not None:
        assert took_s > 1.0
    consumer = await AsyncDeserializingConsumer[str, int](consumer_conf(broker))
    await consumer.subscribe(["orders"])
    got: list[tuple[str | None, int | None]] = []
    while len(got) < 80:
        batch = await asyncio.wait_for(consumer.consume(20, 0.5), 60)
        got += [(message.deserialized_key(), message.deserialized_value()) for message in batch]
    assert got == [(key, number) for number in range(80)]
    assert {state.limit for state in consumer.quota_state().values()} == {rate}
    await consumer.close()


async def test_what_the_asyncio_pair_built_is_closed_with_it_and_when_it_cannot_be_made(broker: EmbeddedBroker) -> None:
    closed: list[str] = []

    class Closing(IntegerSerializer):
        def close(self) -> None:
            closed.append("value")

    class Builder(SerializerBuilder):
        def build(self, conf: Any, is_key: bool) -> Any:
            return Closing(), conf

    conf = {"bootstrap.servers": broker.bootstrap_servers, "value.serializer.builder": Builder()}
    producer = await AsyncSerializingProducer[Any, int](conf)
    await producer.close()
    assert closed == ["value"]
    with pytest.raises(ConfigError):
        await AsyncSerializingProducer[Any, int]({**conf, "quota.backof": "raise"})
    assert closed == ["value", "value"]


def test_a_waiting_serializing_producer_keeps_its_consumer_alive(broker: EmbeddedBroker) -> None:
    beats: list[int] = []

    class Beating:
        def keep_alive(self) -> None:
            beats.append(1)

    broker.set_quota(client_id="app", producer_byte_rate=10_000)
    producer = SerializingProducer[str, int](producer_conf(broker), heartbeat=Beating())
    deadline = time.monotonic() + 60
    while len(beats) < 3:
        assert time.monotonic() < deadline
        producer.produce("orders", key="k" * 1_000, value=7)
    producer.close()


def test_errors_are_theirs_and_configuration_errors_ours(broker: EmbeddedBroker) -> None:
    producer = SerializingProducer[Any, int](producer_conf(broker))
    with pytest.raises(KeySerializationError):
        producer.produce("orders", key=object(), value=1)
    confluent_kafka.Producer.produce(producer, "orders", b"not four bytes", b"k")
    producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        producer.produce("orders", value=1)
    with DeserializingConsumer[str, int](consumer_conf(broker)) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(ValueDeserializationError):
            receive(consumer, 1)
        with pytest.raises(NotImplementedError):
            consumer.consume()
    with pytest.raises(ConfigError):
        SerializingProducer(producer_conf(broker, **{"quota.backof": "raise"}))
    with pytest.raises(ConfigError):
        DeserializingConsumer(consumer_conf(broker, **{"quota.backoff": "sometimes"}))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SerializingProducer, confluent_kafka.SerializingProducer),
        (DeserializingConsumer, confluent_kafka.DeserializingConsumer),
    ],
)
def test_signatures_are_theirs(ours: type, theirs: type) -> None:
    for name in ("produce", "poll", "consume", "close"):
        if name in vars(theirs):
            assert inspect.signature(getattr(ours, name)) == inspect.signature(getattr(theirs, name))
    parameters = list(inspect.signature(ours.__init__).parameters.values())
    assert parameters[1].name == "conf"
    assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in parameters[2:])
