import pytest

from kclient_quota.metrics import CONSUMER, PRODUCER, ClientThrottleMetrics, MetricName, ThrottleTimes


def test_kafkas_own_case() -> None:
    # SenderTest.testQuotaMetrics: ApiVersions 400, Produce 100, 200, 300 -> avg 250, max 400.
    times = ThrottleTimes()
    for throttle_ms in (400, 100, 200, 300):
        times.record(responses=1, throttled=1, sum_ms=throttle_ms, max_ms=throttle_ms, now_ms=0)
    assert times.figures(0) == (250, 400)


def test_zeros_of_unthrottled_responses_count() -> None:
    times = ThrottleTimes()
    times.record(responses=10, throttled=2, sum_ms=500, max_ms=300, now_ms=5)
    assert times.figures(5) == (50, 300)
    assert (times.total_ms, times.count, times.last_ms) == (500, 2, 300)


def test_nothing_happened_is_zero_not_nan() -> None:
    times = ThrottleTimes()
    assert times.figures(0) == (0, 0)


def test_the_window_forgets_and_the_totals_do_not() -> None:
    times = ThrottleTimes()
    times.record(responses=1, throttled=1, sum_ms=700, max_ms=700, now_ms=0)
    times.record(responses=1, throttled=0, sum_ms=0, max_ms=0, now_ms=61_000)
    assert times.figures(61_000) == (0, 0)
    assert (times.total_ms, times.count, times.last_ms) == (700, 1, 700)


@pytest.mark.parametrize(
    ("kind", "name", "group"),
    [
        (PRODUCER, "produce-throttle-time-avg", "producer-metrics"),
        (CONSUMER, "fetch-throttle-time-avg", "consumer-fetch-manager-metrics"),
        (CONSUMER, "request-throttle-time-avg", "consumer-fetch-manager-metrics"),
    ],
)
def test_names_per_client_and_per_broker(kind: str, name: str, group: str) -> None:
    metrics = ClientThrottleMetrics(kind, "c")
    metrics.record(1, responses=1, throttled=1, sum_ms=100, max_ms=100, now_ms=0)
    metrics.record(2, responses=3, throttled=0, sum_ms=0, max_ms=0, now_ms=0)
    found = metrics.collect(0)
    assert found[MetricName(name, group, (("client-id", "c"),))] == 25
    per_node = {metric.tag("node-id"): value for metric, value in found.items() if metric.name == name}
    assert per_node == {None: 25, "node-1": 100, "node-2": 0}
