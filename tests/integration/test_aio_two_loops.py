"""An `AIOProducer` that two event loops use at once, or whose first loop neither runs nor is closed."""

import asyncio
import time
from typing import Any

import confluent_kafka.aio
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.serialization import StringDeserializer, StringSerializer

from kclient_quota import AIOConsumer, AIOProducer, QuotaThrottledError
from kclient_quota.clients.aio import AsyncDeserializingConsumer, AsyncSerializingProducer
from kclient_quota.testing.kafka_broker import KafkaBroker
from tests.integration.event_loops import WITHIN_S, Loop

pytestmark = pytest.mark.usefixtures("only_what_is_new")

RATE = 20_000
TOPIC = "orders"
BOTH = pytest.mark.parametrize("plain", [False, True], ids=["ours", "plain"])


@pytest.fixture
def broker(kafka_broker: KafkaBroker) -> KafkaBroker:
    """Its only topic has one partition."""
    kafka_broker.create_topic(TOPIC, 1)
    return kafka_broker


def read(broker: KafkaBroker) -> list[bytes]:
    """All values of the topic, in order, without what fills them."""
    return [(record.value or b"")[:4] for record in broker.records(TOPIC)]


async def made_producer(broker: KafkaBroker, plain: bool = False, limited: bool = False, **arguments: Any) -> Any:
    cls = confluent_kafka.aio.AIOProducer if plain else AIOProducer
    conf: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app"}
    conf |= arguments.pop("conf", {})
    if limited:
        broker.set_quota(client_id="app", producer_byte_rate=RATE)
    return cls(conf, **{"buffer_timeout": 0.05, **arguments})


async def sent(producer: Any, values: list[bytes]) -> list[Any]:
    """Delivered messages, by whose futures tell so."""
    futures = [await producer.produce(TOPIC, value) for value in values]
    await producer.flush()
    return [(await asyncio.wait_for(future, WITHIN_S)).value()[:4] for future in futures]


def values_of(count: int, name: str = "b", size: int = 0) -> list[bytes]:
    return [b"%s%03d" % (name.encode(), number) + bytes(size) for number in range(count)]


@BOTH
def test_another_running_loop_sends(broker: KafkaBroker, first: Loop, second: Loop, plain: bool) -> None:
    """Its futures are its own."""
    producer = first.run(made_producer(broker, plain))
    values = values_of(5)
    assert second.run(sent(producer, values)) == values
    assert first.run(sent(producer, [b"last"])) == [b"last"]
    first.run(producer.close())
    assert read(broker) == [*values, b"last"]


@BOTH
def test_what_another_running_loop_takes_is_sent_though_nobody_looks(
    broker: KafkaBroker, first: Loop, second: Loop, plain: bool
) -> None:
    """More than there are places, and nobody flushes."""
    producer = first.run(made_producer(broker, plain, batch_size=10))
    values = values_of(35)

    async def work() -> None:
        for value in values:
            await producer.produce(TOPIC, value)

    second.run(work())
    deadline = asyncio.run(reached(broker, len(values)))
    assert deadline
    assert read(broker) == values
    first.run(producer.close())


async def reached(broker: KafkaBroker, count: int) -> bool:
    for _ in range(WITHIN_S * 20):
        if len(broker.records(TOPIC)) >= count:
            return True
        await asyncio.sleep(0.05)
    return False


@BOTH
def test_another_loop_sends_while_the_first_stands(
    broker: KafkaBroker, standing: Loop, second: Loop, plain: bool
) -> None:
    """And the first one when it runs again."""
    producer = standing.run(made_producer(broker, plain, buffer_timeout=0 if plain else 0.05))
    assert second.run(sent(producer, [b"b000"])) == [b"b000"]
    assert standing.run(sent(producer, [b"a000"])) == [b"a000"]
    assert second.run(sent(producer, [b"b001"])) == [b"b001"]
    second.run(producer.close())
    assert read(broker) == [b"b000", b"a000", b"b001"]


def test_what_a_loop_that_stands_has_taken_is_sent_by_another_once(
    broker: KafkaBroker, first: Loop, second: Loop
) -> None:
    """Under a quota: what its pump had in hand as well. Its futures are told when it runs again."""
    producer = first.run(made_producer(broker, limited=True))
    values = values_of(40, "a", 1_000)

    async def take() -> list[Any]:
        return [await producer.produce(TOPIC, value) for value in values]

    futures = first.run(take())
    first.run(asyncio.sleep(0.2))
    first.stand()
    assert len(read(broker)) < len(values)
    assert second.run(sent(producer, [b"last"])) == [b"last"]
    assert read(broker) == [*(value[:4] for value in values), b"last"]
    first.go()

    async def told() -> int:
        return len(await asyncio.gather(*futures))

    assert first.run(told()) == len(values)
    first.run(producer.close())


