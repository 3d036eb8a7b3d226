"""Fills a topic beforehand: batches of an exact number of messages, whose values begin with an id."""

from kclient_quota.certify.driver import value_of
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.errors import ClusterError
from kclient_quota.wire.messages import MetadataRequest, ProduceRequest
from kclient_quota.wire.records import Record, build_batch

_CLIENT_ID = "certify-filler"


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
            ((answer,),) = [row.partition_responses for row in client.ask_broker(leaders[partition], request).responses]
            if answer.error_code:
                raise ClusterError(f"filling {topic}: error {answer.error_code}")
