"""What `__consumer_offsets` says of KIP-848 groups: the same on both brokers, in the words of Kafka's own classes."""

import pytest

from kclient_quota.wire.messages import DeleteGroupsRequest
from tests.contract.group_talk import commit, leave
from tests.contract.test_group_migration_contract import ClassicReader, alone, subscription
from tests.contract.test_groups_kip848_contract import Reader, beat, settle
from tests.contract.told_records import as_json, compacted, latest, plain, records_about

pytestmark = pytest.mark.timeout(240)
COMMITTED, CLASSIC, GROUP, PARTITIONS, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX = 1, 2, 3, 4, 5, 6, 7, 8, 16
A, B = "a" * 22, "b" * 22
STABLE, UNREVOKED = 0, 1


def said_of(cluster, group, topic_id):
    """Everything that is said of a group, in order, without what differs from time to time."""
    return [(kind, key, plain(value, topic_id)) for kind, key, value in as_json(records_about(cluster, group))]


def member(topic=None, **other):
    return {
        "instanceId": None,
        "rackId": None,
        "clientId": "kclient-quota",
        "clientHost": "/127.0.0.1",
        "subscribedTopicNames": [] if topic is None else [topic],
        "subscribedTopicRegex": "",
        "rebalanceTimeoutMs": 20_000,
        "serverAssignor": None,
        "classicMemberMetadata": None,
        **other,
    }


def parts(*indexes, **more):
    return [{"topicId": "its", "partitions": list(indexes), **more}] if indexes else []


def target(*indexes):
    return {"topicPartitions": parts(*indexes)}


def current(*indexes, revoking=(), state=STABLE):
    return {
        "state": state,
        "assignedPartitions": parts(*indexes, assignmentEpochs=len(indexes)),
        "partitionsPendingRevocation": parts(*revoking, assignmentEpochs=len(revoking)),
    }


GROUP_KNOWN = {"metadataHash": "a number"}
COMPUTED = {"assignmentTimestamp": "a time"}


def test_members_come_and_go_and_the_group_is_deleted(cluster, talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic, 2)
    talk.ready(group)
    one = Reader(talk, group, topic, topic_id, A, rack_id="here", server_assignor="range")
    settle(lambda: sorted(one.owned) == [0, 1], one)
    first = said_of(cluster, group, topic_id)
    told = compacted(first)
    assert [(kind, value) for kind, _, value in told] == [
        (MEMBER, member(topic, rackId="here", serverAssignor="range")),
        (GROUP, GROUP_KNOWN),
        (TARGET, target(0, 1)),
        (TARGET_EPOCH, COMPUTED),
        (CURRENT, current(0, 1)),
    ]
    assert [key for _, key, _ in told] == [
        {"groupId": group, **({"memberId": A} if kind in {MEMBER, TARGET, CURRENT} else {})} for kind, _, _ in told
    ]

    other = Reader(talk, group, topic, topic_id, B)
    settle(lambda: len(one.owned) == len(other.owned) == 1, one, other)
    both = said_of(cluster, group, topic_id)[len(first) :]
    assert latest(both) == {
        (MEMBER, B): member(topic),
        (GROUP,): GROUP_KNOWN,
        (TARGET, A): target(*one.owned),
        (TARGET, B): target(*other.owned),
        (TARGET_EPOCH,): COMPUTED,
        (CURRENT, A): current(*one.owned),
        (CURRENT, B): current(*other.owned),
    }
    assert current(*one.owned, revoking=other.owned, state=UNREVOKED) in [value for _, _, value in both]

    assert commit(talk, group, topic, 5, member_id=B, generation=other.epoch) == 0
    before = len(said_of(cluster, group, topic_id))
    for who in (A, B):
        assert beat(talk, group, who, -1).error_code == 0
    assert talk.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code == 0
    last = said_of(cluster, group, topic_id)[before:]
    assert [(kind, key.get("memberId"), value) for kind, key, value in last if kind != COMMITTED] == [
        (CURRENT, A, None),
        (TARGET, A, None),
        (MEMBER, A, None),
        (GROUP, None, GROUP_KNOWN),
        (CURRENT, B, None),
        (TARGET, B, None),
        (MEMBER, B, None),
        (GROUP, None, {}),
        (TARGET_EPOCH, None, None),
        (PARTITIONS, None, None),
        (GROUP, None, None),
    ]
    assert latest(said_of(cluster, group, topic_id)) == {}


