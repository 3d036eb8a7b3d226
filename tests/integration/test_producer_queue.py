"""What the send queue makes of batches, and what is lost of it when a process is killed."""

import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients import throttle_log
from kclient_quota.clients.producer.sender.queue_metrics import QueueMetrics
from kclient_quota.testing.proxies import Proxies
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
        producer = made({**conf, "linger.ms": 200})
        until = time.monotonic() + 4
        number = 0
        while time.monotonic() < until:
            producer.produce("orders", b"x" * 100, str(number % 500))
            producer.poll(0)
            number += 1
        assert producer.flush(60) == 0
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
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    with subprocess.Popen([sys.executable, "-c", _KILLED, broker.bootstrap_servers, str(told)]) as child:
        try:
            deadline = time.monotonic() + 60
            while not (told.exists() and int(told.read_bytes() or b"0") > 150):
                assert child.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            # Killed while the broker keeps up: one that a busy machine lets stand still has more of them under way.
            while not _loses_little(child.pid, told, consumer):
                assert time.monotonic() < deadline
        finally:
            os.kill(child.pid, signal.SIGKILL)
            child.wait(60)
    accepted, stored = int(told.read_bytes()), _stored(consumer)
    consumer.close()
    assert accepted - stored <= MOST_LOST
    assert stored <= accepted + 1


MOST_LOST = 51
"""A second of the quota are 50 messages; one more may have been accepted and not told."""


def _stored(consumer: confluent_kafka.Consumer) -> int:
    return int(consumer.get_watermark_offsets(confluent_kafka.TopicPartition("orders", 0), 60)[1])


def _loses_little(pid: int, told: Path, consumer: confluent_kafka.Consumer) -> bool:
    """Whether a process that stands still now would lose no more; otherwise it goes on."""
    os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + 1
    while int(told.read_bytes()) - _stored(consumer) > MOST_LOST:
        if time.monotonic() > until:
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.5)
            return False
        time.sleep(0.01)
    return True


def test_no_more_than_five_requests_are_in_flight_however_far_the_broker_is() -> None:
    with Proxies() as proxies, EmbeddedBroker(topics={"orders": 12}) as broker:
        proxies.stand_before(broker)
        proxies[1].delay(to_broker_ms=200, to_client_ms=200)
        in_flight: list[int] = []

        def told(text: str) -> None:
            in_flight.extend(each["waitresp_cnt"] for each in json.loads(text)["brokers"].values())

        conf = {"client.id": "app", "producer_byte_rate": 100_000, "statistics.interval.ms": 20, "stats_cb": told}
        producer = made({"bootstrap.servers": proxies.bootstrap_servers, **conf})
        until = time.monotonic() + 5
        number = 0
        while time.monotonic() < until:
            producer.produce("orders", b"x" * 200, str(number))
            producer.poll(0)
            number += 1
        assert producer.flush(60) == 0
        producer.close()
    assert 2 <= max(in_flight) <= 5


def test_hundreds_of_topics_far_away_are_not_asked_about_one_by_one() -> None:
    """Whatever waits would wait for all of them; plain confluent_kafka asks for all at once."""
    topics = [f"topic-{number}" for number in range(200)]
    with Proxies() as proxies, EmbeddedBroker(topics=dict.fromkeys(topics, 1)) as broker:
        proxies.stand_before(broker)
        proxies[1].delay(to_broker_ms=20, to_client_ms=20)
        # as many are under way as with plain confluent_kafka, whose answers would be waited for otherwise
        conf = {"client.id": "app", "producer_byte_rate": 1_000_000, "enable.idempotence": False}
        producer = made({"bootstrap.servers": proxies.bootstrap_servers, **conf})
        began = time.monotonic()
        for number in range(400):
            producer.produce(topics[number % 200], b"x" * 100)
        assert producer.flush(60) == 0
        took_s = time.monotonic() - began
        producer.close()
    assert took_s < 4, "200 topics, 40 ms each, are eight seconds"


def test_below_four_fifths_of_the_quota_nothing_waits(broker: EmbeddedBroker) -> None:
    """Beside plain confluent_kafka, at the same time on the same machine: a queue that waits does so for a second."""
    took_s: dict[str, list[float]] = {"ours": [], "plain": []}

    def offer(name: str, producer: Any) -> None:
        at = time.monotonic()
        producer.produce("orders", b"x" * 1_000, on_delivery=lambda *_: took_s[name].append(time.monotonic() - at))
        producer.poll(0)

    conf = {"bootstrap.servers": broker.bootstrap_servers}
    ours = made({**conf, "client.id": "app", "producer_byte_rate": 100_000})
    plain = confluent_kafka.Producer({**conf, "client.id": "plain", "linger.ms": 10, "enable.idempotence": True})
    due = time.monotonic()
    for _ in range(75 * 4):
        offer("ours", ours)
        offer("plain", plain)
        due = max(due + 1 / 75, time.monotonic())
        while (left := due - time.monotonic()) > 0:
            ours.poll(left / 2)
            plain.poll(0)
    assert ours.flush(60) == plain.flush(60) == 0
    ninety = {name: sorted(found)[len(found) * 9 // 10] for name, found in took_s.items()}
    assert ninety["ours"] < ninety["plain"] + 0.25, ninety
    assert ours.metric("quota-queue-time-avg") < 400
    ours.close()
    plain.close()


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_the_log_says_what_one_setting_would_buy(
    broker: EmbeddedBroker, compression: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(throttle_log, "WORTH_AFTER_MS", 500)
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "compression.type": compression}
    producer = made({**conf, "producer_byte_rate": 30_000})
    chance = random.Random(5)
    until = time.monotonic() + 60
    sent = 0

    def said() -> list[logging.LogRecord]:
        return [record for record in caplog.records if "could carry more" in record.getMessage()]

    while not said() and (sent < 3_000 or compression == "none") and time.monotonic() < until:
        order = {"order": chance.randrange(10**9), "customer": {"city": "Berlin", "country": "DE"}, "paid": True}
        producer.produce("orders", json.dumps(order))
        producer.poll(0)
        sent += 1
    producer.purge()
    producer.close()
    if compression == "none":
        (record,) = said()
        assert vars(record)["setting"].startswith("compression.type=")
        assert vars(record)["times"] > 1.5
        assert "orders compress" in record.getMessage()
    else:
        assert not [record for record in said() if "compression.type" in vars(record)["setting"]]
