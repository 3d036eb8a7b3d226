"""AIOConsumer under a quota: the event loop never waits, and what a cancelled call would have received comes later."""

import asyncio
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.aio import AIOConsumer, AIOProducer
from kclient_quota.errors import ConfigError
from tests.filling import fill

pytestmark = pytest.mark.usefixtures("patiently_asked")


def conf(broker: EmbeddedBroker, **more: Any) -> dict[str, Any]:
    group = {"group.id": "g", "client.id": "app", "auto.offset.reset": "earliest"}
    return {"bootstrap.servers": broker.bootstrap_servers, **group, **more}


@pytest.mark.parametrize("rate", [None, 60_000])
async def test_cancelled_calls_lose_and_double_nothing(broker: EmbeddedBroker, rate: int | None) -> None:
    fill(broker, "orders", 300, 16, size=500)
    if rate is not None:
        broker.set_quota(client_id="app", consumer_byte_rate=rate)
    got: list[int] = []
    cancelled = 0
    async with AIOConsumer(conf(broker)) as consumer:
        await consumer.subscribe(["orders"])
        deadline = time.monotonic() + 60
        attempts = 0
        while len(got) < 300 and time.monotonic() < deadline:
            attempts += 1
            task = asyncio.create_task(consumer.poll(1.0) if attempts % 4 < 2 else consumer.consume(3, 1.0))
            await asyncio.sleep(0.002 * (attempts % 3))
            if attempts % 2:
                task.cancel()
            try:
                received = await task
            except asyncio.CancelledError:
                cancelled += 1
                # What is not received must not be committed either.
                if cancelled % 20 == 0 and got:
                    (committed,) = await consumer.commit(asynchronous=False)
                    assert committed.offset == len(got)
                continue
            if received is not None:
                got.extend(message.offset() for message in (received if isinstance(received, list) else [received]))
        assert {state.limit for state in consumer.quota_state().values()} == {rate}
    assert got == list(range(300))
    assert cancelled >= 20


@pytest.mark.parametrize("endless", [float("inf"), float("nan")])
async def test_a_poll_without_end_waits(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, endless: float
) -> None:
    """As confluent_kafka's, which C takes either for; of nan it asked as often as it could, with a whole processor."""
    async with AIOConsumer(conf(broker)) as consumer:
        took: list[Any] = []
        take = consumer._take
        monkeypatch.setattr(consumer, "_take", lambda *args: took.append(args) or take(*args))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.poll(endless), 0.5)
        assert len(took) <= 6


async def test_a_cancelled_poll_frees_its_worker(broker: EmbeddedBroker) -> None:
    async with AIOConsumer(conf(broker), max_workers=1) as consumer:
        await consumer.subscribe(["orders"])
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(), 0.05)
        assert await asyncio.wait_for(consumer.consume(1, 0), 60) == []


async def test_what_a_cancelled_call_fails_with_is_of_no_interest(broker: EmbeddedBroker) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with AIOConsumer(conf(broker)) as consumer:
        task = asyncio.create_task(consumer.commit(asynchronous=False))
        await asyncio.sleep(0)  # it is in its worker now, and will find nothing to commit
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(KafkaException, match="No offset stored"):
            await consumer.commit(asynchronous=False)
    del task
    gc.collect()
    assert told == []


async def test_callbacks_are_coroutines_that_may_call_the_consumer(broker: EmbeddedBroker) -> None:
    fill(broker, "orders", 10, 16, size=500)
    said: list[Any] = []
    stats: list[str] = []

    async def on_assign(consumer: AIOConsumer, partitions: list[TopicPartition]) -> None:
        said.append(consumer is made)
        await consumer.assign([TopicPartition(part.topic, part.partition, 7) for part in partitions])
        said.append(len(await consumer.assignment()))

    async def on_revoke(consumer: AIOConsumer, partitions: list[TopicPartition]) -> None:
        said.append(len(partitions))
        await consumer.commit(asynchronous=False)

    async def on_stats(text: str) -> None:
        stats.append(text)

    mine = conf(broker, **{"stats_cb": on_stats, "statistics.interval.ms": 300})
    before = dict(mine)
    made = AIOConsumer(mine)
    assert mine == before
    await made.subscribe(["orders"], on_assign, on_revoke=on_revoke)
    offsets = [(await made.poll(60)).offset() for _ in range(3)]
    assert offsets == [7, 8, 9]
    deadline = time.monotonic() + 60
    while not stats:
        assert time.monotonic() < deadline
        assert await made.poll(0.1) is None
    await made.close()
    assert said == [True, 1, 1]
    async with AIOConsumer(conf(broker)) as again:
        (committed,) = await again.committed([TopicPartition("orders", 0)], 60)
    assert committed.offset == 10


