"""Log directories, elections, reassignments, the quorum, topics page by page, and lists of access nobody keeps."""

from uuid import UUID

import pytest

from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeLogDirsRequest,
    DescribeQuorumRequest,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from tests.unit.broker.handler_node import Node, versions


@pytest.fixture
def node():
    made = Node(brokers=3)
    made.cluster._new_topic_id = lambda: UUID(int=8)
    made.cluster.create_topic("spread", 2, assignment={0: [1, 2], 1: [2, 3]})
    return made


def reassign(node, index, replicas, *, topic="spread", version=1, **changes):
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=replicas)
    wanted = AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[partition])
    answer = node.ask(AlterPartitionReassignmentsRequest(topics=[wanted], **changes), version)
    (row,) = answer.responses[0].partitions
    return row.error_code


@versions(AlterPartitionReassignmentsRequest)
def test_a_reassignment_is_done_at_once_and_the_leader_stays_if_it_may(node, version):
    partition = node.cluster.topics["spread"].partitions[0]
    assert reassign(node, 0, [3, 1], version=version) == ErrorCode.NONE
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ([3, 1], 1, 0)
    assert reassign(node, 0, [3, 2], version=version) == ErrorCode.NONE
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ([3, 2], 3, 1)
    assert node.ask(ListPartitionReassignmentsRequest(), 0).topics == []


@pytest.mark.parametrize(
    ("index", "replicas", "error"),
    [
        (9, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, [1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, [1, 7], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_an_impossible_reassignment_changes_nothing(node, index, replicas, error):
    assert reassign(node, index, replicas) == error
    assert node.cluster.topics["spread"].partitions[0].replicas == [1, 2]


def test_the_replication_factor_changes_only_where_it_may(node):
    refused = reassign(node, 0, [1, 2, 3], allow_replication_factor_change=False)
    assert refused == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(node, 0, [1, 2, 3]) == ErrorCode.NONE


def elect(node, version=2, *, kind=0, partitions=(0,), topic="spread"):
    wanted = None if partitions is None else [
        ElectLeadersRequest.TopicPartitions(topic=topic, partitions=list(partitions))
    ]  # fmt: skip
    answer = node.ask(ElectLeadersRequest(election_type=kind, topic_partitions=wanted), version)
    return {
        (row.topic, partition.partition_id): partition.error_code
        for row in answer.replica_election_results
        for partition in row.partition_result
    }


@versions(ElectLeadersRequest)
def test_the_preferred_leader_is_elected_where_another_one_leads(node, version):
    assert elect(node, version) == {("spread", 0): ErrorCode.ELECTION_NOT_NEEDED}
    reassign(node, 0, [3, 1])
    assert elect(node, version, partitions=None) == {("spread", 0): ErrorCode.NONE}
    assert node.cluster.topics["spread"].partitions[0].leader == 3
    assert elect(node, version, partitions=None) == {}
    assert elect(node, version, topic="nowhere") == {("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_who_is_down_is_not_elected(node):
    reassign(node, 0, [3, 1])
    node.cluster.brokers[3].is_up = False
    assert elect(node) == {("spread", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert elect(node, kind=1) == {("spread", 0): ErrorCode.ELECTION_NOT_NEEDED}
    for number in (1, 2):
        node.cluster.set_broker_up(number, is_up=False)
    assert elect(node, kind=1) == {("spread", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    assert node.ask(ElectLeadersRequest(election_type=7), 2).error_code == ErrorCode.INVALID_REQUEST


@versions(DescribeLogDirsRequest)
def test_a_broker_describes_the_replicas_that_it_has(node, version):
    (directory,) = node.ask(DescribeLogDirsRequest(topics=None), version).results
    assert {topic.name: [row.partition_index for row in topic.partitions] for topic in directory.topics} == {
        "t": [0],
        "spread": [0],
    }
    wanted = [DescribeLogDirsRequest.DescribableLogDirTopic(topic="spread", partitions=[0, 1])]
    (directory,) = node.ask(DescribeLogDirsRequest(topics=wanted), version).results
    assert [(topic.name, len(topic.partitions)) for topic in directory.topics] == [("spread", 1)]


@versions(AlterReplicaLogDirsRequest)
def test_there_is_one_directory(node, version):
    here = node.ask(DescribeLogDirsRequest(topics=None), 1).results[0].log_dir

    def move(path, topic="spread", index=0):
        moved = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[index])
        request = AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[moved])]
        )
        return node.ask(request, version).results[0].partitions[0].error_code

    assert move(here) == ErrorCode.NONE
    assert move("elsewhere") == ErrorCode.LOG_DIR_NOT_FOUND
    assert move(here, index=1) == ErrorCode.REPLICA_NOT_AVAILABLE
    assert move(here, topic="nowhere") == ErrorCode.REPLICA_NOT_AVAILABLE


@versions(DescribeQuorumRequest)
def test_the_brokers_are_the_quorum(node, version):
    def ask(name):
        rows = [DescribeQuorumRequest.PartitionData(partition_index=0)]
        request = DescribeQuorumRequest(topics=[DescribeQuorumRequest.TopicData(topic_name=name, partitions=rows)])
        return node.ask(request, version)

    (row,) = ask("__cluster_metadata").topics[0].partitions
    assert (row.leader_id, [voter.replica_id for voter in row.current_voters], row.observers) == (1, [1, 2, 3], [])
    assert ask("t").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_come_page_by_page(node):
    node.cluster._new_topic_id = lambda: UUID(int=9)
    node.cluster.create_topic("big", 7)
    seen, cursor, pages = [], None, 0
    while True:
        answer = node.ask(DescribeTopicPartitionsRequest(response_partition_limit=3, cursor=cursor), 0)
        seen += [(topic.name, row.partition_index) for topic in answer.topics for row in topic.partitions]
        pages += 1
        if answer.next_cursor is None:
            break
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
        )
    everything = [("big", index) for index in range(7)] + [("spread", 0), ("spread", 1), ("t", 0), ("t", 1)]
    assert (seen, pages) == (everything, 4)


def test_a_topic_that_is_not_there_is_named(node):
    wanted = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in ("absent", "t", "b/d")]
    answer = node.ask(DescribeTopicPartitionsRequest(topics=wanted), 0)
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "b/d": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "t": ErrorCode.NONE,
    }


@versions(DescribeAclsRequest)
def test_without_an_authoriser_there_are_no_acls(node, version):
    assert node.ask(DescribeAclsRequest(), version).error_code == ErrorCode.SECURITY_DISABLED
    creation = CreateAclsRequest.AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*")
    made = node.ask(CreateAclsRequest(creations=[creation, creation]), version).results
    assert [row.error_code for row in made] == [ErrorCode.SECURITY_DISABLED] * 2
    gone = node.ask(DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter()]), version).filter_results
    assert [row.error_code for row in gone] == [ErrorCode.SECURITY_DISABLED]
