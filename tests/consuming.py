"""A consumer of one topic under a quota, and what it reads."""

import time
from typing import Any

from confluent_kafka import Message

from kclient_quota.clients.consumer import Consumer


def consumer_of(cluster: Any, topic: str, client_id: str, **conf: Any) -> Consumer:
    """One that begins at the beginning, in a group of its own unless `conf` says otherwise."""
    base = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": client_id, "client.id": client_id}
    consumer = Consumer({**base, "auto.offset.reset": "earliest", **conf})
    consumer.subscribe([topic])
    return consumer


def read(consumer: Consumer, seconds: float) -> list[tuple[float, Message]]:
    """What comes within so many seconds of the first message, with the time at which each came."""
    found: list[tuple[float, Message]] = []
    end = time.monotonic() + 60
    while time.monotonic() < end:
        message = consumer.poll(0.2)
        if message is not None:
            end = end if found else time.monotonic() + seconds
            assert message.error() is None
            found.append((time.monotonic(), message))
    return found