def test_two_loops_share_a_quota_and_its_places(broker: KafkaBroker, first: Loop, second: Loop) -> None:
    """Each one's messages in order, each once; whoever waits for room goes on, in either loop; a wait counts once."""
    producer = first.run(made_producer(broker, limited=True, batch_size=3))
    waited_ms: list[int] = []
    producer._producer.note_wait = waited_ms.append
    began = time.monotonic()
    ours, theirs = values_of(20, "a", 500), values_of(20, "b", 500)
    running = asyncio.run_coroutine_threadsafe(sent(producer, ours), first.loop)
    assert len(second.run(sent(producer, theirs))) == len(theirs)
    assert len(running.result(WITHIN_S)) == len(ours)
    assert 0 < sum(waited_ms) <= 1_000 * (time.monotonic() - began) + len(waited_ms)  # rounded
    got = read(broker)
    assert [value for value in got if value[:1] == b"a"] == [value[:4] for value in ours]
    assert [value for value in got if value[:1] == b"b"] == [value[:4] for value in theirs]
    second.run(producer.close())


def test_who_waits_for_room_gets_it_that_a_loop_which_stands_was_offered(
    broker: KafkaBroker, first: Loop, second: Loop
) -> None:
    """Nobody holds a place, or stands in the way, in a loop that does not run."""
    producer = first.run(made_producer(broker, limited=True, batch_size=1))

    async def wait_for_room() -> None:
        for value in values_of(30, "a", 2_000):
            asyncio.get_running_loop().create_task(producer.produce(TOPIC, value))
        await asyncio.sleep(0.3)

    first.run(wait_for_room())
    first.stand()
    assert second.run(sent(producer, values_of(3))) == values_of(3)
    before = [value for value in read(broker) if value[:1] == b"a"]
    assert before == [value[:4] for value in values_of(30, "a")][: len(before)]
    assert len(before) < 30
    second.run(producer.close())


def test_a_produce_that_is_cancelled_in_another_loop_has_taken_nothing(
    broker: KafkaBroker, first: Loop, second: Loop
) -> None:
    producer = first.run(made_producer(broker, limited=True, batch_size=2))

    async def work() -> list[bytes]:
        taken = []
        for value in values_of(20, "b", 2_000):
            task = asyncio.create_task(producer.produce(TOPIC, value))
            await asyncio.wait([task], timeout=0.05)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                taken.append(value[:4])
        return taken

    taken = second.run(work())
    assert 0 < len(taken) < 20
    first.run(producer.flush())
    assert read(broker) == taken
    first.run(producer.close())


def test_a_flush_is_cancelled_in_another_loop_at_once(broker: KafkaBroker, first: Loop, second: Loop) -> None:
    producer = first.run(made_producer(broker, limited=True))
    values = values_of(30, "b", 1_000)

    async def work() -> None:
        for value in values:
            await producer.produce(TOPIC, value)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.flush(), 0.1)

    second.run(work())
    assert first.run(producer.flush()) == 0
    assert read(broker) == [value[:4] for value in values]
    second.run(producer.close())


@pytest.mark.parametrize("by", ["both", "first", "second"])
def test_close_from_either_loop_ends_with_all_futures_done(
    broker: KafkaBroker, first: Loop, second: Loop, by: str
) -> None:
    producer = first.run(made_producer(broker, limited=True))

    async def take(name: str) -> list[Any]:
        return [await producer.produce(TOPIC, value) for value in values_of(10, name, 1_000)]

    async def told(futures: list[Any]) -> int:
        return len(await asyncio.wait_for(asyncio.gather(*futures), 1))

    taken = {loop: loop.run(take(name)) for loop, name in ((first, "a"), (second, "b"))}
    closing = [
        asyncio.run_coroutine_threadsafe(producer.close(), loop.loop)
        for loop in {"both": (first, second), "first": (first,), "second": (second,)}[by]
    ]
    for each in closing:
        each.result(WITHIN_S)
    for loop, futures in taken.items():
        assert loop.run(told(futures)) == len(futures)
    first.run(producer.close())
    second.run(producer.close())
    with pytest.raises(RuntimeError, match="closed"):
        second.run(producer.produce(TOPIC, b"late"))


@BOTH
def test_purge_in_one_loop_cancels_futures_of_another(
    broker: KafkaBroker, first: Loop, second: Loop, plain: bool
) -> None:
    producer = first.run(made_producer(broker, plain, buffer_timeout=0))

    async def take() -> Any:
        return await producer.produce(TOPIC, b"b000")

    async def cancelled(future: Any) -> bool:
        await asyncio.wait([future], timeout=1)
        return bool(future.cancelled())

    future = second.run(take())
    first.run(producer.purge())
    assert second.run(cancelled(future))
    first.run(producer.close())
    assert read(broker) == []


