"""An `AIOConsumer` that two event loops use at once, or whose first loop neither runs nor is closed."""

import asyncio
from typing import Any

import confluent_kafka.aio
import pytest
from confluent_kafka import TopicPartition

from kclient_quota import AIOConsumer, Producer
from kclient_quota.testing.kafka_broker import KafkaBroker
from tests.integration.event_loops import WITHIN_S, Loop

pytestmark = pytest.mark.usefixtures("only_what_is_new")

TOPIC = "orders"
BOTH = pytest.mark.parametrize("plain", [False, True], ids=["ours", "plain"])


@pytest.fixture
def broker(kafka_broker: KafkaBroker) -> KafkaBroker:
    """Its only topic has one partition."""
    kafka_broker.create_topic(TOPIC, 1)
    return kafka_broker


COUNT = 60


def filled(broker: KafkaBroker) -> None:
    """Has as many messages, whose values are their numbers."""
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for number in range(COUNT):
            producer.produce(TOPIC, b"%d" % number)


async def made_consumer(broker: KafkaBroker, plain: bool = False, **conf: Any) -> Any:
    cls = confluent_kafka.aio.AIOConsumer if plain else AIOConsumer
    consumer = cls({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers", **conf})
    await consumer.assign([TopicPartition(TOPIC, 0, 0)])
    return consumer


@BOTH
@pytest.mark.parametrize("rate", [None, 50_000], ids=["free", "limited"])
def test_two_loops_poll_at_once(broker: KafkaBroker, first: Loop, second: Loop, plain: bool, rate: int | None) -> None:
    """Each message once."""
    filled(broker)
    conf = {} if plain or rate is None else {"consumer_byte_rate": rate}
    consumer = first.run(made_consumer(broker, plain, **conf))
    got: list[int] = []

    async def receive() -> None:
        while len(got) < COUNT:
            message = await consumer.poll(0.2)
            if message is not None:
                got.append(int(message.value()))

    async def all_of() -> None:
        await asyncio.gather(receive(), receive())

    running = asyncio.run_coroutine_threadsafe(all_of(), first.loop)
    second.run(all_of())
    running.result(WITHIN_S)
    assert sorted(got) == list(range(COUNT))
    second.run(consumer.close())


def test_another_loop_polls_what_one_that_stands_has_left_and_nothing_twice(
    broker: KafkaBroker, standing: Loop, second: Loop
) -> None:
    """The one that stood gets a later one when it runs again."""
    filled(broker)
    consumer = standing.run(made_consumer(broker))

    async def begin() -> Any:
        task = asyncio.create_task(consumer.poll(WITHIN_S))
        await asyncio.sleep(0)  # its worker has begun
        return task

    async def receive(count: int) -> list[int]:
        return [int((await consumer.poll(WITHIN_S)).value()) for _ in range(count)]

    async def result(task: Any) -> int:
        return int((await task).value())

    left = standing.run(begin())
    assert second.run(receive(COUNT - 1)) == list(range(COUNT - 1))
    assert standing.run(result(left)) == COUNT - 1
    second.run(consumer.close())


@pytest.mark.parametrize("by", ["both", "second"])
def test_a_consumer_is_closed_from_another_loop(broker: KafkaBroker, first: Loop, second: Loop, by: str) -> None:
    consumer = first.run(made_consumer(broker))
    closing = [
        asyncio.run_coroutine_threadsafe(consumer.close(), loop.loop)
        for loop in {"both": (first, second), "second": (second,)}[by]
    ]
    for each in closing:
        each.result(WITHIN_S)
    for loop in (first, second):
        with pytest.raises(RuntimeError, match="closed"):
            loop.run(consumer.poll(0))


def test_a_poll_that_is_cancelled_in_one_loop_is_received_in_the_other(
    broker: KafkaBroker, first: Loop, second: Loop
) -> None:
    filled(broker)
    consumer = first.run(made_consumer(broker))
    got: list[int] = []

    async def hasty() -> None:
        while len(got) < COUNT:
            task = asyncio.create_task(consumer.poll(0.05))
            await asyncio.wait([task], timeout=0.002)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and task.result() is not None:
                got.append(int(task.result().value()))

    async def receive() -> None:
        while len(got) < COUNT:
            message = await consumer.poll(0.2)
            if message is not None:
                got.append(int(message.value()))

    running = asyncio.run_coroutine_threadsafe(hasty(), first.loop)
    second.run(receive())
    running.result(WITHIN_S)
    assert sorted(got) == list(range(COUNT))
    first.run(consumer.close())


@BOTH
def test_a_rebalance_callback_runs_in_the_loop_that_subscribed_and_may_call_the_consumer(
    broker: KafkaBroker, first: Loop, second: Loop, plain: bool
) -> None:
    filled(broker)
    cls = confluent_kafka.aio.AIOConsumer if plain else AIOConsumer
    called: list[Any] = []

    async def on_assign(consumer: Any, partitions: list[TopicPartition]) -> None:
        called.append(asyncio.get_running_loop())
        await consumer.assign([TopicPartition(each.topic, each.partition, 0) for each in partitions])

    async def begin() -> Any:
        consumer = cls({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"})
        await consumer.subscribe([TOPIC], on_assign=on_assign)
        return consumer

    async def receive() -> int:
        message = await consumer.poll(WITHIN_S)
        return int(message.value())

    consumer = first.run(begin())
    assert second.run(receive()) == 0
    assert called == [first.loop]
    second.run(consumer.close())
