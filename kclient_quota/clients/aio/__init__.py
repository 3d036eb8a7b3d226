"""The asyncio clients: drop-ins for confluent_kafka.aio's."""

from kclient_quota.clients.aio.consumer import AIOConsumer
from kclient_quota.clients.aio.producer import AIOProducer
from kclient_quota.clients.aio.serializing import AsyncDeserializingConsumer, AsyncSerializingProducer

__all__ = ["AIOConsumer", "AIOProducer", "AsyncDeserializingConsumer", "AsyncSerializingProducer"]
