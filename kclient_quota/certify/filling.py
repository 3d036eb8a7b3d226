"""Fills a topic beforehand: batches of an exact number of messages, whose values begin with an id."""

from collections.abc import Callable
from functools import partial
from typing import Any

from kclient_quota.certify.driver import value_of
from kclient_quota.clock import SYSTEM_CLOCK, Clock
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.errors import ClusterError
from kclient_quota.wire.error_codes import ErrorCode, error_name
from kclient_quota.wire.messages import MetadataRequest, ProduceRequest
from kclient_quota.wire.records import Record, build_batch

_CLIENT_ID = "certify-filler"
_NEW_MS, _PAUSE_MS = 30_000, 100
_NOT_YET = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


def fill(
    bootstrap_servers: str, topic: str, messages: int, size: int, per_batch: int, *, clock: Clock = SYSTEM_CLOCK
) -> None:
    """Write ids from 0 on, batch by batch, to the partitions in turn; a topic just created is waited for.

    Raises:
        ClusterError: the cluster refuses, or does not know the topic for half a minute.
    """
    conf = {"bootstrap.servers": bootstrap_servers, "client.id": _CLIENT_ID}
    with ClusterClient(conf, SYSTEM_CLOCK) as client:
        found = _once_known(topic, clock, partial(_described, client, topic))
        leaders = {partition.partition_index: partition.leader_id for partition in found.partitions}
        for number, first in enumerate(range(0, messages, per_batch)):
            ids = range(first, min(first + per_batch, messages))
            batch = build_batch([Record(value=value_of(message_id, size)) for message_id in ids])
            partition = number % len(leaders)
            data = ProduceRequest.PartitionProduceData(index=partition, records=bytes(batch))
            request = ProduceRequest(
                acks=-1,
                timeout_ms=10_000,
                topic_data=[
                    ProduceRequest.TopicProduceData(name=topic, topic_id=found.topic_id, partition_data=[data])
                ],
            )
            _once_known(topic, clock, partial(_written, client, leaders[partition], request))


def _once_known(topic: str, clock: Clock, ask: Callable[[], tuple[int, Any]]) -> Any:
    """The answer beside the error code; asked again for a while if the broker has yet to hear of the topic."""
    end_ms = clock.now_ms() + _NEW_MS
    while True:
        error, answer = ask()
        if error not in _NOT_YET or clock.now_ms() >= end_ms:
            break
        clock.sleep_ms(_PAUSE_MS)
    if error:
        raise ClusterError(f"filling {topic}: {error_name(error)}", error_code=int(error))
    return answer


def _described(client: ClusterClient, topic: str) -> tuple[int, Any]:
    """What Metadata says of the topic; an error as long as not every partition has a leader."""
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
    (found,) = client.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False)).topics
    errors = (partition.error_code for partition in found.partitions if partition.error_code in _NOT_YET)
    return found.error_code or next(errors, 0), found


def _written(client: ClusterClient, leader: int, request: ProduceRequest) -> tuple[int, Any]:
    """What the leader says, who may not have heard of the topic either."""
    ((answer,),) = [row.partition_responses for row in client.ask_broker(leader, request).responses]
    return answer.error_code, answer
