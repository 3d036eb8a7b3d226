"""Reads a topic back, record by record; what was aborted is left out."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.errors import ClusterError
from kclient_quota.wire.batches import iterate_batches
from kclient_quota.wire.messages import FetchRequest, MetadataRequest
from kclient_quota.wire.records import ABORT, iterate_records, marker_type

_CLIENT_ID = "certify-read-back"
_FETCH_BYTES = 8_000_000
_READ_COMMITTED = 1


def values(bootstrap_servers: str, topic: str, *, timeout_ms: int = 30_000) -> list[list[bytes]]:
    """The values in each partition, in order.

    Raises:
        ClusterError: the cluster cannot be asked, or says no.
    """
    conf = {"bootstrap.servers": bootstrap_servers, "client.id": _CLIENT_ID}
    with ClusterClient(conf, SYSTEM_CLOCK) as client:
        wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        (found,) = client.ask(wanted, timeout_ms=timeout_ms).topics
        partitions = sorted(found.partitions, key=lambda partition: int(partition.partition_index))
        return [list(_values(client, found, partition, timeout_ms)) for partition in partitions]


def topic_names(bootstrap_servers: str) -> list[str]:
    """All topics that there are."""
    conf = {"bootstrap.servers": bootstrap_servers, "client.id": _CLIENT_ID}
    with ClusterClient(conf, SYSTEM_CLOCK) as client:
        return sorted(topic.name for topic in client.ask(MetadataRequest(topics=None)).topics)


def _values(client: ClusterClient, topic: Any, partition: Any, timeout_ms: int) -> Iterator[bytes]:
    offset = 0
    aborted: dict[int, list[int]] = defaultdict(list)
    seen: set[tuple[int, int]] = set()
    while True:
        answer = client.ask_broker(
            partition.leader_id, _fetch(topic, partition.partition_index, offset), timeout_ms=timeout_ms
        )
        (data,) = answer.responses[0].partitions
        if data.error_code:
            raise ClusterError(f"reading {topic.name} back: error {data.error_code}")
        if not data.records or offset >= data.last_stable_offset:
            return
        for transaction in data.aborted_transactions or []:
            if (transaction.producer_id, transaction.first_offset) not in seen:
                seen.add((transaction.producer_id, transaction.first_offset))
                aborted[transaction.producer_id].append(transaction.first_offset)
        buffer = bytes(data.records)
        for at, header in iterate_batches(buffer, partial=True):
            offset = header.last_offset + 1
            if header.is_control:
                (record,) = iterate_records(buffer, at, header=header)
                if marker_type(record) == ABORT and aborted[header.producer_id]:
                    aborted[header.producer_id].pop(0)
                continue
            begun = aborted.get(header.producer_id)
            if header.is_transactional and begun and header.base_offset >= begun[0]:
                continue
            yield from (record.value or b"" for record in iterate_records(buffer, at, header=header))


def _fetch(topic: Any, partition: int, offset: int) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_FETCH_BYTES,
        isolation_level=_READ_COMMITTED,
        topics=[FetchRequest.FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[wanted])],
    )
