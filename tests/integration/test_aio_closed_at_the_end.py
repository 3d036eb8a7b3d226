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


WITH_LIBRDKAFKA = """
import asyncio, sys
from kclient_quota import AIOProducer

async def main(messages, servers):
    conf = {"bootstrap.servers": servers, "client.id": "app", "max.in.flight": 1, "batch.num.messages": 5}
    producer = AIOProducer(conf)
    for number in range(int(messages)):
        await producer.produce("orders", b"%09d" % number)
    try:
        await asyncio.wait_for(producer.close(), 0.05)
    except asyncio.TimeoutError:
        print("cut short")

asyncio.run(main(*sys.argv[1:]))
"""


def test_what_librdkafka_has_is_delivered_before_the_process_ends(broker: EmbeddedBroker) -> None:
    """It has all of it, and nothing waits for the quota: confluent_kafka.aio's worker waits for its deliveries."""
    broker.set_quota(client_id="app", producer_byte_rate=None)
    broker.faults.delay_on("Produce", 200)
    command = [sys.executable, "-c", WITH_LIBRDKAFKA, "50", broker.bootstrap_servers]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (ran.stdout, ran.stderr) == ("cut short\n", "")
    assert stored(broker) == list(range(50))


AGAIN = """
import asyncio, faulthandler, sys
from kclient_quota import AIOProducer

made = []

async def main(messages, servers, *_):
    made.append(AIOProducer({"bootstrap.servers": servers, "client.id": "app"}, max_workers=1))
    for number in range(int(messages)):
        await made[0].produce("orders", b"%09d" % number + bytes(291))
    await again(0.05)

async def again(seconds):
    try:
        await asyncio.wait_for(made[0].close(), seconds)
        print("closed")
    except asyncio.TimeoutError:
        print("cut short")

faulthandler.dump_traceback_later(40, exit=True)
asyncio.run(main(*sys.argv[1:]))
for seconds in sys.argv[3:]:
    asyncio.run(again(float(seconds)))
"""


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(["0.3", "0.3"], ["cut short"] * 3), (["30"], ["cut short", "closed"])],
    ids=["cut-short-again", "closed"],
)
def test_closed_again_by_another_loop(broker: EmbeddedBroker, seconds: list[str], told: list[str]) -> None:
    """With one worker, whoever comes first: neither waits for what the other is to do with it."""
    command = [sys.executable, "-c", AGAIN, str(MESSAGES), broker.bootstrap_servers, *seconds]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (ran.stdout.split(), ran.stderr) == (" ".join(told).split(), "")
    assert stored(broker) == list(range(MESSAGES))
