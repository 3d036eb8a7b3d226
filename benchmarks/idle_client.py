"""An idle producer that only pushes its metrics: `python -m benchmarks.idle_client KIND ADDRESS CLIENT_ID on|off`.

It lives until standard input ends.
"""

import sys
import threading
import time
from functools import partial
from typing import Any

OWN_METRICS = 80
"""Metrics of an application that ours registers, to come to about a hundred data points."""


def main() -> None:
    """Says READY when it is connected."""
    kind, address, client_id, push = sys.argv[1:]
    conf = {"bootstrap.servers": address, "client.id": client_id, "enable.metrics.push": push == "on"}
    producer = _ours(conf) if kind == "ours" else _plain(conf)
    producer.produce("t", b"x" * 100)
    producer.flush(30)
    print("READY", flush=True)
    ended = threading.Event()
    threading.Thread(target=_await_end, args=(ended,), daemon=True).start()
    while not ended.wait(1):
        producer.poll(0)


def _await_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def _plain(conf: dict[str, Any]) -> Any:
    from confluent_kafka import Producer  # noqa: PLC0415 - without a line of ours

    return Producer(conf)


def _ours(conf: dict[str, Any]) -> Any:
    from kclient_quota import MetricName, Producer  # noqa: PLC0415 - only where it is measured

    producer = Producer(conf)
    for number in range(OWN_METRICS):
        name = MetricName(f"metric-{number}-avg", "application-metrics", tags=(("node-id", f"node-{number % 3}"),))
        producer.register_metric_for_subscription(name, partial(_changing, number))
    return producer


def _changing(number: int) -> float:
    return time.monotonic() % 97 * number


if __name__ == "__main__":
    main()
