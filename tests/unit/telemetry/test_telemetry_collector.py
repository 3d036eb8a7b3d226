"""Sources, registered metrics and delta state (cases 90, 91; KIP-1076)."""

import logging

import pytest
from kclient_telemetry.client.collector import Collector
from kclient_telemetry.client.subscription import EVERYTHING, Selection, selection_of
from kclient_telemetry.metric import HistogramValue, MetricKind, MetricName, Point, PointKey
from kclient_telemetry.naming import resource_labels

EVENTS = MetricName("events", "app-metrics")
SECOND = 1_000


def counter(collector, at_ms=SECOND):
    total = [0]
    collector.register_metric_for_subscription(EVENTS, lambda: total[0], MetricKind.SUM, unix_ms=at_ms)
    return total


def collect(collector, *, delta=True, at_ms=0, selection=EVERYTHING):
    return collector.collect(selection, delta=delta, unix_ms=at_ms)


def summary(point):
    return point.value, point.start_unix_ms, point.time_unix_ms


@pytest.mark.parametrize(("delta", "second"), [(False, (7, 1_000, 121_000)), (True, (5, 61_000, 121_000))])
def test_case_90_sums_in_both_temporalities(delta, second):
    collector = Collector()
    total = counter(collector)
    total[0] = 2
    first = collect(collector, delta=delta, at_ms=61_000)
    assert [summary(point) for point in first] == [(2, 1_000, 61_000)]
    collector.acknowledge(first)
    total[0] = 7
    assert [summary(point) for point in collect(collector, delta=delta, at_ms=121_000)] == [second]


def test_what_a_failed_push_carried_is_in_the_next_one():
    collector = Collector()
    total = counter(collector)
    total[0] = 2
    collect(collector, at_ms=2_000)
    total[0] = 7
    assert [summary(point) for point in collect(collector, at_ms=3_000)] == [(7, 1_000, 3_000)]


def test_a_point_that_did_not_fit_reaches_back_to_its_last_push():
    collector = Collector()
    total = counter(collector)
    total[0] = 2
    collector.acknowledge(collect(collector, at_ms=2_000))
    total[0] = 3
    collector.acknowledge([])
    collect(collector, at_ms=3_000)
    total[0] = 9
    assert [summary(point) for point in collect(collector, at_ms=4_000)] == [(7, 2_000, 4_000)]


@pytest.mark.parametrize("delta", [True, False])
def test_a_counter_that_began_anew(delta):
    collector = Collector()
    total = counter(collector)
    total[0] = 10
    collector.acknowledge(collect(collector, delta=delta, at_ms=2_000))
    total[0] = 4
    restarted = collect(collector, delta=delta, at_ms=3_000)
    assert [summary(point) for point in restarted] == [(4, 2_000, 3_000)]
    collector.acknowledge(restarted)
    total[0] = 5
    expected = (1, 3_000, 4_000) if delta else (5, 2_000, 4_000)
    assert [summary(point) for point in collect(collector, delta=delta, at_ms=4_000)] == [expected]


def test_a_change_of_temporality_begins_anew():
    collector = Collector()
    total = counter(collector)
    total[0] = 2
    collector.acknowledge(collect(collector, delta=True, at_ms=2_000))
    collector.reset()
    total[0] = 3
    assert [summary(point) for point in collect(collector, delta=True, at_ms=3_000)] == [(3, 1_000, 3_000)]


def test_histograms_are_subtracted_bucket_by_bucket():
    collector = Collector()
    value = [HistogramValue((1.0,), (1, 2), 5.0)]
    collector.register_metric_for_subscription(EVENTS, lambda: value[0], MetricKind.HISTOGRAM, unix_ms=SECOND)
    collector.acknowledge(collect(collector, at_ms=2_000))
    value[0] = HistogramValue((1.0,), (1, 5), 11.0)
    (point,) = collect(collector, at_ms=3_000)
    assert summary(point) == (HistogramValue((1.0,), (0, 3), 6.0), 2_000, 3_000)
    value[0] = HistogramValue((2.0,), (1, 5), 11.0)
    (point,) = collect(collector, at_ms=4_000)
    assert point.value == value[0]


def test_gauges_have_no_start_and_no_temporality():
    collector = Collector()
    collector.register_metric_for_subscription(EVENTS, lambda: 3.5, unix_ms=0)
    (point,) = collect(collector, at_ms=9)
    assert summary(point) == (3.5, None, 9)
    assert not point.delta
    collector.acknowledge([point])
    assert summary(*collect(collector, at_ms=10)) == (3.5, None, 10)


