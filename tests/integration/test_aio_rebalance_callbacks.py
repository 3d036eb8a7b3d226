"""Rebalance callbacks that come while messages of an AIOProducer wait may flush, abort or produce."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import confluent_kafka.aio
import pytest
from confluent_kafka import KafkaException

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.aio import AIOConsumer, AIOProducer
from tests.read_committed import committed

pytestmark = pytest.mark.usefixtures("patiently_asked")
PAD = b"x" * 1_000
Act = Callable[[AIOProducer], Awaitable[object]]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 1, "work": 2}) as cluster:
        cluster.set_quota(client_id="app", producer_byte_rate=12_000)
        yield cluster


class Rebalanced(confluent_kafka.aio.AIOConsumer):
    """A consumer whose first heartbeat while `due` runs a callback."""

    def __init__(self) -> None:
        """Consume nothing."""
        self.due: list[Act] = []
        self.producer: AIOProducer | None = None
        self.done = asyncio.Event()

    async def keep_alive(self) -> None:
        if self.due and self.producer is not None:
            await self.due.pop()(self.producer)
            self.done.set()


@pytest.fixture
async def consumer() -> Rebalanced:
    return Rebalanced()


async def made(broker: EmbeddedBroker, consumer: Any, **conf: Any) -> AIOProducer:
    own = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "transactional.id": "t", **conf}
    producer = AIOProducer(own, batch_size=5, heartbeat=consumer)
    await producer.init_transactions(60)
    await producer.begin_transaction()
    return producer


async def over_produce(producer: AIOProducer) -> list["asyncio.Future[Any]"]:
    return [await producer.produce("orders", b"%d" % number + PAD) for number in range(30)]


async def flush(producer: AIOProducer) -> None:
    assert await producer.flush(60) == 0


async def produce(producer: AIOProducer) -> None:
    await producer.produce("orders", b"of the callback")


@pytest.mark.parametrize("act", [flush, produce])
async def test_a_callback_flushes_or_produces_while_produce_waits(
    broker: EmbeddedBroker, consumer: Rebalanced, act: Act
) -> None:
    producer = await made(broker, consumer)
    consumer.producer, consumer.due = producer, [act]
    await over_produce(producer)
    await asyncio.wait_for(consumer.done.wait(), 60)
    await producer.commit_transaction(60)
    await producer.close()
    values = committed(broker, "orders")
    assert [value for value in values if value.endswith(PAD)] == [b"%d" % number + PAD for number in range(30)]
    assert len(values) == (31 if act is produce else 30)


async def abort(producer: AIOProducer) -> None:
    await producer.abort_transaction(60)


async def abort_and_begin(producer: AIOProducer) -> None:
    await producer.abort_transaction(60)
    await producer.begin_transaction()


async def fill_and_commit(producer: AIOProducer) -> None:
    for _ in range(4):
        await producer.produce("orders", PAD)
    await producer.commit_transaction(60)


@pytest.mark.parametrize(
    ("call", "act"),
    [(over_produce, abort), (over_produce, abort_and_begin), (fill_and_commit, abort_and_begin)],
)
async def test_what_waits_in_a_transaction_that_a_callback_ends_is_refused(
    broker: EmbeddedBroker, consumer: Rebalanced, call: Act, act: Act
) -> None:
    producer = await made(broker, consumer)
    consumer.producer, consumer.due = producer, [act]
    with pytest.raises(KafkaException, match="while this call waited") as caught:
        await call(producer)
    assert caught.value.args[0].txn_requires_abort()
    await producer.abort_transaction(60)
    await producer.begin_transaction()
    await producer.produce("orders", b"next")
    await producer.commit_transaction(60)
    await producer.close()
    assert committed(broker, "orders") == [b"next"]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("in a callback"),
        RuntimeError("in a callback"),
        RuntimeError("cannot schedule new futures after shutdown"),
    ],
    ids=["ValueError", "RuntimeError", "of workers of its own"],
)
async def test_a_callback_that_fails_costs_no_message_and_no_heartbeat(
    broker: EmbeddedBroker, consumer: Rebalanced, error: Exception
) -> None:
    beats: list[str] = []

    async def fail(_producer: AIOProducer) -> None:
        raise error

    async def beat(_producer: AIOProducer) -> None:
        beats.append("after it")

    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context["exception"]))
    producer = await made(broker, consumer)
    consumer.producer, consumer.due = producer, [beat, fail]
    futures = await over_produce(producer)
    await producer.commit_transaction(60)
    await producer.close()
    assert told == [error]
    assert beats == ["after it"]
    assert [future.exception() for future in futures] == [None] * 30


async def produce_forever(producer: AIOProducer) -> None:
    while True:
        await producer.produce("orders", PAD)


async def test_a_real_revocation_aborts_while_produce_waits(broker: EmbeddedBroker) -> None:
    group = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "max.poll.interval.ms": 45_000}
    group |= {"session.timeout.ms": 45_000, "heartbeat.interval.ms": 300}
    consumer, other = AIOConsumer(group), AIOConsumer(group)
    producer = await made(broker, consumer)
    moves: list[str] = []

    async def on_assign(_consumer: Any, _partitions: Any) -> None:
        moves.append("assign")

    async def on_revoke(_consumer: Any, _partitions: Any) -> None:
        moves.append("revoke")
        if len(moves) == 2:
            await producer.abort_transaction(60)

    await consumer.subscribe(["work"], on_assign=on_assign, on_revoke=on_revoke)
    while not moves:
        await consumer.poll(0.1)
    await other.subscribe(["work"])
    joining = asyncio.create_task(other.poll(60))
    with pytest.raises(KafkaException, match="while this call waited"):
        await asyncio.wait_for(produce_forever(producer), 60)
    assert moves[:2] == ["assign", "revoke"]
    joining.cancel()
    await producer.abort_transaction(60)
    await producer.begin_transaction()
    await producer.produce("orders", b"next")
    await producer.commit_transaction(60)
    await other.close()
    await consumer.unsubscribe()
    await producer.close()
    await consumer.close()
    assert committed(broker, "orders") == [b"next"]
