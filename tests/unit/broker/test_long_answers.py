"""Answers that are long are made by and by, and what is kept of them is what would be made anew."""

from itertools import count
from uuid import UUID

import pytest

from kclient_quota.broker.authorizer import Acl
from kclient_quota.broker.request.context import AT_ONCE
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeTopicPartitionsRequest,
    FetchRequest,
    ListGroupsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from kclient_quota.wire.records import Record, build_batch
from tests.unit.broker.enforced_cluster import Cluster
from tests.unit.broker.enforced_cluster import ManualScheduler as TurnByTurn
from tests.unit.broker.handler_node import Node, versions
from tests.unit.broker.long_requests import INDEXES, LONG, MANY, NAMES, VERSIONS, partitions, resource, rows_of, wanted


def described(node, version):
    answers = node.start(MetadataRequest(topics=None if version else []), version)
    turns = 0
    while not answers:
        node.scheduler.pass_ms(0)
        turns += 1
    return node.through_codec(answers[0], version), turns


@pytest.mark.parametrize("name", LONG)
def test_whoever_asks_for_very_many_lets_others_have_their_turn(name):
    node = Node()
    request, version = LONG[name], VERSIONS.get(name, 4)
    calls = []
    plain = node.scheduler.call_at
    node.scheduler.call_at = lambda *call: calls.append(call) or plain(*call)
    found = node.start(request, version)
    assert not found
    node.scheduler.pass_ms(0)
    assert not isinstance(found[0], Exception), found[0]
    assert len(calls) >= 2, "others' turn after every thousand"
    rows = list(rows_of(found[0]))
    assert max(len(rows), *(len(list(rows_of(row))) for row in rows)) in {MANY, MANY + 1}, "one more is the broker"


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


def committed(node, group, topic="t", count=1):
    rows = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=7)
        for index in range(count)
    ]
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=rows)]
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics)
    assert len(list(rows_of(rows_of_turns(node, request, 8)[0]))) == 1


def rows_of_turns(node, request, version):
    """The answer, and how often the broker was asked for another turn."""
    calls, plain = [], node.scheduler.call_at
    node.scheduler.call_at = lambda *call: calls.append(call) or plain(*call)
    answers = node.start(request, version)
    node.scheduler.pass_ms(0)
    node.scheduler.call_at = plain
    return node.through_codec(answers[0], version), len(calls)


def many_groups(node):
    for name in NAMES:
        node.service.coordinator.get_or_create(name)


def many_quotas(node):
    for name in NAMES:
        node.cluster.set_quota(ClientQuotaEntity({"client-id": name}), "producer_byte_rate", 1e6)


def many_positions(node):
    node.cluster.create_topic("big", MANY)
    committed(node, "g", "big", MANY)


def many_topics(node):
    for name in NAMES:
        node.cluster.create_topic(name, 1)


def many_keys(node):
    for number in range(100):
        node.cluster.create_topic(f"c{number}", 1)


def many_acls(node):
    node.cluster.authorizer.configure(is_enabled=True, super_users=["User:ANONYMOUS"], allows_unlisted=False)
    for name in reversed(NAMES):
        node.cluster.authorizer.add(acl(name))


def acl(name, principal="User:u"):
    return Acl(2, name, 3, principal, "*", 3, 3)


NAMELESS = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
ANY = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1, **NAMELESS}
ALL_OF_A_GROUP = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
ABOUT_ALL = {
    "ListGroups": (many_groups, ListGroupsRequest(), 5, MANY),
    "DescribeAcls": (many_acls, DescribeAclsRequest(**ANY), 3, MANY),
    "DescribeClientQuotas": (many_quotas, DescribeClientQuotasRequest(components=[]), 1, MANY),
    "OffsetFetch": (many_positions, OffsetFetchRequest(groups=[ALL_OF_A_GROUP]), 9, MANY),
    "DescribeTopicPartitions": (many_topics, DescribeTopicPartitionsRequest(topics=[]), 0, 2_000),
    "DescribeConfigs": (
        many_keys,
        DescribeConfigsRequest(resources=[resource(2, f"c{number}") for number in range(100)]),
        4,
        100,
    ),
}


@pytest.mark.parametrize("name", ABOUT_ALL)
def test_short_requests_for_very_much_let_others_have_their_turn(name):
    prepare, request, version, wanted = ABOUT_ALL[name]
    node = Node()
    prepare(node)
    answer, turns = rows_of_turns(node, request, version)
    assert turns >= 2
    rows = list(rows_of(answer))
    if name == "OffsetFetch":
        rows = list(rows_of(rows[0].topics[0]))
        assert {row.committed_offset for row in rows} == {7}
    assert len(rows) == wanted


def test_entries_about_all_are_looked_through_and_taken_away_in_turns():
    node = Node()
    many_acls(node)
    for number in range(MANY):
        node.cluster.authorizer.add(acl("one", f"User:u{number}"))
    one = DeleteAclsRequest.DeleteAclsFilter(**{**ANY, "resource_type_filter": 2, "resource_name_filter": "one"})
    answer, turns = rows_of_turns(node, DeleteAclsRequest(filters=[one]), 3)
    assert turns >= 5, "5,000 are looked at, and 2,500 taken away"
    assert len(answer.filter_results[0].matching_acls) == MANY
    described, _ = rows_of_turns(node, DescribeAclsRequest(**ANY), 3)
    assert [row.resource_name for row in described.resources] == sorted(NAMES)
    every = DeleteAclsRequest.DeleteAclsFilter(**ANY)
    answer, _ = rows_of_turns(node, DeleteAclsRequest(filters=[every, every]), 3)
    assert [len(row.matching_acls) for row in answer.filter_results] == [MANY, 0]


