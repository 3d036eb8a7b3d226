"""One client instance as a broker remembers it: Kafka's ClientMetricsInstance."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from kclient_telemetry.errors import ErrorCode
from kclient_telemetry.receiver.stats import InstanceStats
from kclient_telemetry.receiver.subscription import Demand

# Before any time: a client that was never heard of may always be heard now.
NEVER_MS = -(1 << 62)

_GET_AT_ONCE_AFTER = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})


class TerminatingRule(Enum):
    """What happens to a push that follows a terminating one.

    SHIPPED: as Kafka's brokers do: refused with INVALID_REQUEST whatever the interval; not terminating, it clears that.
    KIP: as KIP-714 says: Terminating is ignored until the interval has passed, so that the push is rate-limited.
    """

    SHIPPED = "shipped"
    KIP = "kip"


@dataclass(slots=True, eq=False)
class ClientMetricsInstance:
    """State of one client instance.

    Attributes:
        client: what subscriptions match it by; as at its first request.
        demand: what it was asked for.
        subscription_version: of the manager when `demand` was made.
        connections: over which it was created.
    """

    client_instance_id: UUID
    client: Mapping[str, str | None]
    demand: Demand
    subscription_version: int
    connections: set[str] = field(default_factory=set)
    stats: InstanceStats = field(default_factory=InstanceStats)
    terminating: bool = False
    last_known_error: ErrorCode = ErrorCode.NONE
    expires_at_ms: int = NEVER_MS
    queued_at_ms: int | None = None
    _last_get_ms: int = NEVER_MS
    _last_push_ms: int = NEVER_MS

    def may_get(self, now_ms: int) -> bool:
        """Whether a GetTelemetrySubscriptions is due; exempt right after an error that asks for one."""
        if now_ms - max(self._last_get_ms, self._last_push_ms) >= self.demand.push_interval_ms:
            self._last_get_ms = now_ms
            return True
        return self.last_known_error in _GET_AT_ONCE_AFTER

    def may_push(self, now_ms: int) -> bool:
        """Whether a push is due: the first one after a subscription fetch always is, since clients jitter it."""
        if self._last_get_ms > self._last_push_ms or now_ms - self._last_push_ms >= self.demand.push_interval_ms:
            self._last_push_ms = now_ms
            return True
        return False

    def refuse_push(self, now_ms: int, rule: TerminatingRule, *, terminating: bool) -> ErrorCode:
        """Whether the rate limit or an earlier terminating push forbids this one; NONE when it may be looked at."""
        if rule is TerminatingRule.KIP:
            return self._refuse_by_kip(now_ms, terminating=terminating)
        if self.terminating:
            return ErrorCode.INVALID_REQUEST
        if not self.may_push(now_ms) and not terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        return ErrorCode.NONE

    def _refuse_by_kip(self, now_ms: int, *, terminating: bool) -> ErrorCode:
        if self.may_push(now_ms):
            self.terminating = terminating
        elif terminating and not self.terminating:
            self.terminating = True
        else:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        return ErrorCode.NONE
