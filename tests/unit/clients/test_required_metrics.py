"""librdkafka's statistics as the metrics that KIP-714 requires."""

from pathlib import Path

import pytest
from kclient_telemetry.metric import MetricKind
from kclient_telemetry.naming import point_of, telemetry_name
from kclient_telemetry.otlp import parse

from kclient_quota.clients.telemetry.required_metrics import RequiredMetrics
from kclient_quota.metrics import CONSUMER, PRODUCER, MetricName

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
ELSEWHERE = {
    "producer.produce.throttle.time.avg",
    "producer.produce.throttle.time.max",
    "consumer.poll.idle.ratio.avg",
}
"""Of the clients' own `metrics()`."""
UNTOLD = {PRODUCER: set(), CONSUMER: {f"consumer.fetch.manager.fetch.latency.{each}" for each in ("avg", "max")}}


def window(count=0, total_us=0, longest_us=0):
    return {"cnt": count, "sum": total_us, "max": longest_us, "min": 0, "avg": 0}


def broker(name="b:9092/1", node=1, connects=1, rtt=None, queue=None, **counters):
    entry = {"name": name, "nodename": name.partition("/")[0], "nodeid": node, "connects": connects}
    return {**entry, "rtt": rtt or window(), "int_latency": queue or window(), **counters}


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
def test_every_required_metric_is_pushed_that_librdkafka_tells(kind):
    metrics = RequiredMetrics(kind, "c")
    group = {"assignment_size": 3, "rebalance_cnt": 1}
    metrics.on_statistics(statistics(broker(rtt=window(2, 3_000, 2_000), queue=window(1, 1_000, 1_000)), cgrp=group), 0)
    metrics.on_commit(5, 0)
    metrics.on_rebalance(7, 0)
    assert REQUIRED[kind] - pushed(metrics) - ELSEWHERE == UNTOLD[kind]


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


METERS = ("outgoing-byte", "incoming-byte", "request")


def test_bytes_and_requests_per_node_and_together_as_java_names_them():
    metrics = RequiredMetrics(PRODUCER, "c")
    for second in range(1, 31):
        one = broker(tx=second, txbytes=1_000 * second, rxbytes=50 * second)
        two = broker("c:1/2", 2, tx=2 * second, txbytes=500 * second, rxbytes=10 * second)
        metrics.on_statistics(statistics(one, two), second * 1_000)
    found = values(metrics, 30_000)
    for node, out, incoming, requests in ((1, 1_000, 50, 1), (2, 500, 10, 2)):
        key = ("producer-node-metrics", f"node-{node}")
        assert found["outgoing-byte-total", *key] == 30 * out
        assert found["incoming-byte-total", *key] == 30 * incoming
        assert found["request-total", *key] == 30 * requests
        # Kafka's Rate takes at least one whole window for elapsed: 30 s and what has passed since.
        assert found["outgoing-byte-rate", *key] == pytest.approx(out * 30 / 59)
    assert found["outgoing-byte-total", "producer-metrics", None] == 45_000
    assert found["request-total", "producer-metrics", None] == 90


def test_what_happened_before_anybody_subscribed_is_in_the_totals_not_in_the_rates():
    metrics = RequiredMetrics(CONSUMER, "c")
    metrics.on_statistics(statistics(broker(rxbytes=3_600_000, connects=7), age=3_600_000_000), 0)
    found = values(metrics)
    assert found["incoming-byte-total", "consumer-node-metrics", "node-1"] == 3_600_000
    assert found["incoming-byte-rate", "consumer-node-metrics", "node-1"] == 0
    assert found["connection-creation-total", "consumer-metrics", None] == 7
    assert found["connection-creation-rate", "consumer-metrics", None] == 0
    metrics.on_statistics(statistics(broker(rxbytes=3_601_000, connects=7)), 1_000)
    assert values(metrics, 1_000)["incoming-byte-rate", "consumer-node-metrics", "node-1"] > 0
    metrics.on_statistics(statistics(broker(rxbytes=9_000_000, connects=7)), 200_000)
    assert values(metrics, 200_000)["incoming-byte-rate", "consumer-node-metrics", "node-1"] == 0


def test_connections_to_one_broker_are_counted_together():
    metrics = RequiredMetrics(CONSUMER, "c")
    found_by = broker("b:9092/bootstrap", -1, txbytes=100)
    coordinator = {**broker("GroupCoordinator", 1, txbytes=10), "nodename": "b:9092"}
    metrics.on_statistics(statistics(found_by, broker(txbytes=1), coordinator), 0)
    found = values(metrics)
    assert found["outgoing-byte-total", "consumer-node-metrics", "node-1"] == 111
    assert found["outgoing-byte-total", "consumer-metrics", None] == 111


