"""The consumer under measurement, in a process of its own: reads for a while and says when messages came."""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

from benchmarks.arrivals import Arrivals, now_ms
from benchmarks.rebalances import Rebalances

_POLL_S = 0.5


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Runs one consumer as `spec` says: client, bootstrap, topic, client_id, seconds."""
    arrivals = Arrivals(now_ms(), spec["seconds"])
    if spec["client"] in {"plain", "ours"}:
        extra = _confluent(spec, arrivals)
    elif spec["client"] == "kafka-python":
        extra = _kafka_python(spec, arrivals)
    elif spec["client"] == "java":
        from benchmarks import java_peer  # noqa: PLC0415 - a peer's process must not load ours

        extra = java_peer.consume(spec, arrivals)
    else:
        extra = asyncio.run(_aiokafka(spec, arrivals))
    return {**arrivals.summary(), **extra}


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
        from kclient_quota import Consumer  # noqa: PLC0415 - as above

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
