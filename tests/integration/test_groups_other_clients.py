"""Groups of kafka-python and aiokafka on the embedded broker."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

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
        "session_timeout_ms": 30_000,
    }
    with (
        closing(KafkaConsumer("t", **config)) as first,
        closing(KafkaConsumer("t", **config)) as second,
        ThreadPoolExecutor(2) as threads,
    ):
        values, deadline = [], time.monotonic() + 60
        while len(values) < 40:
            assert time.monotonic() < deadline
            values += _poll(first)
        assert sorted(values) == list(range(40))
        first.commit()
        while not len(first.assignment()) == len(second.assignment()) == 2:
            assert time.monotonic() < deadline
            both = threads.map(_poll, [first, second])
            assert [*both] == [[], []], "everything was committed"


def _poll(consumer):
    # long: kafka-python 3.0.12 forgets an assignment that arrives after the poll that asked for it has timed out
    return [int(r.value) for records in consumer.poll(8000).values() for r in records]


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
        values = [int((await asyncio.wait_for(first.getone(), 60)).value) for _ in range(40)]
        assert sorted(values) == list(range(40))
        await first.commit()
        second = AIOKafkaConsumer("t", **config)
        await second.start()
        try:
            async with asyncio.timeout(60):
                while not len(first.assignment()) == len(second.assignment()) == 2:  # noqa: ASYNC110 - no event to await
                    await asyncio.sleep(0.05)
            assert {await second.committed(p) for p in second.assignment()} == {10}
        finally:
            await second.stop()
    finally:
        await first.stop()
