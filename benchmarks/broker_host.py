"""Holds one broker in a process of its own until standard input ends: the embedded one, or librdkafka's mock."""

import json
import sys
import time

from confluent_kafka import Producer

TOPIC = "bench"
PARTITIONS = 4


def main() -> None:
    """Prints start-up time and address as one JSON line."""
    serve = {"embedded": _embedded, "mock": _mock}[sys.argv[1]]
    serve()


def _ready(begin: float, bootstrap: str) -> None:
    print(json.dumps({"start_ms": (time.perf_counter() - begin) * 1000, "bootstrap": bootstrap}), flush=True)
    sys.stdin.read()


def _embedded() -> None:
    from kclient_quota.broker import EmbeddedBroker  # noqa: PLC0415 - the mock's process must not load it

    begin = time.perf_counter()
    with EmbeddedBroker(topics={TOPIC: PARTITIONS}) as cluster:
        _ready(begin, cluster.bootstrap_servers)


def _mock() -> None:
    begin = time.perf_counter()
    owner = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    broker = next(iter(owner.list_topics(timeout=10).brokers.values()))
    _ready(begin, f"{broker.host}:{broker.port}")


if __name__ == "__main__":
    main()
