"""Kafka's TelemetryMetricNamingConvention: its own tests (case 89) and names captured from its jars."""

import pytest
from kclient_telemetry.metric import MetricName
from kclient_telemetry.naming import point_of, tag_key, telemetry_attributes, telemetry_name

CASE_89 = [
    ("grouP-name-AB_&", "test-Name-1.$", "org.apache.kafka.group.name.ab_&.test.name.1.$"),
    ("group-metrics-metrics", "name-metrics", "org.apache.kafka.group.name.metrics"),
    ("group-1A", "", "org.apache.kafka.group.1a."),
    ("", "name", "org.apache.kafka..name"),
]

CAPTURED = [
    (
        "consumer-fetch-manager-metrics",
        "fetch-throttle-time-avg",
        "org.apache.kafka.consumer.fetch.manager.fetch.throttle.time.avg",
    ),
    ("kafka-metrics-count", "count", "org.apache.kafka.kafka.count.count"),
    ("my.app.metrics.group-metrics", "my-metric", "org.apache.kafka.my.app.group.my.metric"),
    ("producer-topic-metrics", "byte-rate", "org.apache.kafka.producer.topic.byte.rate"),
    ("stream-metrics", "Foo_Bar-Baz", "org.apache.kafka.stream.foo_bar.baz"),
    ("metrics", "x", "org.apache.kafka.metrics.x"),
    ("my_metrics", "x", "org.apache.kafka.my_metrics.x"),
    ("a-metricsfoo", "x", "org.apache.kafka.afoo.x"),
]

STANDARD = [
    ("producer-metrics", "connection-creation-rate", "producer.connection.creation.rate"),
    ("producer-metrics", "connection-creation-total", "producer.connection.creation.total"),
    ("producer-node-metrics", "request-latency-avg", "producer.node.request.latency.avg"),
    ("producer-node-metrics", "request-latency-max", "producer.node.request.latency.max"),
    ("producer-metrics", "produce-throttle-time-avg", "producer.produce.throttle.time.avg"),
    ("producer-metrics", "produce-throttle-time-max", "producer.produce.throttle.time.max"),
    ("producer-metrics", "record-queue-time-avg", "producer.record.queue.time.avg"),
    ("producer-metrics", "record-queue-time-max", "producer.record.queue.time.max"),
    ("consumer-metrics", "connection-creation-rate", "consumer.connection.creation.rate"),
    ("consumer-metrics", "connection-creation-total", "consumer.connection.creation.total"),
    ("consumer-node-metrics", "request-latency-avg", "consumer.node.request.latency.avg"),
    ("consumer-node-metrics", "request-latency-max", "consumer.node.request.latency.max"),
    ("consumer-metrics", "poll-idle-ratio-avg", "consumer.poll.idle.ratio.avg"),
    ("consumer-coordinator-metrics", "commit-latency-avg", "consumer.coordinator.commit.latency.avg"),
    ("consumer-coordinator-metrics", "commit-latency-max", "consumer.coordinator.commit.latency.max"),
    ("consumer-coordinator-metrics", "assigned-partitions", "consumer.coordinator.assigned.partitions"),
    ("consumer-coordinator-metrics", "rebalance-latency-avg", "consumer.coordinator.rebalance.latency.avg"),
    ("consumer-coordinator-metrics", "rebalance-latency-max", "consumer.coordinator.rebalance.latency.max"),
    ("consumer-coordinator-metrics", "rebalance-latency-total", "consumer.coordinator.rebalance.latency.total"),
    ("consumer-fetch-manager-metrics", "fetch-latency-avg", "consumer.fetch.manager.fetch.latency.avg"),
    ("consumer-fetch-manager-metrics", "fetch-latency-max", "consumer.fetch.manager.fetch.latency.max"),
]


@pytest.mark.parametrize(("group", "name", "expected"), CASE_89 + CAPTURED)
def test_case_89_names_are_kafkas(group, name, expected):
    assert telemetry_name(group, name) == expected


@pytest.mark.parametrize(("group", "name", "expected"), STANDARD)
def test_case_89_standard_metrics(group, name, expected):
    assert telemetry_name(group, name) == f"org.apache.kafka.{expected}"


def test_case_89_tag_keys_are_kafkas():
    assert tag_key("tag1-Ab-2_(") == "tag1_ab_2_("
    assert tag_key("tag2-HELLO.@") == "tag2_hello.@"


def test_client_id_is_left_to_the_receiver_and_values_stay_untouched():
    assert telemetry_attributes([("client-id", "c"), ("Node-Id", "node-1"), ("Topic", "A-b")]) == (
        ("node_id", "node-1"),
        ("topic", "A-b"),
    )


def test_a_kafka_metric_becomes_a_point():
    point = point_of(MetricName("byte-rate", "producer-topic-metrics", tags=(("client-id", "c"), ("topic", "t"))), 1.5)
    assert point.key.name == "org.apache.kafka.producer.topic.byte.rate"
    assert point.key.attributes == (("topic", "t"),)
    assert point.value == 1.5


def test_metric_names_are_equal_whatever_their_description():
    one = MetricName("a", "g", (("x", "1"),), "words")
    assert one == MetricName("a", "g", (("x", "1"),), "other words")
    assert hash(one) == hash(MetricName("a", "g", (("x", "1"),)))
    assert one != MetricName("a", "g", (("x", "2"),), "words")
    assert one != "a"
    assert (one.tag("x"), one.tag("y")) == ("1", None)