def test_a_static_member_goes_away_and_another_takes_its_place(cluster, talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic, 2)
    talk.ready(group)
    one = Reader(talk, group, topic, topic_id, A, instance_id="i")
    settle(lambda: sorted(one.owned) == [0, 1], one)
    assert beat(talk, group, A, -2, instance_id="i").error_code == 0
    away = as_json(records_about(cluster, group))
    assert (away[-1][0], away[-1][2]["memberEpoch"]) == (CURRENT, -2)
    assert away[-1][2]["assignedPartitions"][0]["assignmentEpochs"] == [0, 0]

    two = Reader(talk, group, topic, topic_id, B, instance_id="i")
    settle(lambda: sorted(two.owned) == [0, 1], two)
    assert latest(said_of(cluster, group, topic_id)) == {
        (MEMBER, B): member(topic, instanceId="i"),
        (GROUP,): GROUP_KNOWN,
        (TARGET, B): target(0, 1),
        (TARGET_EPOCH,): COMPUTED,
        (CURRENT, B): current(0, 1),
    }


def test_a_regular_expression_is_told_with_its_topics_until_its_last_member_leaves(cluster, talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic, 1)
    talk.ready(group)
    one = Reader(talk, group, None, topic_id, A, subscribed_topic_regex=f"{topic}.*")
    settle(lambda: one.owned == (0,), one)
    assert latest(said_of(cluster, group, topic_id)) == {
        (MEMBER, A): member(subscribedTopicRegex=f"{topic}.*"),
        (REGEX, f"{topic}.*"): {"topics": [topic]},
        (GROUP,): GROUP_KNOWN,
        (TARGET, A): target(0),
        (TARGET_EPOCH,): COMPUTED,
        (CURRENT, A): current(0),
    }
    assert beat(talk, group, A, -1).error_code == 0
    left = said_of(cluster, group, topic_id)
    assert [(kind, value) for kind, _, value in left[-5:]] == [
        (CURRENT, None),
        (TARGET, None),
        (MEMBER, None),
        (REGEX, None),
        (GROUP, {}),
    ]


def test_a_group_turns_to_the_consumer_protocol_and_back(cluster, talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic, 2)
    talk.ready(group)
    classic = alone(talk, group, topic)
    assert [kind for kind, *_ in latest(said_of(cluster, group, topic_id))] == [CLASSIC]

    modern = Reader(talk, group, topic, topic_id, B)
    settle(lambda: len(classic.owned) == len(modern.owned) == 1, classic, modern)
    found = latest(said_of(cluster, group, topic_id))
    said = found.pop((MEMBER, classic.member_id))
    assert said["classicMemberMetadata"]["sessionTimeoutMs"] == 60_000
    assert [one["name"] for one in said["classicMemberMetadata"]["supportedProtocols"]] == ["range"]
    assert {**said, "classicMemberMetadata": None} == member(topic, rebalanceTimeoutMs=60_000)
    assert found == {
        (MEMBER, B): member(topic),
        (GROUP,): GROUP_KNOWN,
        (TARGET, classic.member_id): target(*classic.owned),
        (TARGET, B): target(*modern.owned),
        (TARGET_EPOCH,): COMPUTED,
        (CURRENT, classic.member_id): current(*classic.owned),
        (CURRENT, B): current(*modern.owned),
    }

    assert beat(talk, group, B, -1).error_code == 0
    *_, turned = rows = said_of(cluster, group, topic_id)
    assert (turned[0], [one["memberId"] for one in turned[2]["members"]]) == (CLASSIC, [classic.member_id])
    assert (turned[2]["protocolType"], turned[2]["protocol"], turned[2]["leader"]) == (
        "consumer",
        "range",
        classic.member_id,
    )
    assert [kind for kind, *_ in latest(rows)] == [CLASSIC]
    assert leave(talk, group, (classic.member_id, None)) == (0, [0])


def test_a_classic_member_takes_the_name_of_an_empty_group(cluster, talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic, 2)
    talk.ready(group)
    assert beat(talk, group, A, subscribed_topic_names=[topic]).error_code == 0
    assert beat(talk, group, A, -1).error_code == 0
    assert list(latest(said_of(cluster, group, topic_id))) == [(GROUP,), (TARGET_EPOCH,)]
    reader = ClassicReader(talk, group, topic)
    assert reader.join().error_code == 0
    assert reader.sync({reader.member_id: subscription(topic)}) == 0
    assert list(latest(said_of(cluster, group, topic_id))) == [(CLASSIC,)]
