"""A signal may end any line while a consumer changes its fetch sizes: nothing is lost and nothing comes twice."""

import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.consumer import Consumer
from kclient_quota.clients.consumer.receiving import fetching, receiving, recovering
from kclient_quota.pacing.fetching.fetch_sizes import FetchSizes
from tests.signals import Stop

PARTITIONS, EACH, BEFORE = 3, 300, 350
WHERE = {fetching.__file__, receiving.__file__, recovering.__file__}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker(topics={"numbers": PARTITIONS}) as broker:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 50, "enable.idempotence": True}
        )
        for partition in range(PARTITIONS):
            for number in range(EACH):
                producer.produce("numbers", b"%06d" % number, partition=partition)
        assert producer.flush(60) == 0
        yield broker.bootstrap_servers


def interrupted_at(line: int, change: Any) -> bool:
    """Call it, and have it end before the so many-th line; whether there was one."""
    lines = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename not in WHERE:
            return None
        if event == "line":
            lines += 1
            if lines == line:
                sys.settrace(None)
                raise Stop
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        change()
    except Stop:
        return True
    finally:
        sys.settrace(before)
    return False


def read(consumer: Consumer, seen: dict[int, list[int]], count: int) -> None:
    deadline = time.monotonic() + 60
    while sum(map(len, seen.values())) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            seen[message.partition()].append(message.offset())


def test_whichever_line_a_signal_ends(servers: str) -> None:
    line, was_interrupted = 0, True
    while was_interrupted:
        line += 1
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"g{line}",
                "auto.offset.reset": "earliest",
                "enable.metrics.push": False,
                "consumer_byte_rate": 2_000_000,
            }
        )
        consumer.assign([TopicPartition("numbers", partition, 0) for partition in range(PARTITIONS)])
        seen: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        read(consumer, seen, BEFORE)
        consumer._kq_settle()
        was_interrupted = interrupted_at(line, lambda: consumer._kq_change_sizes(FetchSizes(5_000, 20_000)))  # noqa: B023
        told = consumer.position([TopicPartition("numbers", partition) for partition in range(PARTITIONS)])
        assert [max(0, part.offset) for part in told] == [len(found) for found in seen.values()], line
        read(consumer, seen, PARTITIONS * EACH)
        consumer.close()
        assert all(found == list(range(EACH)) for found in seen.values()), (line, seen)
    assert line > 30