def test_an_entry_that_is_taken_away_meanwhile_is_not_said_to_have_been_taken():
    node = Node()
    many_acls(node)
    every = DeleteAclsRequest.DeleteAclsFilter(**ANY)
    node.scheduler = TurnByTurn()
    answers = node.start(DeleteAclsRequest(filters=[every]), 3)
    assert not answers
    node.cluster.authorizer.remove(acl(NAMES[0]))
    while not answers:
        node.scheduler.pass_ms(0)
    (found,) = node.through_codec(answers[0], 3).filter_results
    assert {row.resource_name for row in found.matching_acls} == set(NAMES[1:])


def test_positions_in_a_topic_that_is_deleted_meanwhile_are_not_told():
    node = Node()
    many_positions(node)
    committed(node, "g")
    answers = node.start(OffsetFetchRequest(groups=[ALL_OF_A_GROUP]), 9)
    assert not answers
    node.cluster.delete_topic("big")
    node.scheduler.pass_ms(0)
    (group,) = node.through_codec(answers[0], 9).groups
    assert [topic.name for topic in group.topics] == ["t"]


@pytest.mark.parametrize("part", [0, MANY - 1])
@pytest.mark.parametrize("turns", [6, 10, 20, 40])
def test_what_comes_while_a_long_fetch_begins_to_wait_ends_its_waiting(part, turns):
    node = Node()
    node.cluster.create_topic("big", MANY)
    rows = partitions(FetchRequest.FetchPartition, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic="big", partitions=rows)
    node.scheduler = TurnByTurn()
    answers = node.start(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[topic]), 12)
    for _ in range(turns):
        # it is all read, some are watched, it waits
        node.scheduler.pass_ms(0)
    assert not answers
    batch = build_batch([Record(b"v", timestamp_ms=0)])
    log = node.cluster.topics["big"].partitions[part].log
    log.append(batch, leader_epoch=0, now_ms=0)
    for _ in range(120):
        node.scheduler.pass_ms(0)
    assert sum(len(row.records or b"") for row in answers[0].responses[0].partitions) == len(batch)
    assert not any(partition.log._watchers for partition in node.cluster.topics["big"].partitions)


BIG = MetadataRequest(topics=[wanted("big")])
ONE_BIG = {
    "create": CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name="big", num_partitions=MANY, replication_factor=1)]
    ),
    "grow": CreatePartitionsRequest(
        topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=MANY, assignments=None)]
    ),
    "named": BIG,
    "all": MetadataRequest(topics=None),
    "all-with-operations": MetadataRequest(topics=None, include_topic_authorized_operations=True),
    "session": FetchRequest(
        session_epoch=0,
        topics=[FetchRequest.FetchTopic(topic="t", partitions=partitions(FetchRequest.FetchPartition))],
    ),
}


def answered(cluster, request, version):
    """The answer, and how often others had their turn meanwhile."""
    turns = 0
    cluster.send(request, version)
    while cluster.outcome is None:
        cluster.scheduler.pass_ms(0)
        turns += 1
    return cluster._response(request.__schema__.api_key, version), turns


@pytest.mark.parametrize("name", ONE_BIG)
def test_one_topic_of_very_many_partitions_is_as_long_as_many_topics(name):
    cluster = Cluster()
    if name not in {"create", "grow"}:
        cluster.state.create_topic("big", MANY)
    answer, turns = answered(cluster, ONE_BIG[name], {"create": 5, "grow": 2, "session": 11}.get(name, 8))
    assert turns >= MANY // AT_ONCE, "others' turn after every thousand"
    if name == "session":
        assert len(answer.responses[0].partitions) == MANY
        assert answer.session_id
    elif name in {"create", "grow"}:
        assert max(len(topic.partitions) for topic in cluster.state.topics.values()) == MANY
    else:
        assert max(len(topic.partitions) for topic in answer.topics) == MANY


def test_what_is_made_ahead_is_as_if_it_had_been_made_at_once():
    cluster = Cluster(brokers=2)
    assert cluster.send(ONE_BIG["create"], 5) is None
    assert "big" not in cluster.state.topics, "not before it is whole"
    cluster.state.set_broker_up(2, is_up=False)
    while cluster.outcome is None:
        cluster.scheduler.pass_ms(0)
    made = cluster.state.topics["big"].partitions
    assert [partition.index for partition in made] == list(INDEXES)
    assert {(tuple(partition.replicas), partition.leader) for partition in made} == {((1,), 1), ((2,), -1)}
    assert {id(partition.log.config) for partition in made} == {id(made[0].log.config)}
    answer, _ = answered(cluster, ONE_BIG["create"], 5)
    assert answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name="big", count=2 * MANY, assignments=None)
    answer, _ = answered(cluster, CreatePartitionsRequest(topics=[grown]), 2)
    assert answer.results[0].error_code == 0
    assert [partition.index for partition in made] == list(range(2 * MANY))
