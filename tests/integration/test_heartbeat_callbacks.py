"""A consumer's heartbeat from within its own callbacks: confluent_kafka aborts the process when one of them polls."""

import subprocess
import sys

SCENE = """
import threading, time
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.consumer import Consumer
from kclient_quota.clients.producer import Producer

with EmbeddedBroker(topics={"orders": 1}) as broker:
    conf = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "statistics.interval.ms": 50}
    said = []

    def beat(consumer, _what):
        said.append(1)
        for _ in range(4):
            time.sleep(0.25)
            consumer.keep_alive()

    consumer = Consumer({**conf, "stats_cb": lambda _: None, "consumer_byte_rate": %s})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers}, heartbeat=consumer)

    def flush(consumer, partitions):
        beat(consumer, partitions)
        producer.flush(1)

    consumer.subscribe(["orders"], on_assign=flush, on_revoke=flush)
    deadline = time.monotonic() + 60
    while not said and time.monotonic() < deadline:
        consumer.consume(100, 2)
    consumer.consume(100, 0.5)
    consumer.close()
    producer.close()
    print("rebalances:", len(said))
"""


def test_a_heartbeat_within_a_rebalance_callback_polls_nothing() -> None:
    for rate in ("None", "100_000"):
        done = subprocess.run(
            [sys.executable, "-c", SCENE % rate], capture_output=True, text=True, timeout=85, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "rebalances: 2" in done.stdout
