"""How long to throttle: Kafka's `QuotaUtils`, KIP-13's and KIP-124's formulas, in Kafka's order of operations."""

from collections.abc import Callable
from enum import Enum
from math import floor, isfinite
from sys import float_info
from typing import Final

MAX_THROTTLE_MS: Final = 2_147_483_647
UNLIMITED: Final = 9.223372036854775807e18
"""Kafka's bound of whoever has no quota: `Long.MAX_VALUE` as a double."""
UNLIMITED_WINDOW_BYTES: Final = float_info.max
"""What `max_value_in_quota_window` is without a quota: Java's `Double.MAX_VALUE`."""


class ThrottleRule(Enum):
    """How a byte-rate delay and a request delay of the same request are put together."""

    KAFKA = "kafka"
    """The longer of the two, as Apache Kafka does."""
    KIP_124_DRAFT = "kip-124-draft"
    """The byte delay first, then what remains of the request delay once it is over."""


def java_round(value: float) -> int:
    """Java's `Math.round`: the nearest integer, halves upwards."""
    whole = floor(value)
    return whole + 1 if value - whole >= 0.5 else whole  # noqa: PLR2004  a half is a half


def raw_throttle_time_ms(value: float, bound: float, window_size_ms: int) -> int:
    """Kafka's `QuotaUtils.throttleTime`: how long until `value` over the window has sunk to `bound`.

    From KIP-124: if O is the rate observed over a window W and T the bound, O * W / (W + X) = T gives X.

    Args:
        value: observed rate per second.
        bound: quota per second, above zero.
        window_size_ms: what the rate was measured over, in ms.

    Returns:
        Milliseconds; negative when the value is under the bound, 2,147,483,647 at most.
    """
    delay_ms = (value - bound) / bound * window_size_ms
    if delay_ms >= MAX_THROTTLE_MS or not isfinite(delay_ms):
        return MAX_THROTTLE_MS
    return java_round(delay_ms)


def throttle_time_ms(value: float, bound: float, window_size_ms: int) -> int:
    """What a response carries: 0 when `value` is within `bound` (equality is), else `raw_throttle_time_ms`.

    Kafka casts to int, so that 25 days and more wrap around to anything; here they stay at 2,147,483,647.
    """
    return 0 if value <= bound else raw_throttle_time_ms(value, bound, window_size_ms)


def bounded_throttle_time_ms(value: float, bound: float, window_size_ms: int, max_throttle_ms: int) -> int:
    """Kafka's `QuotaUtils.boundedThrottleTime`: `raw_throttle_time_ms`, `max_throttle_ms` at most."""
    return min(raw_throttle_time_ms(value, bound, window_size_ms), max_throttle_ms)


def kip13_delay_ms(produced: float, quota_per_second: float, window_ms: int) -> int:
    """KIP-13: delay = (overall produced in the window - quota bound) / quota per second.

    Args:
        produced: bytes in the window, the request that violates included.
        quota_per_second: bytes per second.
        window_ms: length of the window.

    Returns:
        Milliseconds, never negative.
    """
    return throttle_time_ms(produced / (window_ms / 1000.0), quota_per_second, window_ms)


def max_value_in_quota_window(limit: float | None, samples: int, window_ms: int) -> float:
    """Kafka's `maxValueInQuotaWindow`: what may be taken at once without a throttle, for capping a fetch.

    Args:
        limit: quota per second; None when there is none.
        samples: `quota.window.num`.
        window_ms: `quota.window.size.seconds` x 1000.

    Returns:
        The limit times all windows but the running one; Java's Double.MAX_VALUE without a quota.
    """
    if limit is None or limit >= UNLIMITED:
        return UNLIMITED_WINDOW_BYTES
    return limit * (samples - 1) * (window_ms / 1000.0)


def combined_throttle_time_ms(rule: ThrottleRule, byte_ms: int, request_ms_after: Callable[[int], int]) -> int:
    """One delay out of a byte-rate delay and a request quota.

    Args:
        rule: Kafka's, or that of the draft of KIP-124.
        byte_ms: delay that the byte rate asks for.
        request_ms_after: what the request quota asks for once this many milliseconds have gone by.

    Returns:
        Milliseconds from now.
    """
    if rule is ThrottleRule.KAFKA:
        return max(byte_ms, request_ms_after(0))
    byte_ms = max(byte_ms, 0)
    return min(byte_ms + max(request_ms_after(byte_ms), 0), MAX_THROTTLE_MS)
