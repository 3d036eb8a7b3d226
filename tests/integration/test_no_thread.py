"""No thread can be started for a producer's sender, as in a container with few of them: its calls do the work."""

import logging
import threading
from collections.abc import Iterator

import pytest

from kclient_quota import Consumer, Producer
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


def refuse_all(_thread):
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("client_id", ["limited", "free"])
def test_clients_are_made_and_do_without_the_threads_that_they_can_do_without(broker, monkeypatch, caplog, client_id):
    """Making one raised, where confluent_kafka's own threads could still be started."""
    monkeypatch.setattr(threading.Thread, "start", refuse_all)
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": client_id, "log_level": 0}
    topic = f"without-{client_id}"
    broker.create_topic(topic, 1)
    with caplog.at_level(logging.WARNING, logger="kclient_quota"):
        producer = Producer(conf)
        producer.produce(topic, b"x")
        assert not producer.flush(20)
        assert producer.close()
        consumer = Consumer({**conf, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        assert consumer.poll(20).value() == b"x"
        consumer.close()
    told = {record.message for record in caplog.records if "No thread" in record.message}
    assert told == {
        f"No thread can be started to {purpose}: can't start new thread"
        for purpose in (
            "ask for a client's quota again",
            "push a client's telemetry",
            "see whether a consumer polls in time",
        )
    }
