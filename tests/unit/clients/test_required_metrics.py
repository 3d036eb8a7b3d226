"""librdkafka's statistics as the metrics that KIP-714 requires."""

import pytest

from kclient_quota.clients.required_metrics import UNKNOWN, RequiredMetrics
from kclient_quota.metrics import CONSUMER, PRODUCER, MetricName
from telemetry.naming import telemetry_name

# The lists of KIP-714, without `org.apache.kafka.`
REQUIRED = {
    PRODUCER: {
        "producer.connection.creation.rate",
        "producer.connection.creation.total",
        "producer.node.request.latency.avg",
        "producer.node.request.latency.max",
        "producer.produce.throttle.time.avg",
        "producer.produce.throttle.time.max",
        "producer.record.queue.time.avg",
        "producer.record.queue.time.max",
    },
    CONSUMER: {
        "consumer.connection.creation.rate",
        "consumer.connection.creation.total",
        "consumer.node.request.latency.avg",
        "consumer.node.request.latency.max",
        "consumer.poll.idle.ratio.avg",
        "consumer.coordinator.commit.latency.avg",
        "consumer.coordinator.commit.latency.max",
        "consumer.coordinator.assigned.partitions",
        "consumer.coordinator.rebalance.latency.avg",
        "consumer.coordinator.rebalance.latency.max",
        "consumer.coordinator.rebalance.latency.total",
        "consumer.fetch.manager.fetch.latency.avg",
        "consumer.fetch.manager.fetch.latency.max",
    },
}
ELSEWHERE = {"producer.produce.throttle.time.avg", "producer.produce.throttle.time.max"}


def window(count=0, total_us=0, longest_us=0):
    return {"cnt": count, "sum": total_us, "max": longest_us, "min": 0, "avg": 0}


def broker(name="b:9092/1", node=1, connects=1, rtt=None, queue=None):
    entry = {"name": name, "nodeid": node, "connects": connects, "rtt": rtt or window()}
    return {**entry, "int_latency": queue or window()}


def statistics(*brokers, **more):
    return {"brokers": {entry["name"]: entry for entry in brokers}, **more}


def values(metrics, now_ms=0):
    return {
        (name.name, name.group, name.tag("node-id")): value
        for name, value in [*metrics.gauges(now_ms), *metrics.sums()]
    }


def pushed(metrics, now_ms=0):
    names = [name for name, _ in [*metrics.gauges(now_ms), *metrics.sums()]]
    return {telemetry_name(name.group, name.name).removeprefix("org.apache.kafka.") for name in names}


@pytest.mark.parametrize("kind", [PRODUCER, CONSUMER])
def test_every_required_metric_is_pushed_or_named_as_unknown(kind):
    metrics = RequiredMetrics(kind, "c")
    group = {"assignment_size": 3, "rebalance_cnt": 1}
    metrics.on_statistics(statistics(broker(rtt=window(2, 3_000, 2_000), queue=window(1, 1_000, 1_000)), cgrp=group), 0)
    metrics.on_commit(5, 0)
    metrics.on_rebalance(7, 0)
    assert REQUIRED[kind] - pushed(metrics) - ELSEWHERE == {name for name in UNKNOWN if name.startswith(kind)}


def test_round_trips_of_several_events_are_averaged_per_node_and_together():
    metrics = RequiredMetrics(PRODUCER, "c")
    metrics.on_statistics(statistics(broker(rtt=window(3, 6_000, 4_000)), broker("c:1/2", 2)), 0)
    metrics.on_statistics(statistics(broker(rtt=window(1, 10_000, 10_000))), 1_000)
    found = values(metrics, 1_000)
    assert found["request-latency-avg", "producer-node-metrics", "node-1"] == 4.0
    assert found["request-latency-max", "producer-node-metrics", "node-1"] == 10.0
    assert found["request-latency-avg", "producer-metrics", None] == 4.0
    assert ("request-latency-avg", "producer-node-metrics", "node-2") not in found


def test_what_is_older_than_the_window_is_forgotten():
    metrics = RequiredMetrics(PRODUCER, "c")
    metrics.on_statistics(statistics(broker(rtt=window(1, 9_000, 9_000))), 0)
    assert ("request-latency-max", "producer-metrics", None) in values(metrics, 59_000)
    assert ("request-latency-max", "producer-metrics", None) not in values(metrics, 60_001)


def test_connections_are_counted_over_brokers_that_come_back_with_a_new_count():
    metrics = RequiredMetrics(CONSUMER, "c")
    for connects in (2, 3, 1):
        metrics.on_statistics(statistics(broker(connects=connects), broker("boot:1/bootstrap", -1, 1)), 0)
    assert values(metrics)["connection-creation-total", "consumer-metrics", None] == 2 + 1 + 1 + 1


def test_the_largest_lag_of_any_partition():
    def topic(*lags):
        return {"partitions": {str(index): {"consumer_lag": lag} for index, lag in enumerate(lags)}}

    metrics = RequiredMetrics(CONSUMER, "c")
    metrics.on_statistics(statistics(topics={"a": topic(-1, 4), "b": topic(9)}), 0)
    assert values(metrics)["records-lag-max", "consumer-fetch-manager-metrics", None] == 9
    metrics.on_statistics(statistics(topics={"a": topic(-1)}), 0)
    assert ("records-lag-max", "consumer-fetch-manager-metrics", None) not in values(metrics)


def test_nothing_is_invented_before_the_first_event():
    assert set(values(RequiredMetrics(CONSUMER, "c"))) == {
        ("connection-creation-rate", "consumer-metrics", None),
        ("connection-creation-total", "consumer-metrics", None),
        ("rebalance-latency-total", "consumer-coordinator-metrics", None),
        ("rebalance-total", "consumer-coordinator-metrics", None),
    }


def test_names_carry_the_client():
    name, _ = next(iter(RequiredMetrics(PRODUCER, "orders").sums()))
    assert name == MetricName("connection-creation-total", "producer-metrics", (("client-id", "orders"),))
