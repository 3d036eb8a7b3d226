"""Groups that turn from the classic to the consumer protocol and back, where a test with clients does not get to."""

import struct

import pytest

from kclient_quota.broker.cluster_state import BROKER
from kclient_quota.broker.groups.embedded_protocol import read_assignment, write_assignment
from kclient_quota.broker.groups.migration import MigrationPolicy
from kclient_quota.errors import ConfigError
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    ListGroupsRequest,
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


def alone(node, metadata=SUBSCRIPTION):
    """A stable classic group of one member."""
    first = node.ask(join_request(metadata=metadata), 9)
    joined = node.ask(join_request(first.member_id, metadata=metadata), 9)
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


def test_a_request_that_is_refused_turns_nothing():
    node = Node()
    joined = alone(node)
    assert beat(node, server_assignor="unknown").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert (kind(node), heartbeat(node, joined)) == ("classic", 0)


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
