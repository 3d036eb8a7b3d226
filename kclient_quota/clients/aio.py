"""The asyncio pair: drop-ins for confluent_kafka.aio's `AIOProducer` and `AIOConsumer`."""

from kclient_quota.clients.aio_consumer import AIOConsumer
from kclient_quota.clients.aio_producer import AIOProducer

__all__ = ["AIOConsumer", "AIOProducer"]
