"""What clients push while something breaks: how much of what they have counted arrives."""

from typing import Any

from kclient_telemetry.kind import MetricKind
from kclient_telemetry.naming import MetricName

PREFIX = "org.apache.kafka."
METRICS = [f"{PREFIX}producer.", f"{PREFIX}consumer.", f"{PREFIX}faults."]
INTERVAL_MS = 1_000
DELIVERED = f"{PREFIX}faults.delivered"


def tell_delivered(producer: Any, delivered: list[Any]) -> None:
    """Push how many messages a producer of ours has delivered."""
    producer.register_metric_for_subscription(MetricName("delivered", "faults"), lambda: len(delivered), MetricKind.SUM)


def delivered_in(push: Any) -> tuple[int, int]:
    """How many more one push (`MetricsData`) tells than the last one that was answered, and when that was."""
    points = [
        point
        for one in push.resource_metrics
        for scope in one.scope_metrics
        for metric in scope.metrics
        if metric.name == DELIVERED
        for point in metric.sum.data_points
    ]
    return (
        max((point.start_time_unix_nano for point in points), default=0),
        round(sum(point.as_double or point.as_int for point in points)),
    )


def told(pushes: list[tuple[int, int]]) -> int:
    """What `delivered_in` of several pushes comes to.

    A push whose answer was lost is contained in the next one, which begins when it began.
    """
    by_beginning: dict[int, int] = {}
    for began, value in pushes:
        by_beginning[began] = max(value, by_beginning.get(began, 0))
    return sum(by_beginning.values())
