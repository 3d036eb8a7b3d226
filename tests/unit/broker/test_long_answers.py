"""Answers that are long are made by and by, and what is kept of them is what would be made anew."""

from itertools import count
from uuid import UUID

from kclient_quota.wire.codec import encode, encode_element
from kclient_quota.wire.messages import MetadataRequest, MetadataResponse
from tests.unit.broker.handler_node import Node, versions


def described(node, version):
    answers = node.start(MetadataRequest(topics=None if version else []), version)
    turns = 0
    while not answers:
        node.scheduler.pass_ms(0)
        turns += 1
    return node.through_codec(answers[0], version), turns


@versions(MetadataRequest)
def test_an_element_may_be_encoded_before(version):
    partition = MetadataResponse.MetadataResponsePartition(partition_index=1, leader_id=2, replica_nodes=[2, 3])
    topic = MetadataResponse.MetadataResponseTopic(name="t", partitions=[partition])
    plain = encode(MetadataResponse(topics=[topic, topic]), version)
    topic.partitions = [encode_element(partition, version)]
    assert encode(MetadataResponse(topics=[topic, encode_element(topic, version)]), version) == plain


@versions(MetadataRequest)
def test_others_have_their_turn_and_what_has_changed_is_told(version):
    node = Node(brokers=2)
    ids = count(100)
    node.cluster._new_topic_id = lambda: UUID(int=next(ids))
    for number in range(30):
        node.cluster.create_topic(f"many-{number}", 100)
    first, turns = described(node, version)
    assert turns
    assert sum(len(topic.partitions) for topic in first.topics) == 3_002
    assert described(node, version) == (first, 0)
    node.cluster.add_partitions(node.cluster.topics["many-7"], 101)
    node.cluster.delete_topic("many-8")
    after, _ = described(node, version)
    assert len(after.topics) == len(first.topics) - 1
    assert {len(topic.partitions) for topic in after.topics} == {2, 100, 101}
    node.cluster.set_broker_up(1, is_up=False)
    after, _ = described(node, version)
    assert {partition.leader_id for topic in after.topics for partition in topic.partitions} == {2, -1}