def test_registering_again_replaces_and_unregistering_removes():
    collector = Collector()
    counter(collector)[0] = 5
    collector.acknowledge(collect(collector, at_ms=2_000))
    counter(collector, at_ms=3_000)[0] = 6
    assert [summary(point) for point in collect(collector, at_ms=4_000)] == [(6, 3_000, 4_000)]
    collector.unregister_metric_from_subscription(EVENTS)
    collector.unregister_metric_from_subscription(EVENTS)
    assert collect(collector) == []


def test_an_application_cannot_replace_a_metric_of_the_client():
    collector = Collector()
    key = PointKey("org.apache.kafka.app.events")
    collector.add_source(lambda: [Point(key, MetricKind.GAUGE, 1)])
    collector.register_metric_for_subscription(EVENTS, lambda: 2, unix_ms=0)
    assert [point.value for point in collect(collector)] == [1]


def test_nor_touch_what_has_been_pushed_of_it():
    collector = Collector()
    total = [10]
    collector.add_source(lambda: [Point(PointKey("org.apache.kafka.app.events"), MetricKind.SUM, total[0])])
    collector.acknowledge(collect(collector, at_ms=1))
    counter(collector, at_ms=2)
    total[0] = 11
    points = collect(collector, at_ms=3)
    assert [summary(point) for point in points] == [(1, 1, 3)]
    collector.acknowledge(points)
    collector.unregister_metric_from_subscription(EVENTS)
    total[0] = 13
    assert [summary(point) for point in collect(collector, at_ms=4)] == [(2, 3, 4)]


def test_values_that_are_no_numbers_are_left_out():
    collector = Collector()
    for number, value in enumerate(["4.3.1", None, 7]):
        collector.register_metric_for_subscription(MetricName(f"m{number}", "g"), lambda v=value: v, unix_ms=0)
    assert [point.value for point in collect(collector)] == [7]


def test_a_failing_source_costs_only_its_own_metrics(caplog):
    def broken():
        raise RuntimeError("boom")

    collector = Collector()
    collector.add_source(broken)
    collector.register_metric_for_subscription(EVENTS, broken, unix_ms=0)
    collector.register_metric_for_subscription(MetricName("good", "g"), lambda: 1, unix_ms=0)
    with caplog.at_level(logging.WARNING):
        assert [point.value for point in collect(collector)] == [1]
        collect(collector)
    assert collector.failures == 4
    assert len(caplog.records) == 2
    collector.remove_source(broken)
    collector.remove_source(broken)
    collect(collector)
    assert collector.failures == 5


def test_only_what_is_asked_for_is_measured():
    collector = Collector()
    collector.register_metric_for_subscription(EVENTS, lambda: pytest.fail("not asked for"), unix_ms=0)
    assert collect(collector, selection=Selection(("org.apache.kafka.producer.",))) == []


def test_series_that_are_gone_are_forgotten_but_registered_ones_are_not():
    collector = Collector()
    total = counter(collector)
    topics = [["t1"]]
    collector.add_source(
        lambda: [Point(PointKey("x", (("topic", t),)), MetricKind.SUM, 5, start_unix_ms=0) for t in topics[0]]
    )
    collector.acknowledge(collect(collector, at_ms=1))
    topics[0] = []
    total[0] = 1
    for at_ms in range(2, 300):
        collector.acknowledge(collect(collector, at_ms=at_ms))
    topics[0] = ["t1"]
    values = {point.point.key.name: summary(point) for point in collect(collector, at_ms=300)}
    assert values == {"x": (5, 0, 300), "org.apache.kafka.app.events": (0, 299, 300)}


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        ("kafka.producer", {"client_rack": "r", "transactional_id": "t"}),
        ("kafka.consumer", {"client_rack": "r", "group_id": "g", "group_instance_id": "None"}),
        ("kafka.admin.client", {"client_rack": "r"}),
    ],
)
def test_case_91_labels_of_a_push(namespace, expected):
    config = {"client.rack": "r", "group.id": "g", "group.instance.id": None, "transactional.id": "t", "acks": 1}
    assert resource_labels(namespace, config) == expected
    assert resource_labels(namespace, {}) == {}
    collector = Collector(expected)
    collector.update_labels({"group_member_id": "m"})
    assert dict(collector.resource) == expected | {"group_member_id": "m"}


@pytest.mark.parametrize(
    ("requested", "name", "selected"),
    [
        (["*"], "anything", True),
        ([], "anything", False),
        (None, "anything", False),
        ([""], "anything", True),
        (["*", "a."], "anything", False),
        (["*", "a."], "a.b", True),
        (["*", "a."], "*x", True),
        (["a.b"], "a.bc", True),
        (["a.b", "c"], "A.b", False),
    ],
)
def test_selection(requested, name, selected):
    assert selection_of(requested).matches(name) is selected
    assert bool(selection_of(requested)) is bool(requested)
