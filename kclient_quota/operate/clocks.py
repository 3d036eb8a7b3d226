"""How far the clock of a cluster is ahead of this machine's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kclient_quota.wire.messages import DescribeQuorumRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient_quota.cluster.client import ClusterClient

_METADATA_TOPIC: Final = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class Skew:
    """What was found.

    Attributes:
        ahead_ms: how far the controller's clock is ahead of ours; below zero, behind.
        uncertain_ms: by so much either way, half of the time that asking took.
    """

    ahead_ms: int
    uncertain_ms: int


def skew(client: ClusterClient, unix_ms: Callable[[], int], *, timeout_ms: int) -> Skew | None:
    """Ask the leader of the controllers (KRaft), who says with its own clock when it was last up to date: now.

    Needs DESCRIBE on the cluster and Kafka 3.3; None from who does not say.

    Args:
        client: whom to ask.
        unix_ms: this machine's wall clock.
        timeout_ms: for the request.

    Raises:
        ClusterError: nobody answers, or brokers are too old.
    """
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = DescribeQuorumRequest.TopicData(topic_name=_METADATA_TOPIC, partitions=[partition])
    begin_ms = unix_ms()
    answer = client.ask(DescribeQuorumRequest(topics=[topic]), timeout_ms=timeout_ms)
    end_ms = unix_ms()
    for data in (each for found in answer.topics for each in found.partitions):
        for voter in data.current_voters:
            if voter.replica_id == data.leader_id and voter.last_caught_up_timestamp > 0:
                return Skew(voter.last_caught_up_timestamp - (begin_ms + end_ms) // 2, (end_ms - begin_ms + 1) // 2)
    return None
