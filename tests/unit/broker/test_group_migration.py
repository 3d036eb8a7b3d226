"""Groups that turn from the classic to the consumer protocol and back, where a test with clients does not get to."""

import struct

import pytest

from kclient_quota.broker.cluster_state import BROKER
from kclient_quota.broker.groups.classic.embedded_protocol import read_assignment, write_assignment
from kclient_quota.broker.groups.migration import MigrationPolicy
from kclient_quota.errors import ConfigError
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    SyncGroupRequest,
)
from tests.unit.broker.handler_node import Node

SUBSCRIPTION = struct.pack(">hih1sii", 1, 1, 1, b"t", -1, 0)
BOTH = {("t", 0), ("t", 1)}
POLICY = "group.consumer.migration.policy"


def node_of(**properties):
    node = Node()
    for key, value in properties.items():
        node.cluster.set_config(BROKER, "", key, value)
    return node


def join_request(member_id="", *, instance=None, protocols=("range",), metadata=SUBSCRIPTION):
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols],
    )


def sync(node, joined, given=None, instance=None):
    request = SyncGroupRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, group_instance_id=instance
    )
    request.assignments = [
        SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
        for member_id, assignment in (given or {}).items()
    ]
    answer = node.ask(request, 5)
    return answer.error_code, read_assignment(answer.assignment)


def alone(node, metadata=SUBSCRIPTION, protocols=("range",)):
    """A stable classic group of one member."""
    first = node.ask(join_request(metadata=metadata, protocols=protocols), 9)
    joined = node.ask(join_request(first.member_id, metadata=metadata, protocols=protocols), 9)
    assert sync(node, joined, {joined.member_id: write_assignment(1, BOTH)}) == (0, BOTH)
    return joined


def beat(node, member_id="m" * 22, epoch=0, **said):
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **said)
    if epoch == 0:
        request.rebalance_timeout_ms, request.topic_partitions = 20_000, []
        request.subscribed_topic_names = ["t"]
    return node.ask(request, 1)


def heartbeat(node, joined):
    request = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    return node.ask(request, 4).error_code


def leave(node, **identities):
    """LeaveGroup of the members with these ids, or instance ids; an error for each."""
    request = LeaveGroupRequest(group_id="g")
    request.members = [
        LeaveGroupRequest.MemberIdentity(**{"member_id": "", name: each})
        for name, ids in identities.items()
        for each in ([ids] if isinstance(ids, str) else ids)
    ]
    return [member.error_code for member in node.ask(request, 4).members]


def kind(node):
    (group,) = node.ask(ListGroupsRequest(), 5).groups
    return group.group_type


@pytest.mark.parametrize("policy", list(MigrationPolicy))
def test_the_policy_says_which_way_groups_may_turn(policy):
    node = node_of(**{POLICY: policy.upper()})
    joined = alone(node)
    if not policy.upgrades:
        assert beat(node).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (kind(node), heartbeat(node, joined)) == ("classic", 0)
        return
    assert beat(node).error_code == 0
    assert (kind(node), heartbeat(node, joined)) == ("consumer", ErrorCode.REBALANCE_IN_PROGRESS)
    assert beat(node, epoch=-1).error_code == 0
    assert kind(node) == ("classic" if policy.downgrades else "consumer")


def test_a_policy_that_is_none():
    with pytest.raises(ConfigError, match="use one of disabled, downgrade, upgrade, bidirectional"):
        MigrationPolicy.of("both")


@pytest.mark.parametrize("metadata", [b"", b"\0\1\0\0", struct.pack(">hi", 1, 5)])
def test_a_group_whose_members_say_nothing_readable_stays_as_it_is(metadata):
    node = Node()
    joined = alone(node, metadata)
    assert beat(node).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert heartbeat(node, joined) == 0
    assert beat(node, subscribed_topic_regex="(").error_code == ErrorCode.GROUP_ID_NOT_FOUND


