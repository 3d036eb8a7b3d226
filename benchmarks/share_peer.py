"""One share consumer of Python in a process of its own: writes offset, delivery count and time (ms) of each record."""

import json
import sys
import threading
import time
from typing import Any

import confluent_kafka

_POLL_S = 0.5


def main() -> None:
    """Poll until standard input ends."""
    kind, bootstrap, topic, group, settings = sys.argv[1:]
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    consumer = _consumer(
        kind, {"bootstrap.servers": bootstrap, "group.id": group, "client.id": group, **json.loads(settings)}
    )
    consumer.subscribe([topic])
    while not ended.is_set():
        for message in consumer.poll(_POLL_S):
            if message.error() is None:
                print(message.offset(), message.delivery_count(), time.time_ns() // 1_000_000)
        sys.stdout.flush()
    consumer.close()


def _consumer(kind: str, conf: dict[str, Any]) -> Any:
    if kind == "plain":
        return confluent_kafka.ShareConsumer({**conf, "enable.metrics.push": False})
    from kclient_quota.clients.consumer.share_consumer import ShareConsumer  # noqa: PLC0415 - the plain one's process must not load it

    return ShareConsumer({**conf, "enable.metrics.push": False})


if __name__ == "__main__":
    main()
