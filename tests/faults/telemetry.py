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


def delivered_in(push: Any) -> int:
    """How many more one push (`MetricsData`) tells than the one before."""
    return round(
        sum(
            point.as_double or point.as_int
            for one in push.resource_metrics
            for scope in one.scope_metrics
            for metric in scope.metrics
            if metric.name == DELIVERED
            for point in metric.sum.data_points
        )
    )
