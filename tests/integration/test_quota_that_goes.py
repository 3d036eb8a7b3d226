"""A quota of bytes is taken from, or one of requests laid on, a producer that never pauses: it goes on as plain."""

import time
from collections import Counter
from collections.abc import Iterator

import confluent_kafka
import pytest

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients import limits

SECONDS = 6


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "REFRESH_MS", 500)
        patch.setattr(limits, "MIN_REFRESH_MS", 100)
        yield cluster


def flood(producer, topic, until):
    """Messages delivered by the second, of an application that produces as fast as it may."""
    seconds: Counter[int] = Counter()
    while time.monotonic() < until:
        try:
            producer.produce(topic, b"x" * 300, on_delivery=lambda *_: seconds.update([int(time.monotonic())]))
            producer.poll(0)
        except BufferError:
            producer.poll(0.01)
    return seconds


def test_callers_go_straight_to_librdkafka_again(broker):
    broker.create_topic("removed", 2)
    broker.set_quota(client_id="removed", producer_byte_rate=1_000_000)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "removed", "log_level": 0})
    flood(producer, "removed", time.monotonic() + 2)
    assert not producer._kq_outbox.is_open
    broker.set_quota(client_id="removed", producer_byte_rate=None)
    end = time.monotonic() + SECONDS
    while not producer._kq_outbox.is_open and time.monotonic() < end:
        flood(producer, "removed", min(time.monotonic() + 0.5, end))
    assert producer._kq_outbox.is_open
    assert not producer.flush(20)
    producer.close()


def test_a_quota_of_requests_alone_costs_no_messages(broker):
    """It takes nothing from who makes batches of what piles up meanwhile; learnt as one of bytes it left a tenth."""
    name = "requests"
    broker.create_topic(name, 2)
    broker.set_quota(client_id=name, request_percentage=1.0)
    delivered = {}
    for kind in confluent_kafka.Producer, Producer:
        producer = kind({"bootstrap.servers": broker.bootstrap_servers, "client.id": name, "log_level": 0})
        began = time.monotonic()
        count = 0
        while time.monotonic() < began + SECONDS:
            producer.produce(name, b"x" * 300)
            producer.poll(0)
            count += 1
            time.sleep(0.002)
        assert not producer.flush(60)  # a percent of a busy machine's broker is few requests
        delivered[kind] = count / (time.monotonic() - began)
        producer.close()
    assert delivered[Producer] > 0.7 * delivered[confluent_kafka.Producer]
