"""What `__consumer_offsets` and `__share_group_state` say of share groups: the same on both brokers."""

from contextlib import ExitStack

import pytest

from kclient_quota.certify.filling import fill
from kclient_quota.wire.messages import DeleteGroupsRequest, DeleteRecordsRequest
from tests.contract.group_talk import Talk
from tests.contract.test_share_groups_contract import ACCEPT, REJECT, RELEASE, Member, until
from tests.contract.told_records import SHARE_STATE, as_json, assert_internal, latest, plain, records_about

pytestmark = pytest.mark.timeout(240)
MEMBER, GROUP, TARGET_EPOCH, TARGET, CURRENT, STATES = range(10, 16)
SNAPSHOT, UPDATE = 0, 1
INVALID_TOPIC = 17


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def said_of(cluster, group, topic_id):
    return [(kind, key, plain(value, topic_id)) for kind, key, value in as_json(records_about(cluster, group))]


def state_of(cluster, group):
    return as_json(records_about(cluster, group, SHARE_STATE), SHARE_STATE)


def batch(first, last, state, count):
    return {"firstOffset": first, "lastOffset": last, "deliveryState": state, "deliveryCount": count}


def test_a_share_group_and_what_it_has_settled_can_be_read(cluster, stack, unique):
    group, topic = unique("g"), unique("t")
    talk = Talk(cluster, stack)
    topic_id = talk.create(topic)
    member = Member(cluster, stack, group, topic, topic_id)
    member.join()
    its = {"topicId": "its", "partitions": [0]}
    assert latest(said_of(cluster, group, topic_id)) == {
        (MEMBER, member.id): {
            "rackId": None,
            "clientId": "contract",
            "clientHost": "/127.0.0.1",
            "subscribedTopicNames": [topic],
        },
        (GROUP,): {"metadataHash": "a number"},
        (TARGET, member.id): {"topicPartitions": [its]},
        (TARGET_EPOCH,): {"assignmentTimestamp": "a time"},
        (CURRENT, member.id): {"state": 0, "assignedPartitions": [its]},
        (STATES,): {
            "initializingTopics": [],
            "initializedTopics": [{**its, "topicName": topic}],
            "deletingTopics": [],
        },
    }
    ((kind, _, value),) = state_of(cluster, group)
    assert (kind, value["startOffset"], value["stateBatches"]) == (SNAPSHOT, -1, [])

    member.fetch(wait_ms=2_000)  # by then the broker has looked where the topic ends: what is written next is behind it
    fill(cluster.bootstrap_servers, topic, 5, 10, 5)
    got = []
    until(lambda: got.extend(member.fetch(wait_ms=500)[2]) or got)
    assert got == [(0, 4, 1)]
    assert member.fetch((0, 1, ACCEPT), (2, 2, RELEASE))[:2] == (0, 0)
    assert member.fetch((3, 3, REJECT))[:2] == (0, 0)
    updates = [(kind, value) for kind, _, value in state_of(cluster, group)[1:]]
    assert [
        (kind, value["startOffset"], value["deliveryCompleteCount"], value["stateBatches"]) for kind, value in updates
    ] == [
        (UPDATE, 0, 2, [batch(0, 1, 2, 1), batch(2, 2, 0, 1)]),
        (UPDATE, 2, 1, [batch(3, 3, 4, 1)]),
    ]
    assert {value["snapshotEpoch"] for _, value in updates} == {0}

    before = len(said_of(cluster, group, topic_id))
    member.leave()
    left = said_of(cluster, group, topic_id)[before:]
    assert [(kind, value) for kind, _, value in left] == [
        (CURRENT, None),
        (TARGET, None),
        (MEMBER, None),
        (GROUP, {"metadataHash": 0}),
    ]
    until(lambda: talk.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code == 0)
    assert latest(said_of(cluster, group, topic_id)) == {}
    *_, (kind, _, value) = state_of(cluster, group)
    assert (kind, value) == (SNAPSHOT, None)


def test_clients_can_neither_write_nor_delete_records(cluster, stack, unique):
    talk = Talk(cluster, stack)
    topic = unique("t")
    Member(cluster, stack, unique("g"), topic, talk.create(topic)).join()
    assert_internal(cluster, talk, SHARE_STATE)
    part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=-1)
    asked = DeleteRecordsRequest.DeleteRecordsTopic(name=SHARE_STATE, partitions=[part])
    answer = talk.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=10_000), 2)
    assert answer.topics[0].partitions[0].error_code == INVALID_TOPIC
