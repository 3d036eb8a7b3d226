"""Which sizes a consumer's fetches and its queue should have: by the limit, the distance, and how large batches are."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from kclient_quota.clients.limits import Limit
from kclient_quota.pacing.fetch_broker import BrokerPace
from kclient_quota.pacing.fetch_sizes import (
    BATCH_BYTES,
    OPEN,
    ROUND_TRIP_MS,
    FetchSizes,
    sizes_for,
    sizes_while_learning,
)

STAY_MS: Final = 5_000
"""Sizes are not changed again before so much has been seen of them."""
LOOKS: Final = 2
"""Statistics that tell how large batches are; the first response that they know of may be another one."""
ENDLESS: Final = float("inf")


class Sizing:
    """Of one consumer.

    Args:
        sizes: how it fetches at first.
        now_ms: when it is made.

    Attributes:
        sizes: how it fetches now.
    """

    def __init__(self, sizes: FetchSizes, now_ms: int) -> None:
        self.sizes = sizes
        self._stays_until_ms = now_ms
        self._round_trip_ms = float(ROUND_TRIP_MS)
        self._knows_round_trip = False
        self._batch_bytes = float(BATCH_BYTES)
        self._looks = 0
        self._received_per_s = 0.0

    @property
    def batch_bytes(self) -> float:
        """Bytes of a batch, as far as is known."""
        return self._batch_bytes

    def look(
        self, statistics: Mapping[str, Any], paces: Mapping[int, BrokerPace], received: int, elapsed_ms: int
    ) -> None:
        """Learn the round trip, and how large batches are.

        Args:
            statistics: an event, decoded.
            paces: of brokers that are fetched from.
            received: most bytes that came from one of them since the last event.
            elapsed_ms: how long that is.
        """
        if elapsed_ms > 0:
            self._received_per_s = received * 1000.0 / elapsed_ms
        shortest = [
            broker["rtt"]["min"] / 1000
            for broker in statistics.get("brokers", {}).values()
            if broker.get("rtt", {}).get("min", 0) > 0 and broker["nodeid"] in paces
        ]
        if shortest:
            # The shortest has waited neither for messages nor for the quota.
            known = self._round_trip_ms if self._knows_round_trip else ENDLESS
            self._round_trip_ms, self._knows_round_trip = min(known, max(shortest)), True
        response = max((pace.batch for pace in paces.values()), default=0.0)
        if response and self.sizes.fetch_bytes <= BATCH_BYTES:
            self._looks += 1
        if response > 1.1 * self.sizes.fetch_bytes:
            self._batch_bytes = response
        elif response >= 0.9 * self.sizes.fetch_bytes and self.sizes.fetch_bytes <= self._batch_bytes / 2:
            # Half a batch was asked for, and no more has come: batches are smaller than was thought.
            self._batch_bytes = response / 4

    def other(self, limit: Limit, paces: Collection[BrokerPace], now_ms: int) -> FetchSizes | None:
        """The sizes to fetch in from now on, if those that there are will not do; the caller heeds it."""
        if self.sizes.by_hand or now_ms < self._stays_until_ms:
            return None
        wanted = self._wanted(limit, paces)
        if self.sizes.like(wanted):
            return None
        self._stays_until_ms = now_ms + STAY_MS
        self.sizes = wanted
        return wanted

    def _wanted(self, limit: Limit, paces: Collection[BrokerPace]) -> FetchSizes:
        if limit.byte_rate is not None:
            near = sizes_for(limit.byte_rate, min(self._round_trip_ms, ROUND_TRIP_MS), self._batch_bytes)
            if near.fetch_bytes <= BATCH_BYTES and self._looks < LOOKS:
                # Whatever the distance asks for: of larger fetches nobody could tell how much of them is cut off.
                return near
            return sizes_for(limit.byte_rate, self._round_trip_ms, self._batch_bytes)
        learnt = min((pace.rate for pace in paces), default=ENDLESS)
        if learnt < ENDLESS:
            return sizes_while_learning(learnt)
        if limit.known or self.sizes == OPEN:
            return OPEN
        # Nothing has been learnt yet: what comes without being refused may be asked for in larger pieces.
        largest = sizes_while_learning(self._received_per_s)
        return largest if largest.fetch_bytes > self.sizes.fetch_bytes else self.sizes
