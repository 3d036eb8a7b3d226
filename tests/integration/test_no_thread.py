"""No thread can be started for a producer's sender, as in a container with few of them: its calls do the work."""

import logging
from collections.abc import Iterator

import pytest

from kclient_quota import Producer
from kclient_quota.clients.producer import producer as module
from kclient_quota.testing.kafka_broker import KafkaBroker

MESSAGES = 50


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as cluster:
        cluster.set_quota(client_id="limited", producer_byte_rate=100_000)
        yield cluster


@pytest.mark.parametrize("fails", [1, 3, 1_000_000])
def test_everything_is_taken_once_delivered_and_reported(broker, monkeypatch, caplog, fails):
    start, starts, reports = module.start_new_thread, [], []

    def refuse(*args):
        starts.append(args)
        if len(starts) <= fails:
            raise RuntimeError("can't start new thread")
        return start(*args)

    monkeypatch.setattr(module, "start_new_thread", refuse)
    topic = f"orders-{fails}"
    broker.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "limited", "log_level": 0})
    with caplog.at_level(logging.WARNING, logger="kclient_quota"):
        for number in range(MESSAGES):
            producer.produce(topic, b"%d" % number + b"x" * 600, on_delivery=lambda error, _: reports.append(error))
            producer.poll(0)
        assert not producer.flush(20)
    assert producer.close()
    assert reports == [None] * MESSAGES
    assert [int(record.value.rstrip(b"x")) for record in broker.records(topic)] == list(range(MESSAGES))
    assert [record.message for record in caplog.records if "No thread" in record.message] == [
        "No thread can be started for a producer's sender: can't start new thread"
    ]
