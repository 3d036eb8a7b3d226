"""What the send queue makes of batches, and what is lost of it when a process is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.producer.queue_metrics import QueueMetrics
from tests.integration.made_producers import made

PRODUCE = 0


def test_each_grant_leaves_as_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    grants: list[int] = []
    on_sent = QueueMetrics.on_sent

    def counted(self: QueueMetrics, sent: Any, now_ms: int) -> None:
        grants.append(len(sent.messages))
        on_sent(self, sent, now_ms)

    monkeypatch.setattr(QueueMetrics, "on_sent", counted)
    with EmbeddedBroker(topics={"orders": 12}) as broker:
        conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "producer_byte_rate": 50_000}
        producer = made({**conf, "linger.ms": 50})
        until = time.monotonic() + 4
        number = 0
        while time.monotonic() < until:
            producer.produce("orders", b"x" * 100, str(number % 500))
            producer.poll(0)
            number += 1
        assert producer.flush(20) == 0
        requests = [request for request in broker.requests if request.api_key == PRODUCE]
        producer.close()
    assert sum(grants) == number
    # A thread that is not given a processor for linger.ms, while it hands a grant over, makes two batches of it; while
    # librdkafka's is given none, two grants of a partition become one batch.
    assert len(requests) <= 1.2 * len(grants) + 3
    # By turns a batch holds what came for its partition within a second, about, not what a tenth of it brings.
    assert number / len(requests) > 8


_KILLED = """
import os, sys
from kclient_quota import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "client.id": "app", "producer_byte_rate": 50_000})
told = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
number = 0
while True:
    producer.produce("orders", b"%06d" % number + b"x" * 994)
    number += 1
    os.pwrite(told, b"%09d" % number, 0)
    producer.poll(0)
"""


def test_a_process_that_is_killed_loses_no_more_than_the_delay_allows(broker: EmbeddedBroker, tmp_path: Path) -> None:
    told = tmp_path / "told"
    with subprocess.Popen([sys.executable, "-c", _KILLED, broker.bootstrap_servers, str(told)]) as child:
        try:
            deadline = time.monotonic() + 60
            while not (told.exists() and int(told.read_bytes() or b"0") > 150):
                assert child.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            os.kill(child.pid, signal.SIGKILL)
            child.wait(10)
    accepted = int(told.read_bytes())
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    stored = consumer.get_watermark_offsets(confluent_kafka.TopicPartition("orders", 0), 10)[1]
    consumer.close()
    # A second of the quota are 50 messages; one more may have been accepted and not told.
    assert accepted - stored <= 51
    assert stored <= accepted + 1
