"""Groups of kafka-python and aiokafka on the embedded broker."""

import asyncio
import time

import pytest
from confluent_kafka import Producer

from kclient_quota.broker import EmbeddedBroker

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")


@pytest.fixture
def broker():
    with EmbeddedBroker(topics={"t": 4}) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap_servers, "linger.ms": 0})
        for number in range(40):
            producer.produce("t", str(number), partition=number % 4)
        assert producer.flush(60) == 0
        yield running


def test_kafka_python_joins_rebalances_commits_and_resumes(broker):
    from kafka import KafkaConsumer

    config = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 6000,
    }
    first = KafkaConsumer("t", **config)
    values = _receive([first], 40)
    assert sorted(values) == list(range(40))
    first.commit()
    second = KafkaConsumer("t", **config)
    deadline = time.monotonic() + 20
    while not len(first.assignment()) == len(second.assignment()) == 2:
        assert time.monotonic() < deadline
        first.poll(50)
        assert second.poll(50) == {}, "everything was committed"
    first.close()
    second.close()


def _receive(consumers, count):
    values, deadline = [], time.monotonic() + 20
    while len(values) < count:
        assert time.monotonic() < deadline
        for consumer in consumers:
            values += [int(r.value) for records in consumer.poll(100).values() for r in records]
    return values


async def test_aiokafka_joins_rebalances_commits_and_resumes(broker):
    from aiokafka import AIOKafkaConsumer

    config = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 100,
    }
    first = AIOKafkaConsumer("t", **config)
    await first.start()
    try:
        values = [int((await asyncio.wait_for(first.getone(), 20)).value) for _ in range(40)]
        assert sorted(values) == list(range(40))
        await first.commit()
        second = AIOKafkaConsumer("t", **config)
        await second.start()
        try:
            async with asyncio.timeout(20):
                while not len(first.assignment()) == len(second.assignment()) == 2:  # noqa: ASYNC110 - no event to await
                    await asyncio.sleep(0.05)
            assert {await second.committed(p) for p in second.assignment()} == {10}
        finally:
            await second.stop()
    finally:
        await first.stop()