async def test_two_calls_take_turns(broker: EmbeddedBroker) -> None:
    fill(broker, "orders", 60, 16, size=500)
    async with AIOConsumer(conf(broker)) as consumer:
        await consumer.subscribe(["orders"])

        async def some() -> list[int]:
            return [(await consumer.poll(60)).offset() for _ in range(30)]

        first, second = await asyncio.gather(some(), some())
    assert sorted(first + second) == list(range(60))
    assert first == sorted(first)


async def test_close_may_be_cancelled_and_awaited_again(broker: EmbeddedBroker) -> None:
    before = set(threading.enumerate())
    consumer = AIOConsumer(conf(broker))
    await consumer.subscribe(["orders"])
    polling = asyncio.create_task(consumer.poll())
    await asyncio.sleep(0.3)
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await asyncio.wait_for(consumer.close(), 60)
    with pytest.raises(RuntimeError, match="closed"):
        await polling
    with pytest.raises(RuntimeError, match="closed"):
        await consumer.poll(0)
    assert await consumer.keep_alive() is None
    left = [thread.name for thread in set(threading.enumerate()) - before if not thread.daemon]
    assert [name for name in left if not name.startswith("asyncio")] == []


async def test_an_asyncio_loop_of_consume_and_produce_keeps_its_group(broker: EmbeddedBroker) -> None:
    fill(broker, "orders", 60, 16, size=500)
    broker.create_topic("copies", 1)
    broker.set_quota(client_id="copier", producer_byte_rate=2_500)
    moves: list[str] = []

    async def on_assign(_consumer: AIOConsumer, _partitions: list[TopicPartition]) -> None:
        moves.append("assign")

    async def on_gone(_consumer: AIOConsumer, _partitions: list[TopicPartition]) -> None:
        moves.append("gone")

    limits = {"max.poll.interval.ms": 12_000, "session.timeout.ms": 12_000}
    consumer = AIOConsumer(conf(broker, **limits))
    await consumer.subscribe(["orders"], on_assign=on_assign, on_revoke=on_gone, on_lost=on_gone)
    producer = AIOProducer(
        {"bootstrap.servers": broker.bootstrap_servers, "client.id": "copier"}, batch_size=10, heartbeat=consumer
    )
    copied = 0
    begin = time.monotonic()
    messages = await consumer.consume(60, 60)
    while len(messages) < 60:
        messages += await consumer.consume(60 - len(messages), 60)
    # One batch, whose copying takes longer than max.poll.interval.ms: 35 kilobytes at 2.5 a second, less a burst.
    for message in messages + messages[:10]:
        await producer.produce("copies", message.value())
        copied += 1
    await producer.flush()
    assert time.monotonic() - begin > 12.5
    await consumer.commit(offsets=[TopicPartition("orders", 0, 60)], asynchronous=False)
    assert moves == ["assign"]
    await producer.close()
    await consumer.close()
    assert copied == 70


async def test_the_executor_and_what_is_refused(broker: EmbeddedBroker) -> None:
    with ThreadPoolExecutor(2) as executor:
        async with AIOConsumer(conf(broker), executor=executor) as consumer:
            await consumer.list_topics(timeout=60)
        assert executor.submit(int).result() == 0
    with pytest.raises(ConfigError):
        AIOConsumer(conf(broker, **{"quota.backof": "raise"}))
    with pytest.raises(ValueError, match="max_workers"):
        AIOConsumer(conf(broker), max_workers=0)
    with pytest.raises(KafkaException):
        AIOConsumer(conf(broker, bogus=1))
