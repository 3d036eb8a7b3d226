"""The kinds of metrics; by itself, because every client's signatures name them."""

from enum import Enum


class MetricKind(Enum):
    """The three shapes KIP-714 pushes: the last value, a sum that only grows, a distribution that only grows."""

    GAUGE = "gauge"
    SUM = "sum"
    HISTOGRAM = "histogram"
