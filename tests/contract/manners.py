"""Clients on brokers that throttle in a manner of their own, and what they go through.

The scenes wait rather than work, so those of all manners run side by side, each on a broker of its own.
"""

import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.manners import Delay, ThrottleManner
from kclient_quota.clients.consumer import Consumer
from kclient_quota.clients.producer import Producer
from tests.filling import fill
from tests.read_committed import ids, read_ids

PRODUCE_S, CONSUME_S = 25.0, 18.0
PRODUCER_QUOTA, CONSUMER_QUOTA = 50_000, 200_000
BY_HAND = {"producer_byte_rate": PRODUCER_QUOTA, "consumer_byte_rate": CONSUMER_QUOTA}
RECORD_BYTES = 1_010
SILENT = ThrottleManner("silent", delay=Delay.LATE, tells=False, most_ms=30_000, empties_fetches=False)
"""A proxy, say: answers are late, and nothing tells why."""
SCENES: dict[str, tuple[str, dict[str, Any], str]] = {
    "kafka": ("kafka", {}, "cluster"),
    "redpanda": ("redpanda", {}, "cluster"),
    "event-hubs": ("event-hubs", {}, "learned"),
    "event-hubs, limit by hand": ("event-hubs", BY_HAND, "config"),
    "managed": ("managed", {}, "learned"),
}
FALLBACK = "learnt from throttle times"


@dataclass
class Seen:
    """What a client went through."""

    source: str = ""
    share: float = 0.0
    late_share: float = 0.0
    failed: list[Any] = field(default_factory=list)
    timeouts: dict[str, int] = field(default_factory=dict)
    errors: list[Any] = field(default_factory=list)
    throttles_s: list[float] = field(default_factory=list)
    moves: list[str] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)
    slowest_s: float = 0.0

    def conf(self, broker: EmbeddedBroker, ours: dict[str, Any]) -> dict[str, Any]:
        return {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "app",
            "enable.metrics.push": False,
            "throttle_cb": lambda event: self.throttles_s.append(event.throttle_time),
            "error_cb": self.errors.append,
            "stats_cb": self._on_statistics,
            "statistics.interval.ms": 1_000,
            **ours,
        }

    def _on_statistics(self, text: str) -> None:
        for name, broker in json.loads(text)["brokers"].items():
            self.timeouts[name] = broker["req_timeouts"]


def produce(manner: str | ThrottleManner, ours: dict[str, Any]) -> Seen:
    seen = Seen()
    delivered: list[float] = []
    ours = {key: value for key, value in ours.items() if key != "consumer_byte_rate"}
    with EmbeddedBroker(manner=manner, topics={"orders": 1}) as broker:
        broker.set_quota(client_id="app", producer_byte_rate=PRODUCER_QUOTA)
        producer = Producer(seen.conf(broker, ours))
        begin = time.monotonic()

        def report(error: Any, message: Any) -> None:
            if error is not None:
                seen.failed.append(error)
            delivered.append(time.monotonic() - begin)
            seen.slowest_s = max(seen.slowest_s, message.latency())

        sent = 0
        while time.monotonic() - begin < PRODUCE_S:
            producer.produce("orders", b"%06d" % sent + b"x" * 994, on_delivery=report)
            sent += 1
        # A client that learns the limit begins far below it where a broker counts two seconds, not Kafka's eleven, and
        # has taken a megabyte before the first answer: 25 to 50 s of sending, and more on a machine that stands still.
        left = producer.flush(180)
        assert (left, seen.failed) == (0, []), producer.quota_state()
        (state,) = producer.quota_state().values()
        seen.source = state.source
        producer.close()
        seen.share = len(delivered) * RECORD_BYTES / delivered[-1] / PRODUCER_QUOTA
        late = [at for at in delivered if at > PRODUCE_S - 7]
        seen.late_share = len(late) * RECORD_BYTES / (delivered[-1] - (PRODUCE_S - 7)) / PRODUCER_QUOTA
        assert read_ids(broker, "orders") == ids(sent), manner
    return seen


def consume(manner: str | ThrottleManner, ours: dict[str, Any]) -> Seen:
    seen = Seen()
    ours = {key: value for key, value in ours.items() if key != "producer_byte_rate"}
    with EmbeddedBroker(manner=manner, topics={"orders": 1}) as broker:
        fill(broker, "orders", int(CONSUMER_QUOTA * CONSUME_S * 1.5 / RECORD_BYTES), 16)
        broker.set_quota(client_id="app", consumer_byte_rate=CONSUMER_QUOTA)
        group = {"group.id": "g", "auto.offset.reset": "earliest", "session.timeout.ms": 12_000}
        consumer = Consumer({**seen.conf(broker, ours), **group, "max.poll.interval.ms": 12_000})
        begin = time.monotonic()
        is_over = threading.Event()

        def note(move: str, partitions: list[TopicPartition]) -> None:
            if not is_over.is_set():
                seen.moves.append(f"{move} {len(partitions)}")

        consumer.subscribe(
            ["orders"],
            on_assign=lambda _, partitions: note("assign", partitions),
            on_revoke=lambda _, partitions: note("revoke", partitions),
            on_lost=lambda _, partitions: note("lost", partitions),
        )
        while time.monotonic() - begin < CONSUME_S:
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None
                seen.ids.append(message.value()[:6])
        is_over.set()
        seen.source = {state.source for state in consumer.quota_state().values()}.pop()
        seen.share = len(seen.ids) * RECORD_BYTES / CONSUME_S / CONSUMER_QUOTA
        consumer.close()
    return seen
