"""Fills a topic beforehand: batches of an exact number of messages, whose values begin with an id."""

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
        found = _known(client, topic, clock)
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
            _write(client, leaders[partition], request, topic, clock)


def _known(client: ClusterClient, topic: str, clock: Clock) -> Any:
    """What Metadata says of the topic once every partition has a leader; the broker asked may not have heard of it."""
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
    end_ms = clock.now_ms() + _NEW_MS
    while True:
        (found,) = client.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False)).topics
        errors = [found.error_code, *(partition.error_code for partition in found.partitions)]
        error = next((each for each in errors if each in _NOT_YET), found.error_code)
        if not _again(error, end_ms, clock):
            _refused(topic, error)
            return found


def _write(client: ClusterClient, leader: int, request: ProduceRequest, topic: str, clock: Clock) -> None:
    """Who is told to lead a new topic may not have heard of it yet."""
    end_ms = clock.now_ms() + _NEW_MS
    while True:
        ((answer,),) = [row.partition_responses for row in client.ask_broker(leader, request).responses]
        if not _again(answer.error_code, end_ms, clock):
            _refused(topic, answer.error_code)
            return


def _again(error: int, end_ms: int, clock: Clock) -> bool:
    """Whether to ask again, after a pause: the topic is too new to be known, and there is time left."""
    if error not in _NOT_YET or clock.now_ms() >= end_ms:
        return False
    clock.sleep_ms(_PAUSE_MS)
    return True


def _refused(topic: str, error: int) -> None:
    if error:
        raise ClusterError(f"filling {topic}: {error_name(error)}", error_code=int(error))
