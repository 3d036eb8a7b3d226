"""Avro, JSON and Protobuf through the asyncio pair, with a mock of a schema registry: as through the plain one."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import confluent_kafka
import confluent_kafka.aio
import pytest
from confluent_kafka import TopicPartition
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope

import kclient_quota.clients.aio
from kclient_quota.broker import EmbeddedBroker
from tests.integration.test_aio_serializing_as_plain import BASE, LONG_S, outcome


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    """`pip install confluent-kafka[avro,json,protobuf]`: without authlib, no part of these can be imported.

    They are imported where they are used, since to do so takes half a second, and each worker of a run collects all.
    """
    pytest.importorskip("authlib", reason="the clients of a schema registry are not installed")


AVRO: Final = '{"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "long"}]}'
JSON: Final = (
    '{"title": "Order", "type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}'
)
WRONG: Final[tuple[Any, ...]] = ({"sum": 7}, {"amount": "x"}, 5, "x", b"x", object())
JUNK: Final = (b"junk", b"", b"\0\0\0\0\x63abc", None)


async def avro(registry: Any) -> tuple[Any, Any]:
    from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer, AsyncAvroSerializer

    return await AsyncAvroSerializer(registry, AVRO), await AsyncAvroDeserializer(registry)


async def json(registry: Any) -> tuple[Any, Any]:
    from confluent_kafka.schema_registry.json_schema import AsyncJSONDeserializer, AsyncJSONSerializer

    serializer = await AsyncJSONSerializer(JSON, registry)
    return serializer, await AsyncJSONDeserializer(JSON, schema_registry_client=registry)


async def protobuf(registry: Any) -> tuple[Any, Any]:
    from confluent_kafka.schema_registry.protobuf import AsyncProtobufDeserializer, AsyncProtobufSerializer

    own = {"use.deprecated.format": False}
    serializer = await AsyncProtobufSerializer(InstrumentationScope, registry, own)
    return serializer, await AsyncProtobufDeserializer(InstrumentationScope, own, registry)


GOOD: Final[dict[Any, Any]] = {avro: {"amount": 7}, json: {"amount": 7}, protobuf: InstrumentationScope(name="seven")}


async def told(module: Any, form: Callable[[Any], Awaitable[tuple[Any, Any]]], **quota: Any) -> list[Any]:
    """What becomes of values that fit, of others, and of bytes that are none."""
    from confluent_kafka.schema_registry import AsyncSchemaRegistryClient

    writes, reads = await form(AsyncSchemaRegistryClient.new_client({"url": "mock://"}))
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        conf = {**BASE, "bootstrap.servers": broker.bootstrap_servers, **quota}
        producer = await module.AsyncSerializingProducer({**conf, "value.serializer": writes})
        found: list[Any] = [await outcome(producer.produce, "orders", value=wrong) for wrong in WRONG]
        delivered = [await producer.produce("orders", value=GOOD[form]) for _ in range(3)]
        await producer.close()
        found += [(await each).value() for each in delivered]
        raw = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
        for junk in JUNK:
            raw.produce("orders", junk)
        raw.close()
        consumer = await module.AsyncDeserializingConsumer({**conf, "group.id": "g", "value.deserializer": reads})
        await consumer.assign([TopicPartition("orders", 0, 0)])
        found += [await outcome(consumer.poll, LONG_S) for _ in range(3 + len(JUNK))]
        await consumer.close()
    return found


@pytest.mark.parametrize("form", GOOD, ids=lambda form: form.__name__)
async def test_values_and_what_is_wrong_with_them_are_as_with_the_plain_pair(form: Any) -> None:
    plain = await told(confluent_kafka.aio, form)
    assert [each for each in plain if each[0] == "messages"][:3] == [
        ("messages", [(number, None, GOOD[form], "None")]) for number in range(3)
    ]
    assert await told(kclient_quota.clients.aio, form) == plain
    assert await told(kclient_quota.clients.aio, form, producer_byte_rate=100_000) == plain