PAYLOADS = Path(__file__).parents[1] / "telemetry" / "payloads"


def shapes(metrics):
    """Name -> (kind, attribute names), as pushed."""
    points = [point_of(name, value) for name, value in metrics.gauges(0)]
    points += [point_of(name, value, MetricKind.SUM) for name, value in metrics.sums()]
    return {point.key.name: (point.kind.value, [key for key, _ in point.key.attributes]) for point in points}


@pytest.mark.parametrize("kind", [PRODUCER, CONSUMER])
def test_names_kinds_and_attributes_are_those_of_a_recorded_push_of_javas_client(kind):
    theirs = {}
    for resource in parse((PAYLOADS / f"java-{kind}-0.bin").read_bytes()).resource_metrics:
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            shape = metric.WhichOneof("data")
            point = getattr(metric, shape).data_points[0]
            theirs[metric.name] = (shape, [item.key for item in point.attributes])
    metrics = RequiredMetrics(kind, "c")
    metrics.on_statistics(statistics(broker(tx=1, txbytes=10, rxbytes=5, rtt=window(1, 5, 5))), 0)
    ours = shapes(metrics)
    checked = {name for name in ours if any(meter.replace("-", ".") + "." in name for meter in METERS)}
    checked = {name for name in checked if not name.endswith((".avg", ".max"))}
    assert len(checked) == 2 * 2 * len(METERS)
    assert {name: ours[name] for name in checked} == {name: theirs[name] for name in checked}


def test_nothing_is_invented_before_the_first_event():
    assert set(values(RequiredMetrics(CONSUMER, "c"))) == {
        ("connection-creation-rate", "consumer-metrics", None),
        ("connection-creation-total", "consumer-metrics", None),
        *((f"{name}-{kind}", "consumer-metrics", None) for name in METERS for kind in ("rate", "total")),
        ("rebalance-latency-total", "consumer-coordinator-metrics", None),
        ("rebalance-total", "consumer-coordinator-metrics", None),
    }


def test_names_carry_the_client():
    name, _ = next(iter(RequiredMetrics(PRODUCER, "orders").sums()))
    assert name == MetricName("connection-creation-total", "producer-metrics", (("client-id", "orders"),))


def own(name, value):
    return {MetricName(f"quota-queue-time-{name}", "producer-metrics", (("client-id", "c"),)): value}


def test_the_time_in_a_producers_queue_is_that_of_both_queues():
    """Ours before librdkafka's, in which messages wait only once they may be sent."""
    metrics = RequiredMetrics(PRODUCER, "c")
    # what has waited before anybody wanted to know is in librdkafka's windows of then
    metrics.on_statistics(statistics(broker()), 0, {**own("total", 5_000), **own("max", 900)})
    of_lane = {MetricName("quota-queue-time-total", "producer-metrics", (("client-id", "c"), ("lane", "a"))): 9_000}
    told = {**own("total", 5_800), **own("max", 700), **of_lane}
    metrics.on_statistics(statistics(broker(queue=window(8, 40_000, 30_000)), broker("c:1/2", 2)), 1_000, told)
    found = values(metrics, 1_000)
    assert found["record-queue-time-avg", "producer-metrics", None] == (800 + 40) / 8
    assert found["record-queue-time-max", "producer-metrics", None] == 700 + 30


def test_what_has_waited_counts_when_it_gets_into_its_batch():
    metrics = RequiredMetrics(PRODUCER, "c")
    metrics.on_statistics(statistics(broker()), 0, own("total", 0))
    metrics.on_statistics(statistics(broker()), 1_000, own("total", 600))
    metrics.on_statistics(statistics(broker(queue=window(6, 6_000, 1_000))), 2_000, own("total", 600))
    assert values(metrics, 2_000)["record-queue-time-avg", "producer-metrics", None] == 101


def test_what_has_waited_while_nobody_wanted_to_know_is_left_out():
    metrics = RequiredMetrics(PRODUCER, "c")
    metrics.on_statistics(statistics(broker()), 0, own("total", 0))
    metrics.on_statistics(statistics(broker(queue=window(1, 2_000, 2_000))), 100_000, own("total", 50_000))
    assert values(metrics, 100_000)["record-queue-time-avg", "producer-metrics", None] == 2
