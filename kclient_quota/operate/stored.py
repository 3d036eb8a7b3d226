"""A few of a topic's stored messages, as they were batched: a few hundred kilobytes at most."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kclient_telemetry.compression import CompressionType

from kclient_quota.cluster.brokers import topic_ids
from kclient_quota.errors import ClusterError, WireError
from kclient_quota.pacing.sending.worth import SAMPLE
from kclient_quota.wire.batches import iterate_batches
from kclient_quota.wire.error_codes import error_name
from kclient_quota.wire.messages import FetchRequest, ListOffsetsRequest
from kclient_quota.wire.records import Record, iterate_records

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from kclient_quota.cluster.client import ClusterClient

MOST_BYTES: Final = 262_144
_MOST_PARTITIONS: Final = 3
_LATEST: Final = -1


@dataclass(slots=True)
class Stored:
    """What was read.

    Attributes:
        records: `SAMPLE` or a few more, from one partition after the other.
        batches: how many they were in.
        largest: bytes of the largest batch.
        compression: of the last batch.
    """

    records: list[Record] = field(default_factory=list)
    batches: int = 0
    largest: int = 0
    compression: str = CompressionType.NONE.name.lower()


def read_some(client: ClusterClient, topic: str, leaders: Mapping[int, int], *, timeout_ms: int) -> Stored:
    """The newest messages of some partitions.

    Args:
        client: needs the right to read the topic.
        topic: its name.
        leaders: of its partitions.
        timeout_ms: for each request.

    Raises:
        ClusterError: a broker does not answer, or refuses.
    """
    found = Stored()
    topic_id = topic_ids(client, [topic], timeout_ms=timeout_ms)[topic]
    for partition, leader in sorted(leaders.items())[:_MOST_PARTITIONS]:
        if len(found.records) >= SAMPLE:
            break
        end = _end(client, topic, partition, leader, timeout_ms)
        if end > 0:
            begin = max(0, end - SAMPLE)
            _read(client, (topic, topic_id), (partition, leader, begin), found, timeout_ms)
    return found


def _end(client: ClusterClient, topic: str, partition: int, leader: int, timeout_ms: int) -> int:
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=_LATEST)
    listed = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[listed], timeout_ms=timeout_ms)
    (told,) = client.ask_broker(leader, request, timeout_ms=timeout_ms).topics[0].partitions
    _check(told.error_code, topic)
    return int(told.offset)


def _read(
    client: ClusterClient, topic: tuple[str, UUID], place: tuple[int, int, int], found: Stored, timeout_ms: int
) -> None:
    partition, leader, begin = place
    wanted = FetchRequest.FetchPartition(partition=partition, fetch_offset=begin, partition_max_bytes=MOST_BYTES)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=MOST_BYTES,
        topics=[FetchRequest.FetchTopic(topic=topic[0], topic_id=topic[1], partitions=[wanted])],
    )
    answer = client.ask_broker(leader, request, timeout_ms=timeout_ms)
    _check(answer.error_code, topic[0])
    if not answer.responses:
        return
    (data,) = answer.responses[0].partitions
    _check(data.error_code, topic[0])
    buffer = bytes(data.records or b"")
    try:
        for at, header in iterate_batches(buffer, partial=True):
            if header.is_control:
                continue
            found.records += iterate_records(buffer, at, header=header)
            found.batches += 1
            found.largest = max(found.largest, header.size)
            found.compression = CompressionType(header.compression).name.lower()
    except WireError as error:
        raise ClusterError(f"{topic[0]} cannot be read: {error}") from error


def _check(code: int, topic: str) -> None:
    if code:
        raise ClusterError(f"{topic} cannot be read: {error_name(code)}", error_code=code)
