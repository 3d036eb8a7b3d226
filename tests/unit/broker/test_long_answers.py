"""Answers that are long are made by and by, and what is kept of them is what would be made anew."""

from itertools import count
from uuid import UUID

import pytest

from kclient_quota.wire.codec import encode, encode_element
from kclient_quota.wire.messages import (
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
)
from tests.unit.broker.handler_node import Node, versions


def wanted(name):
    return MetadataRequest.MetadataRequestTopic(name=name)


def resource(kind, name):
    return DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name)


def offsets_of(name, partitions):
    return ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=partitions)


def offset(index):
    return ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1)


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


@pytest.mark.parametrize(
    ("request_", "answers"),
    [
        (
            MetadataRequest(
                topics=[wanted(name=f"n{number}") for number in range(2_500)], allow_auto_topic_creation=False
            ),
            "topics",
        ),
        (DescribeGroupsRequest(groups=[f"n{number}" for number in range(2_500)]), "groups"),
        (FindCoordinatorRequest(coordinator_keys=[f"n{number}" for number in range(2_500)]), "coordinators"),
        (DescribeConfigsRequest(resources=[resource(2, f"n{number}") for number in range(2_500)]), "results"),
        (ListOffsetsRequest(topics=[offsets_of("t", [offset(number) for number in range(2_500)])]), "topics"),
        (ListOffsetsRequest(topics=[offsets_of(f"n{number}", []) for number in range(2_500)]), "topics"),
    ],
    ids=["Metadata", "DescribeGroups", "FindCoordinator", "DescribeConfigs", "ListOffsets", "ListOffsets-topics"],
)
def test_whoever_asks_for_very_many_lets_others_have_their_turn(request_, answers):
    node = Node()
    found = node.start(request_, 4)
    turns = 0
    while not found:
        node.scheduler.pass_ms(0)
        turns += 1
    assert turns
    rows = getattr(found[0], answers)
    assert len(rows) == 2_500 or len(rows[0].partitions) == 2_500


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
