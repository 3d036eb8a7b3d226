"""Today's librdkafka, looked at as if it were a later one: its statistics must not pass for those of one that waits."""

import time
from typing import Any

import confluent_kafka

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients import native_throttling
from kclient_quota.clients.native_throttling import NativeThrottling

PRODUCE, FETCH = 0, 1
LATER = native_throttling.LAST_WITHOUT + 0x10000


class Watched:
    """The callbacks that feed an observer, and how many throttles there were."""

    def __init__(self) -> None:
        self.told: list[bool] = []
        self.throttles = 0
        self._native = NativeThrottling(LATER, self.told.append)

    def conf(self, broker: EmbeddedBroker) -> dict[str, Any]:
        callbacks = {"stats_cb": self._on_statistics, "throttle_cb": self._on_throttle, "statistics.interval.ms": 100}
        return {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", **callbacks}

    def _on_statistics(self, text: str) -> None:
        self._native.on_statistics(text, round(time.monotonic() * 1_000))

    def _on_throttle(self, event: Any) -> None:
        self.throttles += 1
        self._native.on_throttle(event.broker_id, round(event.throttle_time * 1_000), round(time.monotonic() * 1_000))


def test_a_plain_producer_and_a_plain_consumer_are_not_recognised(broker: EmbeddedBroker) -> None:
    sending, reading = Watched(), Watched()
    producer = confluent_kafka.Producer(
        {**sending.conf(broker), "max.in.flight": 1, "batch.size": 5_000, "linger.ms": 0}
    )
    group = {"group.id": "g", "auto.offset.reset": "earliest", "fetch.max.bytes": 20_000}
    consumer = confluent_kafka.Consumer({**reading.conf(broker), **group, "message.max.bytes": 20_000})
    consumer.subscribe(["orders"])
    end = time.monotonic() + 20
    while time.monotonic() < end and min(sending.throttles, reading.throttles) < 6:
        broker.throttle_next(PRODUCE, 600)
        broker.throttle_next(FETCH, 600)
        for _ in range(20):
            producer.produce("orders", b"x" * 1_000)
        consumer.consume(100, 0.05)
        producer.poll(0.05)
    producer.purge()
    producer.close()
    consumer.close()
    assert min(sending.throttles, reading.throttles) >= native_throttling.NEEDED
    assert sending.told == reading.told == []
