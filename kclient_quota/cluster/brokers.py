"""The brokers of a cluster and who leads what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kclient_quota.wire.endpoint import DEFAULT_TIMEOUT_MS
from kclient_quota.wire.messages import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from kclient_quota.cluster.client import ClusterClient


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker, as it is advertised on the listener we came by."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """What Metadata says.

    Attributes:
        cluster_id: the cluster's id; None from brokers older than 0.10.1.
        controller_id: node id of the controller; in KRaft of a broker that stands for it.
        brokers: by node id.
        leaders: node id of the leader by topic and partition, -1 without one.
        topic_errors: Kafka's error code of topics that could not be described.
    """

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, Broker]
    leaders: dict[tuple[str, int], int]
    topic_errors: dict[str, int]


def describe_cluster(
    client: ClusterClient, topics: Iterable[str] | None = (), *, timeout_ms: int = DEFAULT_TIMEOUT_MS
) -> ClusterMetadata:
    """Brokers, and the leaders of some topics.

    Args:
        client: whom to ask.
        topics: none by default; None means all. Nothing is created by asking.
        timeout_ms: for the whole.

    Raises:
        ClusterError: the cluster did not answer.
    """
    wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    response = client.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), timeout_ms=timeout_ms)
    return ClusterMetadata(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        brokers={
            found.node_id: Broker(found.node_id, found.host, found.port, found.rack) for found in response.brokers
        },
        leaders={
            (topic.name, partition.partition_index): partition.leader_id
            for topic in response.topics
            for partition in topic.partitions
        },
        topic_errors={topic.name: topic.error_code for topic in response.topics if topic.error_code},
    )


def topic_ids(client: ClusterClient, topics: Iterable[str], *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> dict[str, UUID]:
    """Ids of topics that are there; the nil UUID where brokers have none (before Kafka 2.8).

    Args:
        client: whom to ask.
        topics: which. Nothing is created by asking.
        timeout_ms: for the whole.

    Raises:
        ClusterError: the cluster did not answer.
    """
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    response = client.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), timeout_ms=timeout_ms)
    return {topic.name: topic.topic_id for topic in response.topics if not topic.error_code}
