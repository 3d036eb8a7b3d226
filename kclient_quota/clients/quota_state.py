"""What a client tells its user about its quota."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kclient_quota.pacing.sending.lanes import LaneState


@dataclass(frozen=True, slots=True)
class BrokerQuotaState:
    """What a client knows about its quota on one broker.

    Attributes:
        limit: bytes per second; None where it is not known or nothing limits this client.
        source: who said so: "config", "callback", "cluster" or "learned".
        rate: bytes per second aimed at now; infinite where nothing is known to limit them.
        throttled_until_ms: milliseconds from now until the broker's last throttle ends; 0 when it has.
        admitted: bytes admitted so far.
        outstanding: bytes of them whose delivery is not known yet.
        waiting: calls of `produce()` that wait now.
        stall: what keeps this client from making progress, in words; None when nothing does.
        lost: bytes that a consumer has fetched and thrown away: batches cut off, messages that a rebalance or a seek
            made it forget.
        lanes: what waits in a producer's queue, by lane: messages, their bytes, how long the oldest has waited in
            ms; "" is the lane of messages without one.
    """

    limit: float | None
    source: str
    rate: float
    throttled_until_ms: int
    admitted: int
    outstanding: int
    waiting: int = 0
    stall: str | None = None
    lost: int = 0
    lanes: Mapping[str, LaneState] = field(default_factory=dict)