REFUSED = [
    (ErrorCode.UNSUPPORTED_ASSIGNOR, {"server_assignor": "unknown"}),
    (ErrorCode.INVALID_REGULAR_EXPRESSION, {"subscribed_topic_regex": "("}),
    (ErrorCode.INVALID_REQUEST, {"instance_id": " "}),
    (ErrorCode.GROUP_ID_NOT_FOUND, {"epoch": 5}),
    (ErrorCode.GROUP_ID_NOT_FOUND, {"epoch": 5, "instance_id": "i"}),
    (ErrorCode.GROUP_MAX_SIZE_REACHED, {}),
    (ErrorCode.GROUP_MAX_SIZE_REACHED, {"instance_id": "i"}),
]


@pytest.mark.parametrize(("error", "said"), REFUSED)
def test_a_request_that_is_refused_turns_nothing(error, said):
    node = node_of(**{"group.consumer.max.size": "1"})
    joined = alone(node)
    assert beat(node, **said).error_code == error
    assert (kind(node), heartbeat(node, joined)) == ("classic", 0)


def test_a_member_of_a_full_group_may_turn_it():
    node = node_of(**{"group.consumer.max.size": "1"})
    joined = alone(node)
    assert beat(node, joined.member_id).error_code == 0
    assert kind(node) == "consumer"


@pytest.mark.parametrize("said", [{"epoch": 5}, {"epoch": -1}, {"server_assignor": "unknown"}])
def test_a_request_that_is_refused_leaves_an_empty_classic_group(said):
    node = Node()
    joined = alone(node)
    assert leave(node, member_id=joined.member_id) == [0]
    assert beat(node, **said).error_code != 0
    assert kind(node) == "classic"
    assert beat(node).error_code == 0
    assert kind(node) == "consumer"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "who has been away"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_join_that_is_refused_leaves_an_empty_group_of_the_other_protocol(said, error):
    node = Node()
    assert beat(node).error_code == 0
    assert beat(node, epoch=-1).error_code == 0
    request = join_request()
    for name, value in said.items():
        setattr(request, name, value)
    assert node.ask(request, 9).error_code == error
    assert kind(node) == "consumer"
    alone(node)
    assert kind(node) == "classic"


def test_a_newcomer_that_does_not_know_the_running_protocol_waits_while_another_turns_the_group():
    node = Node()
    first = alone(node, protocols=("range", "roundrobin"))
    second = node.ask(join_request(protocols=("roundrobin",)), 9)
    waiting = node.start(join_request(second.member_id, protocols=("roundrobin",)), 9)
    assert not waiting
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t")
    topic.partitions = [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)]
    (answer,) = node.ask(OffsetDeleteRequest(group_id="g", topics=[topic]), 0).topics
    assert answer.partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert beat(node).error_code == 0
    assert [answer.error_code for answer in waiting] == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert (kind(node), heartbeat(node, first)) == ("consumer", ErrorCode.REBALANCE_IN_PROGRESS)


def test_who_waits_to_join_or_sync_is_told_to_join_again():
    node = Node()
    first = alone(node)
    second = node.ask(join_request(), 9)
    waiting = node.start(join_request(second.member_id), 9)
    assert not waiting
    assert beat(node).error_code == 0
    assert [answer.error_code for answer in waiting] == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert heartbeat(node, first) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = node.ask(join_request(second.member_id), 9)
    assert (joined.error_code, sync(node, joined)[0]) == (0, 0)


def test_the_group_is_classic_again_when_the_session_of_its_last_other_member_ends():
    node = node_of(**{"group.consumer.session.timeout.ms": "5000"})
    joined = alone(node)
    assert beat(node).error_code == 0
    joined = node.ask(join_request(joined.member_id), 9)
    assert sync(node, joined)[0] == 0
    node.scheduler.pass_ms(4_999)
    assert kind(node) == "consumer"
    node.scheduler.pass_ms(1)
    assert kind(node) == "classic"
    assert heartbeat(node, joined) == ErrorCode.REBALANCE_IN_PROGRESS
    again = node.ask(join_request(joined.member_id), 9)
    assert (again.leader, again.generation_id) == (joined.member_id, joined.generation_id + 1)


