"""librdkafka waits for whole milliseconds: what is left of a poll's time is not spent on asking it again and again."""

from threading import Thread
from typing import Any

import pytest

from kclient_quota import Consumer, Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.certify.filling import fill

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "enable.metrics.push": False}
TIMES_S = [0.0002, 0.0033333, 0.01, 0.0105]
MOST_LOOKS = 4


class CountingProducer(Producer):
    looks = 0

    def _kq_poll_direct(self, *args: Any, **kwargs: Any) -> int:
        self.looks += 1
        return super()._kq_poll_direct(*args, **kwargs)


class CountingConsumer(Consumer):
    looks = 0

    def _kq_take(self, *args: Any, **kwargs: Any) -> None:
        self.looks += 1
        super()._kq_take(*args, **kwargs)


@pytest.mark.parametrize("time_s", TIMES_S)
def test_a_producers(time_s: float) -> None:
    with (
        EmbeddedBroker(topics={"orders": 1}) as broker,
        CountingProducer({**NOBODY, "bootstrap.servers": broker.bootstrap_servers}) as producer,
    ):
        producer.produce("orders", b"one")
        producer.flush(10)
        producer.looks = 0
        # Not in the main thread, where a handler of a signal has it wait elsewhere.
        thread = Thread(target=lambda: [producer.poll(time_s) for _ in range(10)])
        thread.start()
        thread.join()
        assert producer.looks <= 10 * MOST_LOOKS


@pytest.mark.parametrize("time_s", TIMES_S)
def test_a_consumers(time_s: float) -> None:
    consumer = CountingConsumer({**NOBODY, "group.id": "g"})
    consumer.subscribe(["orders"])
    for _ in range(10):
        consumer.poll(time_s)
        consumer.consume(1, time_s)
    assert consumer.looks <= 20 * MOST_LOOKS
    consumer.close()


class WaitingConsumer(Consumer):
    waits = 0

    def _kq_wait(self, wait_ms: int) -> None:
        self.waits += 1
        super()._kq_wait(wait_ms)


def test_small_messages_are_not_waited_for_one_by_one() -> None:
    """Of a quota of a megabyte each was, for a millisecond: as much of a processor again as reading them."""
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        fill(broker.bootstrap_servers, "orders", 3_000, 1_000, 100)
        broker.set_quota(default_client_id=True, consumer_byte_rate=1_000_000)
        conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = WaitingConsumer(conf)
        consumer.subscribe(["orders"])
        assert len(consumer.consume(1_000, 30)) == 1_000
        consumer.waits = 0
        read = [consumer.poll(10) for _ in range(1_000)]
        waits = consumer.waits
        consumer.close()
    assert None not in read
    assert 10 < waits < 500
