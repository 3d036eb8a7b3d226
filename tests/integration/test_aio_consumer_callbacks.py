"""Rebalance callbacks of an AIOConsumer that await what it does, in another thread than the one they stand in."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.aio import AIOConsumer, AIOProducer
from tests.filling import fill

Door = Callable[[AIOConsumer, list[TopicPartition]], Awaitable[Any]]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 2}) as cluster:
        fill(cluster, "t", 2_000, 16, 2, size=100)
        cluster.set_quota(client_id="paced", consumer_byte_rate=50_000, producer_byte_rate=4_000)
        yield cluster


async def position(consumer: AIOConsumer, partitions: list[TopicPartition]) -> None:
    assert len(await consumer.position(partitions)) == len(partitions)


async def pause(consumer: AIOConsumer, partitions: list[TopicPartition]) -> None:
    await consumer.pause(partitions)
    await consumer.resume(partitions)


async def commit(consumer: AIOConsumer, partitions: list[TopicPartition]) -> None:
    await consumer.commit(offsets=[TopicPartition(part.topic, part.partition, 1) for part in partitions])


async def seek(consumer: AIOConsumer, partitions: list[TopicPartition]) -> None:
    await consumer.assign(partitions)
    for part in partitions:
        await consumer.position([part])


def consumer_of(broker: EmbeddedBroker, client_id: str) -> AIOConsumer:
    group = f"{client_id}-{asyncio.get_running_loop().time()}"
    base = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "client.id": client_id}
    return AIOConsumer({**base, "auto.offset.reset": "earliest"})


@pytest.mark.parametrize("door", [position, pause, commit, seek])
@pytest.mark.parametrize(("way", "client_id"), [("poll", "free"), ("poll", "paced"), ("consume", "free")])
async def test_a_callback_awaits_a_door_of_its_own_consumer(
    broker: EmbeddedBroker, door: Door, client_id: str, way: str
) -> None:
    consumer = consumer_of(broker, client_id)
    told: list[str] = []

    async def on_assign(_: Any, partitions: list[TopicPartition]) -> None:
        if door is not commit:  # before anything has come
            await door(consumer, partitions)
        told.append("assigned")

    async def on_revoke(_: Any, partitions: list[TopicPartition]) -> None:
        if door is not seek:
            await door(consumer, partitions)
        told.append("revoked")

    await consumer.subscribe(["t"], on_assign=on_assign, on_revoke=on_revoke)
    async with asyncio.timeout(30):
        while not told:
            await (consumer.poll(0.1) if way == "poll" else consumer.consume(10, 0.1))
        for _ in range(3):
            await consumer.poll(0.1)
        await consumer.close()
    assert told == ["assigned", "revoked"]


async def test_a_rebalance_is_served_by_a_producer_s_heartbeat(broker: EmbeddedBroker) -> None:
    consumer = consumer_of(broker, "free")
    told: list[str] = []

    async def on_assign(_: Any, partitions: list[TopicPartition]) -> None:
        await position(consumer, partitions)
        told.append("assigned")

    await consumer.subscribe(["t"], on_assign=on_assign)
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "paced"}
    async with asyncio.timeout(60), AIOProducer(conf, heartbeat=consumer) as producer:
        for _ in range(60):
            await producer.produce("t", b"x" * 1_000)
    assert told
    async with asyncio.timeout(30):
        await consumer.close()
