"""The broker's own metrics, by Kafka's names, of the embedded broker and of Apache Kafka."""

from collections.abc import Callable
from typing import Any

from kclient_quota.wire.messages import ProduceRequest, ProduceResponse
from kclient_quota.wire.records import Record, build_batch
from tests.contract.wire_client import Wire, connected, create_topic

Unique = Callable[[str], str]


def _produce(wire: Wire, topic: str, size: int) -> tuple[int, int]:
    """Bytes that the broker holds against the quota, and its throttle time in ms."""
    batch = bytes(build_batch([Record(value=b"x" * size, timestamp_ms=1_700_000_000_000)]))
    partition = ProduceRequest.PartitionProduceData(index=0, records=batch)
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
    recorded = wire.send(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data]), 9)
    return recorded, wire.receive(ProduceResponse, 9).throttle_time_ms


def _is_rate_of(rate: float, recorded: int) -> bool:
    """The window is ten seconds and what has passed of another one, however long it took to ask."""
    return 0.99 * recorded / 11 <= rate <= 1.01 * recorded / 10


def test_byte_rate_and_throttle_time_of_a_client(cluster: Any, unique: Unique) -> None:
    topic, client_id = unique("t"), unique("app")
    create_topic(cluster, topic)
    cluster.set_quota(client_id=client_id, producer_byte_rate=10_000, request_percentage=1_000)
    with connected(cluster, client_id) as wire:
        recorded, throttle_ms = _produce(wire, topic, 105_000)
        metrics = cluster.metrics()
    tags = f"user=,client-id={client_id}"
    assert _is_rate_of(metrics[1, "Produce", "byte-rate", tags], recorded)
    assert metrics[1, "Produce", "throttle-time", tags] == throttle_ms
    assert metrics[1, "Produce", "queue-size", ""] >= 0
    assert metrics[1, "Request", "request-time", tags] > 0


def test_a_client_without_a_quota_is_measured_once_any_quota_is_set(cluster: Any, unique: Unique) -> None:
    topic, limited, free = unique("t"), unique("limited"), unique("free")
    create_topic(cluster, topic)
    cluster.set_quota(client_id=limited, producer_byte_rate=1_000_000)
    with connected(cluster, free) as wire:
        recorded, throttle_ms = _produce(wire, topic, 5_000)
        found = cluster.metrics()[1, "Produce", "byte-rate", f"user=,client-id={free}"]
    assert throttle_ms == 0
    assert _is_rate_of(found, recorded)
