"""What records of a share group are on the wire, about, and whether some of them have come before."""

from collections.abc import Iterable
from typing import Any, Final

from kclient_quota.clients.partition_leaders import Partition
from kclient_quota.pacing.fetching.share_fetch import wire_bytes
from kclient_quota.pacing.trend import TREND

LARGEST_BATCH: Final = 1_048_588
"""Brokers take none that is larger, unless they are told to."""


class ShareBytes:
    """Learns of records that come for the first time what the log has kept of its offsets.

    A broker sends whole batches, from the first record that it gives to the last. Where some were released, or not
    acknowledged in time, those that others have settled come along between them, and librdkafka leaves them out. What
    was compacted away does not come along: records that come for the first time have such holes, too.

    Args:
        fetch_bytes: as of `wire_bytes`.
    """

    def __init__(self, fetch_bytes: int) -> None:
        self._fetch_bytes = fetch_bytes
        self._most_bytes = max(fetch_bytes, LARGEST_BATCH)
        self._kept: dict[Partition, tuple[float, float]] = {}  # records and offsets, of answers of late

    def by_partition(self, messages: Iterable[Any]) -> dict[Partition, int]:
        """Wire bytes of an answer's records by topic and partition."""
        places: dict[Partition, list[Any]] = {}
        for message in messages:
            places.setdefault((message.topic(), message.partition()), []).append(message)
        return {place: self._bytes_of(place, found) for place, found in places.items()}

    def _bytes_of(self, place: Partition, messages: list[Any]) -> int:
        payload, records = sum(map(_payload, messages)), len(messages)
        offsets = [message.offset() for message in messages]
        sent, span = records, max(offsets) - min(offsets) + 1
        kept, of = self._kept.get(place, (0.0, 0.0))
        if not come_again(messages):
            self._kept[place] = kept * (1.0 - TREND) + records, of * (1.0 - TREND) + span
        elif payload * (whole := round(span * kept / of) if of else span) <= records * self._most_bytes:
            sent = max(records, whole)  # otherwise the log has holes that are not known yet
        return wire_bytes(sent, payload * sent // records, self._fetch_bytes)


def come_again(messages: Iterable[Any]) -> bool:
    """Whether one of them was delivered before."""
    return any((message.delivery_count() or 1) > 1 for message in messages)


def _payload(message: Any) -> int:
    headers = sum(len(key.encode()) + len(value or b"") + 4 for key, value in message.headers() or ())
    return len(message) + len(message.key() or b"") + headers
