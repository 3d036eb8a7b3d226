"""Programs that read a topic under a tracing agent, each in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka

from kclient_quota.broker import EmbeddedBroker

MESSAGES = 60


@contextmanager
def filled() -> Iterator[str]:
    """The address of a broker whose topic "orders" has MESSAGES messages in one partition."""
    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(MESSAGES):
            producer.produce("orders", b"x" * 500, key=str(number))
        assert producer.flush(60) == 0
        yield cluster.bootstrap_servers


def printed(script: str, *told: object) -> Any:
    """What a program prints that is told this, and MESSAGES, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps([*told, MESSAGES])],
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout)
