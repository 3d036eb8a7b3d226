"""Producers that are closed when their test ends, however it ends, and what became of their messages."""

from collections import Counter
from typing import Any

import confluent_kafka

from kclient_quota.clients.producer import Producer

_MADE: list[Producer] = []


def made(conf: dict[str, Any], *, heartbeat: Any = None) -> Producer:
    """A producer that is closed when the test ends."""
    producer = Producer(conf, heartbeat=heartbeat)
    _MADE.append(producer)
    return producer


def close_what_was_made() -> None:
    """What a fixture calls after every test."""
    while _MADE:
        producer = _MADE.pop()
        if len(producer):
            producer.purge()
        producer.close()


class Reports:
    """Delivery reports, by error name or "ok"."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def __call__(self, error: Any, message: Any) -> None:
        self.seen["ok" if error is None else error.name()] += 1


def stuck(producer: Producer, reports: Reports) -> None:
    """Put a message behind the throttle that librdkafka has accepted already, while nothing was known to limit."""
    producer._kq_outbox.is_mixed = True
    confluent_kafka.Producer.produce(producer, "orders", b"stuck", on_delivery=reports)


def over_produce(producer: Producer) -> None:
    """More than a grant holds, so that one call meets the gate."""
    for _ in range(100):
        producer.produce("orders", b"x" * 1000)
