"""Read by mypy, never run: every door of confluent_kafka.aio's clients and of the serializing pair, through ours."""

import asyncio
from typing import Any, assert_type

import confluent_kafka
import confluent_kafka.aio
from confluent_kafka import Message, TopicPartition

from kclient_quota.clients.aio import AIOConsumer, AIOProducer, AsyncDeserializingConsumer, AsyncSerializingProducer
from kclient_quota.clients.quota_state import BrokerQuotaState
from kclient_quota.clients.serializing import DeserializingConsumer, SerializingProducer
from kclient_quota.metrics import MetricName


async def producer_doors(producer: AIOProducer, parts: list[TopicPartition], metadata: object) -> None:
    plain: confluent_kafka.aio.AIOProducer = producer
    del plain
    assert_type(await producer.produce("t", b"v", "k", partition=0, headers={"h": b"v"}), asyncio.Future[Any])
    assert_type(await producer.poll(0.1), int)
    await producer.flush(1.0)
    await producer.purge()
    await producer.list_topics("t", timeout=1.0)
    assert_type(await producer.cluster_id(), str)
    await producer.init_transactions(1.0)
    await producer.begin_transaction()
    await producer.send_offsets_to_transaction(parts, metadata, 1.0)
    await producer.commit_transaction(1.0)
    await producer.abort_transaction(1.0)
    await producer.set_sasl_credentials("u", "p")
    await producer.close()
    assert_type(len(producer), int)
    assert_type(producer.metrics(), dict[MetricName, float])
    assert_type(producer.quota_state(), dict[int, BrokerQuotaState])
    async with AIOProducer({"client.id": "c"}, 4, None, 1000, 1.0, heartbeat=None) as entered:
        assert_type(entered, AIOProducer)


async def consumer_doors(consumer: AIOConsumer, parts: list[TopicPartition], message: Message) -> None:
    plain: confluent_kafka.aio.AIOConsumer = consumer
    del plain
    await consumer.subscribe(["t"], on_assign=None, on_revoke=None, on_lost=None)
    await consumer.unsubscribe()
    await consumer.poll(1.0)
    await consumer.consume(10, timeout=1.0)
    await consumer.assign(parts)
    await consumer.incremental_assign(parts)
    await consumer.incremental_unassign(parts)
    await consumer.unassign()
    await consumer.assignment()
    await consumer.store_offsets(message=message)
    await consumer.commit(asynchronous=False)
    await consumer.committed(parts, 1.0)
    await consumer.position(parts)
    await consumer.get_watermark_offsets(parts[0])
    await consumer.offsets_for_times(parts)
    await consumer.pause(parts)
    await consumer.resume(parts)
    await consumer.seek(parts[0])
    await consumer.consumer_group_metadata()
    await consumer.list_topics("t")
    assert_type(await consumer.cluster_id(), str)
    await consumer.set_sasl_credentials("u", "p")
    assert_type(await consumer.keep_alive(), None)
    await consumer.close()
    assert_type(consumer.metrics(), dict[MetricName, float])
    async with AIOConsumer({"group.id": "g"}, max_workers=2) as entered:
        assert_type(entered, AIOConsumer)


def serializing(producer: SerializingProducer[str, int], consumer: DeserializingConsumer[str, int]) -> None:
    theirs: confluent_kafka.SerializingProducer[str, int] = producer
    plain: confluent_kafka.Producer = producer
    del theirs, plain
    assert_type(producer.produce("t", key="k", value=1, headers={"h": b"v"}), None)
    assert_type(producer.close(), bool)
    message = consumer.poll(1.0)
    if message is not None:
        assert_type(message.deserialized_key(), str | None)
        assert_type(message.deserialized_value(), int | None)
    SerializingProducer({"client.id": "c"}, heartbeat=consumer)


async def async_serializing(
    producer: AsyncSerializingProducer[str, int], consumer: AsyncDeserializingConsumer[str, int], name: MetricName
) -> None:
    theirs: confluent_kafka.aio.AsyncSerializingProducer[str, int] = producer
    ours: AIOProducer = producer
    del theirs, ours
    assert_type(await producer.produce("t", key="k", value=1), asyncio.Future[Any])
    assert_type(await producer.close(), None)
    message = await consumer.poll(1.0)
    if message is not None:
        assert_type(message.deserialized_value(), int | None)
    assert_type(consumer.register_metric_for_subscription(name, lambda: 1), None)
    assert_type(consumer.unregister_metric_from_subscription(name), None)
