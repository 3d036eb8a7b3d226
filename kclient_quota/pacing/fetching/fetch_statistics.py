"""What librdkafka's statistics say about fetching, which is what the pacer goes by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FetchStatistics:
    """What one statistics event says about fetching.

    Attributes:
        at_ms: when it was made.
        queued_bytes: keys and values in librdkafka's queue.
        queued_count: messages in it.
        received: bytes and responses with something in them received so far, by broker.
        leaders: which broker each assigned partition is fetched from.
        positions: the offset of each of these that is fetched next, and its end; -1: not known.
        given: the offset after what librdkafka has handed over last of each of these; negative: nothing yet.
    """

    at_ms: int
    queued_bytes: int
    queued_count: int
    received: Mapping[int, tuple[int, int]]
    leaders: Mapping[tuple[str, int], int]
    positions: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    given: Mapping[tuple[str, int], int] = field(default_factory=dict)


def fetch_statistics(statistics: Mapping[str, Any], responses: Mapping[int, int], at_ms: int) -> FetchStatistics:
    """What librdkafka's statistics (STATISTICS.md) say about fetching.

    Args:
        statistics: one event, decoded.
        responses: how many responses that were not throttled each broker has sent so far.
        at_ms: when the event was made.
    """
    queued_bytes = queued_count = 0
    leaders: dict[tuple[str, int], int] = {}
    positions: dict[tuple[str, int], tuple[int, int]] = {}
    given: dict[tuple[str, int], int] = {}
    for name, topic in statistics.get("topics", {}).items():
        for partition in topic["partitions"].values():
            # Every partition's queue is forwarded to the consumer's, so each reports the length of the whole.
            queued_bytes = max(queued_bytes, partition["fetchq_size"])
            queued_count = max(queued_count, partition["fetchq_cnt"])
            if partition["fetch_state"] == "active" and partition["broker"] >= 0:
                key = name, partition["partition"]
                leaders[key] = partition["broker"]
                positions[key] = partition.get("next_offset", -1), end_of(partition)
                given[key] = partition.get("app_offset", -1)
    received = {
        broker["nodeid"]: (broker["rxbytes"], responses.get(broker["nodeid"], 0))
        for broker in statistics.get("brokers", {}).values()
        if broker["nodeid"] >= 0 and broker["source"] != "logical"
    }
    return FetchStatistics(at_ms, queued_bytes, queued_count, received, leaders, positions, given)


def end_of(partition: Mapping[str, Any]) -> int:
    """What may be fetched ends here: before the first open transaction, where the broker says where that is."""
    stable = partition.get("ls_offset", -1)
    return int(stable if stable >= 0 else partition.get("hi_offset", -1))