def test_a_delivery_callback_runs_in_the_loop_that_produced(broker: KafkaBroker, first: Loop, second: Loop) -> None:
    producer = first.run(made_producer(broker))
    told: list[Any] = []

    async def take() -> Any:
        return await producer.produce(TOPIC, b"b000", on_delivery=lambda *_: told.append(asyncio.get_running_loop()))

    second.run(take())
    first.run(producer.flush())
    second.run(asyncio.sleep(0.1))
    assert told == [second.loop]
    first.run(producer.close())


def test_a_transaction_of_two_loops(broker: KafkaBroker, first: Loop, second: Loop) -> None:
    """Begun in one, with messages of both, committed in the other."""
    producer = first.run(made_producer(broker, conf={"transactional.id": "t"}))
    first.run(producer.init_transactions())
    first.run(producer.begin_transaction())

    async def take(value: bytes) -> Any:
        return await producer.produce(TOPIC, value)

    for loop, value in ((first, b"a000"), (second, b"b000")):
        loop.run(take(value))
    second.run(producer.commit_transaction())
    second.run(producer.begin_transaction())
    second.run(take(b"none"))
    first.run(producer.abort_transaction())
    assert read(broker)[:2] == [b"a000", b"b000"]
    first.run(producer.close())


def test_a_heartbeat_goes_on_in_the_loop_that_waits(broker: KafkaBroker, first: Loop, second: Loop) -> None:
    """The consumer is of the one, messages wait in the other."""

    async def made_consumer() -> Any:
        consumer = AIOConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"})
        await consumer.subscribe([TOPIC])
        return consumer

    consumer = first.run(made_consumer())
    beats: list[Any] = []
    keep_alive = consumer.keep_alive

    async def counted() -> None:
        beats.append(asyncio.get_running_loop())
        await keep_alive()

    consumer.keep_alive = counted
    producer = first.run(made_producer(broker, limited=True, heartbeat=consumer))
    assert len(second.run(sent(producer, values_of(30, "b", 1_000)))) == 30
    assert second.loop in beats
    second.run(producer.close())
    second.run(consumer.close())


def test_with_backoff_raise_another_loop_is_told_of_the_quota_and_sends(
    broker: KafkaBroker, first: Loop, second: Loop
) -> None:
    producer = first.run(made_producer(broker, limited=True, conf={"quota.backoff": "raise"}))

    futures: list[Any] = []

    async def take_all() -> None:
        for value in values_of(200, "b", 1_000):
            futures.append(await producer.produce(TOPIC, value))

    async def work() -> list[bytes]:
        with pytest.raises(QuotaThrottledError):
            await take_all()
        return [(await asyncio.wait_for(future, WITHIN_S)).value()[:4] for future in futures]

    told = second.run(work())
    assert read(broker) == told
    second.run(producer.close())


def test_loops_that_are_closed_are_let_go_and_their_callbacks_run_in_the_next(broker: KafkaBroker) -> None:
    """As where each request is answered by an `asyncio.run()` of its own."""
    producer = asyncio.run(made_producer(broker, buffer_timeout=0))
    told: list[str | None] = []

    async def take() -> None:
        await producer.produce(TOPIC, b"a", on_delivery=lambda error, _: told.append(error))

    for _ in range(5):
        asyncio.run(take())
    asyncio.run(producer.flush())
    asyncio.run(producer.close())
    assert told == [None] * 5
    assert len(producer._loops) == 1


def test_a_serializing_pair_is_used_from_another_loop(broker: KafkaBroker, first: Loop, second: Loop) -> None:
    servers = {"bootstrap.servers": broker.bootstrap_servers}

    async def made_pair() -> tuple[Any, Any]:
        text = {"value.serializer": StringSerializer()}
        producer = await AsyncSerializingProducer({**servers, **text}, buffer_timeout=0.05)
        text = {"value.deserializer": StringDeserializer()}
        consumer = await AsyncDeserializingConsumer({**servers, **text, "group.id": "readers"})
        return producer, consumer

    async def work() -> Any:
        future = await producer.produce(TOPIC, value="grüße")
        await producer.flush()
        await asyncio.wait_for(future, WITHIN_S)
        await consumer.assign([TopicPartition(TOPIC, 0, 0)])
        message = await consumer.poll(WITHIN_S)
        await consumer.close()
        await producer.close()
        return message.deserialized_value()

    producer, consumer = first.run(made_pair())
    assert second.run(work()) == "grüße"
