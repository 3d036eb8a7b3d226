"""What clients push while something breaks: which of their throttles arrive."""

from typing import Any

PREFIX = "org.apache.kafka."
METRICS = [f"{PREFIX}producer.", f"{PREFIX}consumer."]
INTERVAL_MS = 1_000
COUNT = f"{PREFIX}producer.produce.throttle.count"


def counters(push: Any) -> dict[str, float]:
    """The counters of one push (`MetricsData`), by name."""
    found: dict[str, float] = {}
    for one_resource in push.resource_metrics:
        for scope in one_resource.scope_metrics:
            for metric in scope.metrics:
                points = metric.sum.data_points
                if points:
                    found[metric.name] = sum(point.as_double or point.as_int for point in points)
    return found


def throttles(pushes: list[dict[str, float]]) -> int:
    """How many throttles were told; each push tells of those since the one before."""
    return round(sum(push.get(COUNT, 0) for push in pushes))


def counted(producer: Any) -> int:
    """How many throttles a producer of ours has seen."""
    values = {(name.name, name.group): value for name, value in producer.metrics().items()}
    return round(values["produce-throttle-count", "producer-metrics"])
