"""A transaction of an `AIOProducer` is committed, and another begun, though other tasks go on producing."""

import asyncio
from typing import Any

import confluent_kafka.aio
import pytest
from confluent_kafka import KafkaError, KafkaException

import kclient_quota
from kclient_quota.broker import EmbeddedBroker
from tests.read_committed import committed

TASKS = 5
ROUNDS = 2
LONG_S = 30.0


async def committed_beside(producer: Any, value: str) -> list[bytes]:
    """What other tasks have been told was delivered, of transactions that were committed meanwhile."""
    delivered: list[bytes] = []
    codes: set[int] = set()
    has_some, ends = asyncio.Event(), asyncio.Event()

    def on_done(future: "asyncio.Future[Any]") -> None:
        error = future.exception()
        if error is None:
            delivered.append(future.result().value())
            has_some.set()
        else:
            codes.add(error.args[0].code())

    async def go_on(number: int) -> None:
        count = 0
        while not ends.is_set():
            count += 1
            try:
                future = await producer.produce("orders", f"{number} {count} {value}".encode())
            except KafkaException as error:  # of a call that was waiting for room
                codes.add(error.args[0].code())
            else:
                future.add_done_callback(on_done)
            await asyncio.sleep(0.005)

    await producer.init_transactions(LONG_S)
    await producer.begin_transaction()
    tasks = [asyncio.create_task(go_on(number)) for number in range(TASKS)]
    try:
        for _ in range(ROUNDS):
            has_some.clear()
            await asyncio.wait_for(has_some.wait(), LONG_S)
            await producer.commit_transaction(LONG_S)
            await producer.begin_transaction()
    finally:
        ends.set()
        await asyncio.gather(*tasks)
    await producer.commit_transaction(LONG_S)
    await producer.close()
    await asyncio.sleep(0)
    assert codes <= {KafkaError._STATE}
    return delivered


@pytest.mark.usefixtures("patiently_asked")
@pytest.mark.parametrize(
    ("kind", "quota"),
    [
        (confluent_kafka.aio.AIOProducer, None),
        (kclient_quota.AIOProducer, None),
        (kclient_quota.AIOProducer, 50_000),
    ],
    ids=["plain", "free", "limited"],
)
async def test_tasks_that_go_on_do_not_keep_it_waiting(broker: EmbeddedBroker, kind: Any, quota: int | None) -> None:
    broker.set_quota(client_id="app", producer_byte_rate=quota)
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "transactional.id": "t"}
    delivered = await committed_beside(kind(conf, buffer_timeout=0.05), "x" * 50)
    assert sorted(committed(broker, "orders")) == sorted(delivered)


@pytest.mark.usefixtures("patiently_asked")
async def test_without_room_for_it_a_message_is_refused_at_once(broker: EmbeddedBroker) -> None:
    broker.set_quota(client_id="app", producer_byte_rate=50_000)
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "transactional.id": "t"}
    producer = kclient_quota.AIOProducer({**conf, "quota.backoff": "raise"})
    await producer.init_transactions(LONG_S)
    await producer.begin_transaction()
    await producer.produce("orders", b"first")
    ending = asyncio.create_task(producer.commit_transaction(LONG_S))
    await asyncio.sleep(0)  # until it awaits its first worker
    with pytest.raises(KafkaException) as refused:
        await producer.produce("orders", b"late")
    assert refused.value.args[0].code() == KafkaError._STATE
    await ending
    await producer.close()
    assert committed(broker, "orders") == [b"first"]
