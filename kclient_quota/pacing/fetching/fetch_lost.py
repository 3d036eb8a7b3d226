"""Bytes of the quota that were fetched and thrown away: batches cut off, and what a seek or a rebalance forgets.

A fetch that ends within a batch has paid for the part that is cut off, and pays for all of it again. What waits to be
received when its partition is revoked, or another position is sought, was paid for, too.
"""

from collections.abc import Mapping
from math import inf
from typing import Any

from kclient_quota.pacing.fetching.fetch_sizes import BATCH_BYTES, CUT


class LostFetches:
    """Of one consumer.

    Attributes:
        by_broker: bytes lost so far, by broker id.
    """

    __slots__ = ("_cut", "by_broker")

    def __init__(self) -> None:
        self.by_broker: dict[int, int] = {}
        self._cut: dict[int | str, int] = {}

    @property
    def total(self) -> int:
        """Bytes lost so far."""
        return sum(self.by_broker.values())

    def on_statistics(self, statistics: Mapping[str, Any], fetch_bytes: float, batch_bytes: float) -> None:
        """Count responses that ended within a batch.

        Args:
            statistics: one event of librdkafka's, decoded; its brokers have `rxpartial`.
            fetch_bytes: asked for at once; what is left of them after whole batches is cut off, on average `CUT` of a
                batch, or half of what was asked for where that is less.
            batch_bytes: of a batch, on average; infinite while unknown, when a producer's default is taken.
        """
        left = min(CUT * (batch_bytes if batch_bytes < inf else BATCH_BYTES), fetch_bytes / 2)
        for name, broker in statistics.get("brokers", {}).items():
            node_id, cut = broker["nodeid"], int(broker.get("rxpartial", 0))
            if broker.get("source") == "logical":
                continue  # nothing is fetched from a coordinator's
            if node_id < 0:
                self._cut[name] = cut
                continue
            before = self._cut.get(node_id, self._cut.get(name, 0))
            self._cut[node_id] = cut
            # A connection that librdkafka made anew starts from zero again; one to another address goes on counting.
            self.add(node_id, (cut - before if cut >= before else cut) * left)

    def add(self, broker: int, nbytes: float) -> None:
        """So much of what this broker has sent is thrown away."""
        if nbytes > 0:
            self.by_broker[broker] = self.by_broker.get(broker, 0) + round(nbytes)
