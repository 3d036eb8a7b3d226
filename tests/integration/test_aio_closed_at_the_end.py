"""An `AIOProducer` whose `close()` is cut short by the end of its loop: what was taken is delivered all the same."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from kclient_quota.broker import EmbeddedBroker

MESSAGES = 600
SCRIPT = """
import asyncio, os, sys
from kclient_quota import AIOProducer

async def main(messages, servers, block_ms, workers):
    conf = {"bootstrap.servers": servers, "client.id": "app", "max.block.ms": int(block_ms)}
    producer = AIOProducer(conf, max_workers=int(workers))
    for number in range(int(messages)):
        await producer.produce("orders", b"%09d" % number + os.urandom(291))
    try:
        await asyncio.wait_for(producer.close(), 0.3)
    except asyncio.TimeoutError:
        print("cut short")

asyncio.run(main(*sys.argv[1:]))
print("the loop has ended")
"""


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        cluster.set_quota(client_id="app", producer_byte_rate=50_000)
        yield cluster


def run(broker: EmbeddedBroker, block_ms: int, workers: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, str(MESSAGES), broker.bootstrap_servers, str(block_ms), str(workers)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)


def stored(broker: EmbeddedBroker) -> list[int]:
    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    _, end = reader.get_watermark_offsets(TopicPartition("orders", 0), 30)
    reader.assign([TopicPartition("orders", 0, 0)])
    found: list[int] = []
    while len(found) < end:
        found += [int((message.value() or b"")[:9]) for message in reader.consume(end, 1)]
    reader.close()
    return found


@pytest.mark.parametrize("workers", [1, 4])
def test_what_was_taken_is_delivered_before_the_process_ends(broker: EmbeddedBroker, workers: int) -> None:
    """The interpreter waits for workers, in one of which confluent_kafka.aio's waits for its deliveries."""
    ran = run(broker, 60_000, workers)
    assert ran.stdout.split("\n")[:2] == ["cut short", "the loop has ended"]
    assert ran.stderr == ""
    assert stored(broker) == list(range(MESSAGES))


def test_what_the_quota_keeps_back_for_too_long_is_told_of(broker: EmbeddedBroker) -> None:
    ran = run(broker, 2_000, 4)
    found = stored(broker)
    assert found == list(range(len(found)))
    assert len(found) < MESSAGES
    assert "messages that its broker did not take" in ran.stderr
