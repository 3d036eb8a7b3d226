"""Numbers as confluent_kafka reads them: whatever C's conversions take for one, numpy's and Decimal among them."""

import operator
from typing import Any, SupportsFloat, SupportsIndex


def seconds(timeout: Any) -> Any:
    """A time-out as a number; what is none stays what it is, for confluent_kafka to refuse."""
    if isinstance(timeout, int | float) or not isinstance(timeout, SupportsFloat | SupportsIndex):
        return timeout
    return float(timeout)


def whole(count: Any) -> Any:
    """A count as an int; what is none stays what it is, for confluent_kafka to refuse."""
    if type(count) is int or not isinstance(count, SupportsIndex):
        return count
    return int(operator.index(count))
