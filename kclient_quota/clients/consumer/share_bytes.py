"""What records of a share group are on the wire, about, and whether some of them have come before."""

from collections.abc import Iterable
from typing import Any

from kclient_quota.clients.partition_leaders import Partition
from kclient_quota.pacing.fetching.share_fetch import wire_bytes


def bytes_by_partition(messages: Iterable[Any], fetch_bytes: int) -> dict[Partition, int]:
    """Wire bytes of an answer's records by topic and partition; `fetch_bytes` as of `wire_bytes`.

    A broker sends whole batches, from the first record that it gives to the last. Where some were released, or not
    acknowledged in time, those that others have settled come along between them, and librdkafka leaves them out.
    """
    places: dict[Partition, list[Any]] = {}
    for message in messages:
        places.setdefault((message.topic(), message.partition()), []).append(message)
    return {place: _bytes_of(found, fetch_bytes) for place, found in places.items()}


def come_again(messages: Iterable[Any]) -> bool:
    """Whether one of them was delivered before."""
    return any((message.delivery_count() or 1) > 1 for message in messages)


def _bytes_of(messages: list[Any], fetch_bytes: int) -> int:
    payload, records = sum(map(_payload, messages)), len(messages)
    sent = records
    if come_again(messages):  # those that come for the first time have holes only where the log has them
        offsets = [message.offset() for message in messages]
        sent = max(offsets) - min(offsets) + 1
    return wire_bytes(sent, payload * sent // records, fetch_bytes)


def _payload(message: Any) -> int:
    headers = sum(len(key.encode()) + len(value or b"") + 4 for key, value in message.headers() or ())
    return len(message) + len(message.key() or b"") + headers
