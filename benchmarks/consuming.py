"""The consumer under measurement, in a process of its own: reads for a while and says when messages came."""

import asyncio
import logging
import re
import time
from collections.abc import Callable
from typing import Any

from benchmarks.figures import gaps_s, wait_s
from benchmarks.producing import id_of
from benchmarks.rebalances import Rebalances
from benchmarks.scenes import WARM_UP_S

_POLL_S = 0.5


class Arrivals:
    """Ids and times of the messages that came, and what the client said about a stall."""

    def __init__(self, begin_ms: int, seconds: float) -> None:
        self.begin_ms = begin_ms
        self.end_ms = begin_ms + int(seconds * 1000)
        self.times_ms: list[int] = []
        self.ids: dict[int, set[int]] = {}
        self.payload = 0
        self.steady_payload = 0
        self.longest_throttle_ms = 0.0
        self.stall_s: float | None = None
        self.stall_text: str | None = None

    def open(self) -> bool:
        """Whether the run still goes on."""
        return _now_ms() < self.end_ms

    def add(self, partition: int, value: bytes) -> None:
        """A message reached the application."""
        self.enter(_now_ms(), partition, id_of(value), len(value))

    def enter(self, at_ms: int, partition: int, message_id: int, length: int) -> None:
        """A message reached the application at that time."""
        self.times_ms.append(at_ms)
        self.ids.setdefault(partition, set()).add(message_id)
        self.payload += length
        if at_ms >= self.begin_ms + WARM_UP_S * 1000:
            self.steady_payload += length

    def stalled(self, text: str) -> None:
        """The client said that nothing will ever come."""
        if self.stall_s is None:
            self.stall_s = (_now_ms() - self.begin_ms) / 1000
            self.stall_text = text

    def summary(self) -> dict[str, Any]:
        """Figures of the run."""
        steady_ms = min(self.begin_ms + WARM_UP_S * 1000, self.end_ms)
        waits = gaps_s(self.times_ms, steady_ms, self.end_ms)
        return {
            "begin_ms": self.begin_ms,
            "end_ms": self.end_ms,
            "messages": len(self.times_ms),
            "payload": self.payload,
            "steady_payload": self.steady_payload,
            "repeated": len(self.times_ms) - sum(map(len, self.ids.values())),
            "skipped": sum(max(ids) + 1 - len(ids) for ids in self.ids.values()),
            "first_message_s": (self.times_ms[0] - self.begin_ms) / 1000 if self.times_ms else None,
            "longest_gap_s": max(waits),
            "wait_p50_ms": wait_s(waits, 0.50) * 1000,
            "wait_p99_ms": wait_s(waits, 0.99) * 1000,
            "wait_max_ms": max(waits) * 1000,
            "longest_throttle_ms": self.longest_throttle_ms or None,
            "stall_reported_s": self.stall_s,
            "stall_text": self.stall_text,
        }


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Runs one consumer as `spec` says: client, bootstrap, topic, client_id, seconds."""
    arrivals = Arrivals(_now_ms(), spec["seconds"])
    if spec["client"] in {"plain", "ours"}:
        extra = _confluent(spec, arrivals)
    elif spec["client"] == "kafka-python":
        extra = _kafka_python(spec, arrivals)
    elif spec["client"] == "java":
        from benchmarks import java_peer  # noqa: PLC0415 - it enters what arrived here

        extra = java_peer.consume(spec, arrivals)
    else:
        extra = asyncio.run(_aiokafka(spec, arrivals))
    return {**arrivals.summary(), **extra}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _StallWatch(logging.Handler):
    """Hears the warning with which a client names the quota that would end a stall."""

    _WORDS = re.compile(r"never|stall", re.IGNORECASE)

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if self._WORDS.search(text):
            self._tell(text)


def _confluent(spec: dict[str, Any], arrivals: Arrivals) -> dict[str, Any]:
    def on_throttle(event: Any) -> None:
        arrivals.longest_throttle_ms = max(arrivals.longest_throttle_ms, event.throttle_time * 1000)

    logging.getLogger().addHandler(_StallWatch(arrivals.stalled))
    conf = {
        "bootstrap.servers": spec["bootstrap"],
        "client.id": spec["client_id"],
        "group.id": spec["client_id"],
        "auto.offset.reset": "earliest",
        "throttle_cb": on_throttle,
    }
    consumer = _consumer_class(spec["client"])(conf)
    rebalances = Rebalances()
    consumer.subscribe([spec["topic"]], on_revoke=rebalances.confluent())
    errors = 0
    while arrivals.open():
        message = consumer.poll(_POLL_S)
        if message is None:
            continue
        if message.error() is not None:
            errors += 1
            continue
        arrivals.add(message.partition(), message.value())
    state = getattr(consumer, "quota_state", None)
    told = {
        "errors": errors,
        "state": None if state is None else str(state()),
        "rebalances": rebalances.count,
    }
    consumer.close()
    return told


def _consumer_class(client: str) -> Any:
    if client == "ours":
        from kclient_quota import Consumer  # noqa: PLC0415 - a peer's process must not load ours

        return Consumer
    from confluent_kafka import Consumer as Plain  # noqa: PLC0415 - as above

    return Plain


def _kafka_python(spec: dict[str, Any], arrivals: Arrivals) -> dict[str, Any]:
    from kafka import KafkaConsumer  # noqa: PLC0415 - only in its own process

    rebalances = Rebalances()
    consumer = KafkaConsumer(
        bootstrap_servers=spec["bootstrap"],
        client_id=spec["client_id"],
        group_id=spec["client_id"],
        auto_offset_reset="earliest",
    )
    consumer.subscribe([spec["topic"]], listener=rebalances.kafka_python())
    while arrivals.open():
        _add_all(arrivals, consumer.poll(timeout_ms=int(_POLL_S * 1000)))
    told = {"errors": 0, "rebalances": rebalances.count}
    consumer.close()
    return told


async def _aiokafka(spec: dict[str, Any], arrivals: Arrivals) -> dict[str, Any]:
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415 - only in its own process

    rebalances = Rebalances()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=spec["bootstrap"],
        client_id=spec["client_id"],
        group_id=spec["client_id"],
        auto_offset_reset="earliest",
    )
    consumer.subscribe([spec["topic"]], listener=rebalances.aiokafka())
    await consumer.start()
    while arrivals.open():
        _add_all(arrivals, await consumer.getmany(timeout_ms=int(_POLL_S * 1000)))
    told = {"errors": 0, "rebalances": rebalances.count}
    await consumer.stop()
    return told


def _add_all(arrivals: Arrivals, polled: dict[Any, list[Any]]) -> None:
    for records in polled.values():
        for record in records:
            arrivals.add(record.partition, record.value)
