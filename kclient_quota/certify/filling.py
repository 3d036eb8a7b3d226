"""Fills a topic beforehand: batches of an exact number of messages, whose values begin with an id."""

from kclient_quota.certify.driver import value_of
from kclient_quota.clock import SYSTEM_CLOCK
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


def fill(bootstrap_servers: str, topic: str, messages: int, size: int, per_batch: int) -> None:
    """Write ids from 0 on, batch by batch, to the partitions in turn.

    Raises:
        ClusterError: the cluster refuses.
    """
    conf = {"bootstrap.servers": bootstrap_servers, "client.id": _CLIENT_ID}
    with ClusterClient(conf, SYSTEM_CLOCK) as client:
        (found,) = client.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])).topics
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
            error = _write(client, leaders[partition], request)
            if error:
                raise ClusterError(f"filling {topic}: {error_name(error)}")


def _write(client: ClusterClient, leader: int, request: ProduceRequest) -> int:
    """Kafka's error code; who is told to lead a new topic may not have heard of it yet."""
    end_ms = SYSTEM_CLOCK.now_ms() + _NEW_MS
    while True:
        ((answer,),) = [row.partition_responses for row in client.ask_broker(leader, request).responses]
        if answer.error_code not in _NOT_YET or SYSTEM_CLOCK.now_ms() >= end_ms:
            return int(answer.error_code)
        SYSTEM_CLOCK.sleep_ms(_PAUSE_MS)
