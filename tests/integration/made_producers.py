"""Producers that are closed when their test ends, however it ends."""

from typing import Any

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
