"""Kafka's `TokenBucket` and the controller-mutation quotas of KIP-599 that rest on it."""

from typing import Final, Protocol

from kclient_quota.quota.rate import QUOTA_SAMPLES, QUOTA_WINDOW_MS
from kclient_quota.quota.throttle import MAX_THROTTLE_MS, java_round


class TokenBucket:
    """Tokens that come at the quota's rate, up to what a whole window brings; may be overdrawn.

    It starts empty at time zero, as Kafka's: a clock of epoch milliseconds finds it full.

    Args:
        samples: `controller.quota.window.num`.
        window_ms: `controller.quota.window.size.seconds` x 1000.
    """

    __slots__ = ("_tokens", "_updated_ms", "_window_s")

    def __init__(self, samples: int = QUOTA_SAMPLES, window_ms: int = QUOTA_WINDOW_MS) -> None:
        self._window_s = samples * (window_ms / 1000.0)
        self._tokens = 0.0
        self._updated_ms = 0

    def _refill(self, quota: float, now_ms: int) -> float:
        burst = self._window_s * quota
        self._tokens = min(burst, self._tokens + quota * ((now_ms - self._updated_ms) / 1000.0))
        self._updated_ms = now_ms
        return burst

    def record(self, value: float, quota: float, now_ms: int) -> None:
        """Take `value` tokens (put back, when negative) under a quota of `quota` tokens per second."""
        burst = self._refill(quota, now_ms)
        self._tokens = min(burst, self._tokens - value)

    def measure(self, quota: float, now_ms: int) -> float:
        """Tokens left; below zero when overdrawn."""
        self._refill(quota, now_ms)
        return self._tokens


def token_throttle_time_ms(tokens: float, quota: float) -> int:
    """How long until an overdrawn bucket is at zero, in ms; 0 when it is not overdrawn."""
    if tokens >= 0.0:
        return 0
    delay_ms = -tokens / quota * 1000
    return MAX_THROTTLE_MS if delay_ms >= MAX_THROTTLE_MS else java_round(delay_ms)


PERMISSIVE: Final = "permissive"
STRICT: Final = "strict"


class _Ledger(Protocol):
    """Where permits are recorded: one entity's sensor in a `ControllerMutationQuotaManager`."""

    def tokens(self, now_ms: int) -> float: ...
    def take(self, permits: float, now_ms: int) -> None: ...
    @property
    def bound(self) -> float: ...


class ControllerMutationQuota:
    """One request's view of the quota of KIP-599, thrown away with the request.

    Args:
        ledger: the entity's sensor; None when no quota is set.
        strict: rejects once the bucket is overdrawn, as newer request versions want it; otherwise all is taken.
    """

    __slots__ = ("_last_throttle_ms", "_ledger", "_recorded_at_ms", "strict")

    def __init__(self, ledger: _Ledger | None, *, strict: bool) -> None:
        self._ledger = ledger
        self.strict = strict
        self._last_throttle_ms = 0
        self._recorded_at_ms = 0

    @property
    def is_exceeded(self) -> bool:
        """Whether something was rejected."""
        return self.strict and self._last_throttle_ms > 0

    def record(self, permits: float, now_ms: int) -> bool:
        """Take `permits` (partitions to create or delete).

        Returns:
            False when they are rejected: THROTTLING_QUOTA_EXCEEDED, and nothing is recorded.
        """
        ledger = self._ledger
        if ledger is None:
            return True
        if not self.strict:
            ledger.take(permits, now_ms)
        throttle_ms = token_throttle_time_ms(ledger.tokens(now_ms), ledger.bound)
        if throttle_ms > 0:
            self._last_throttle_ms = throttle_ms
            self._recorded_at_ms = now_ms
            return not self.strict
        if self.strict:
            ledger.take(permits, now_ms)
        return True

    def throttle_time_ms(self, now_ms: int) -> int:
        """The last throttle time, less what has gone by since."""
        return max(0, self._last_throttle_ms - (now_ms - self._recorded_at_ms))
