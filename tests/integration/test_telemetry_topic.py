"""Client telemetry into a topic: pushes of one cluster's clients become records of another's."""

import logging
import time

import confluent_kafka
import pytest
from kclient_telemetry.messages import uuid_text
from kclient_telemetry.otlp import parse
from kclient_telemetry.receiver.queued import QueuedSink

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.telemetry_topic import TopicWriter


@pytest.fixture
def archive():
    with EmbeddedBroker(topics={"client-metrics": 1}) as cluster:
        yield cluster


def read_all(cluster, count):
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["client-metrics"])
    messages = consumer.consume(count, 60)
    consumer.close()
    return messages


def test_a_push_is_a_record(archive):
    writer = TopicWriter({"bootstrap.servers": archive.bootstrap_servers}, "client-metrics")
    with EmbeddedBroker(topics={"t": 1}, exporters=[QueuedSink(writer)]) as cluster:
        cluster.set_client_metrics("all", interval_ms=100)
        with Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "shop"}) as producer:
            while len(cluster.pushes) < 3:
                producer.poll(0.02)
            mine = uuid_text(producer.client_instance_id(0))
        deadline = time.monotonic() + 60
        while not (pushes := cluster.pushes)[-1].terminating:  # its client does not wait for it for ever
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert (writer.counters.produced, writer.counters.delivered, writer.counters.failed) == (len(pushes),) * 2 + (0,)
    records = read_all(archive, len(pushes))
    assert [record.key().decode() for record in records] == [mine] * len(pushes)
    who = {"client_id": b"shop", "principal": b"User:ANONYMOUS", "push_interval_ms": b"100"}
    assert [dict(record.headers()) for record in records] == [
        *[who] * (len(pushes) - 1),
        {**who, "terminating": b"true"},
    ]
    for record, push in zip(records, pushes, strict=True):
        resources = parse(record.value()).resource_metrics
        assert {m.name for r in resources for s in r.scope_metrics for m in s.metrics} == push.metric_names()
        attributes = {a.key: a.value.string_value for r in resources for a in r.resource.attributes}
        assert attributes["client_instance_id"] == mine


def test_a_topic_that_is_not_there_is_counted_and_told_once(archive, caplog):
    strict = {"allow.auto.create.topics": False, "message.timeout.ms": 500, "enable.idempotence": False}
    writer = TopicWriter({"bootstrap.servers": archive.bootstrap_servers, **strict}, "nowhere")
    sink = QueuedSink(writer)
    with EmbeddedBroker(properties={"auto.create.topics.enable": "false"}, exporters=[sink]) as cluster:
        writer._conf["bootstrap.servers"] = cluster.bootstrap_servers
        cluster.set_client_metrics("all", interval_ms=100)
        caplog.set_level(logging.WARNING, "kclient_quota")
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            while len(cluster.pushes) < 3 or not writer.counters.failed:
                producer.poll(0.05)
    assert writer.counters.delivered == 0
    assert sum("was not delivered to nowhere" in record.getMessage() for record in caplog.records) == 1