def test_a_static_member_of_the_classic_protocol_takes_the_place_of_the_last_other_one():
    node = Node()
    assert beat(node, instance_id="i").error_code == 0
    joined = node.ask(join_request(instance="i"), 9)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert kind(node) == "classic"
    assert sync(node, joined, instance="i") == (0, BOTH), "with its partitions, and without a rebalance"
    assert heartbeat(node, joined) == 0
    assert node.ask(join_request("other", instance="i"), 9).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_classic_member_that_does_not_come_when_it_is_told_to_is_given_up():
    node = node_of(**{"group.consumer.session.timeout.ms": "60000"})
    joined = alone(node)
    modern = beat(node)
    owned = []
    for _ in range(21):
        # it sends heartbeats, and nothing else
        assert heartbeat(node, joined) == ErrorCode.REBALANCE_IN_PROGRESS
        assert beat(node, epoch=modern.member_epoch, topic_partitions=owned).error_code == 0
        node.scheduler.pass_ms(1_000)
        if not node.service.consumer_groups.groups["g"].members.get(joined.member_id):
            break
    assert heartbeat(node, joined) == ErrorCode.UNKNOWN_MEMBER_ID
    answer = beat(node, epoch=modern.member_epoch, topic_partitions=owned)
    assert {index for topic in answer.assignment.topic_partitions for index in topic.partitions} == {0, 1}


def all_classic(node):
    """A group of the consumer protocol with none but classic members in it: two static ones, and a third."""
    joined = alone(node)
    assert beat(node).error_code == 0
    assert node.ask(join_request(instance="i"), 9).error_code == 0
    assert node.ask(join_request(instance="k"), 9).error_code == 0
    assert node.ask(join_request("m" * 22), 9).error_code == 0, "the member of the other protocol, by this one"
    assert kind(node) == "consumer"
    return node.ask(join_request(joined.member_id), 9)


def test_members_that_leave_together_leave_the_others_a_classic_group():
    node = Node()
    joined = all_classic(node)
    assert leave(node, member_id=["m" * 22, "nobody"], group_instance_id=["i", "k", "i"]) == [0, 25, 0, 0, 0]
    assert (kind(node), heartbeat(node, joined)) == ("classic", ErrorCode.REBALANCE_IN_PROGRESS)
    again = node.ask(join_request(joined.member_id), 9)
    assert [member.member_id for member in again.members] == [joined.member_id]


def test_members_that_leave_together_are_the_last_of_either_protocol():
    node = Node()
    joined = alone(node)
    assert beat(node, instance_id="i").error_code == 0
    assert node.ask(join_request(instance="k"), 9).error_code == 0
    joined = node.ask(join_request(joined.member_id), 9)
    assert leave(node, group_instance_id=["i", "k"]) == [0, 0]
    assert (kind(node), heartbeat(node, joined)) == ("classic", ErrorCode.REBALANCE_IN_PROGRESS)


def test_all_members_leave_together():
    node = Node()
    joined = all_classic(node)
    assert leave(node, member_id=[joined.member_id, "m" * 22], group_instance_id=["i", "k"]) == [0, 0, 0, 0]
    (group,) = node.ask(ListGroupsRequest(), 5).groups
    assert (group.group_state, group.group_type) == ("Empty", "consumer")
    assert alone(node).error_code == 0


def test_a_classic_static_member_reads_what_it_says_not_what_its_former_self_did():
    node = Node()
    node.cluster.create_topic("t2", 1)
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m" * 22, instance_id="i", subscribed_topic_regex="t.*", server_assignor="range"
    )
    request.rebalance_timeout_ms, request.topic_partitions = 20_000, []
    assert node.ask(request, 1).error_code == 0
    assert beat(node, "n" * 22).error_code == 0
    joined = node.ask(join_request(instance="i"), 9)
    assert joined.error_code == 0
    group = node.service.consumer_group("g")
    member = group.members[joined.member_id]
    assert (member.topics, member.regex, member.assignor) == ({"t"}, None, None)
    assert not group.is_subscribed_to("t2")
