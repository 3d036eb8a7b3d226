"""The handlers of groups, offsets and SASL in every version they advertise, through the codec, without sockets."""

from uuid import UUID

from kclient_quota.broker.groups.group_service import coordinator_id
from kclient_quota.broker.handlers import REGISTRY
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    API,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    SyncGroupRequest,
)
from tests.unit.broker.handler_node import GROUP, TOPIC_ID, Node, versions


@versions(JoinGroupRequest)
def test_join(version):
    joined = Node().joined(version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id == joined.members[0].member_id
    assert joined.members[0].metadata == b"m"


@versions(JoinGroupRequest)
def test_a_refused_join(version):
    refused = Node().join(version, "stranger")
    assert (refused.error_code, refused.generation_id) == (ErrorCode.UNKNOWN_MEMBER_ID, -1)


@versions(SyncGroupRequest)
def test_sync(version):
    node = Node()
    joined = node.joined()
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")],
    )
    assert node.ask(request, version).assignment == b"mine"
    request.generation_id = 7
    assert node.ask(request, version).error_code == ErrorCode.ILLEGAL_GENERATION


@versions(HeartbeatRequest)
def test_heartbeat_and_expiry(version):
    node = Node()
    joined = node.stable()
    request = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=joined.member_id)
    node.scheduler.pass_ms(9_999)
    assert node.ask(request, version).error_code == 0
    node.scheduler.pass_ms(10_000)
    assert node.ask(request, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@versions(LeaveGroupRequest)
def test_leave(version):
    node = Node()
    joined = node.stable()
    request = LeaveGroupRequest(group_id=GROUP)
    if version >= 3:
        request.members = [
            LeaveGroupRequest.MemberIdentity(member_id=joined.member_id),
            LeaveGroupRequest.MemberIdentity(member_id="who"),
        ]
        answer = node.ask(request, version)
        assert [m.error_code for m in answer.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    else:
        request.member_id = joined.member_id
        assert node.ask(request, version).error_code == 0
        assert node.ask(request, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_join_that_waits_is_answered_by_the_others_rejoin():
    node = Node()
    first = node.stable()
    member_id = node.join(9).member_id
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )
    waiting = node.start(request, 9)
    assert waiting == []
    again = node.join(9, first.member_id)
    assert again.generation_id == 2
    assert (waiting[0].generation_id, waiting[0].leader) == (2, first.member_id)


def test_a_join_that_waits_is_answered_by_the_clock():
    node = Node()
    node.stable()
    member_id = node.join(9).member_id
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )
    waiting = node.start(request, 9)
    node.scheduler.pass_ms(10_000)
    assert waiting[0].leader == member_id, "the silent member's session ended"


@versions(FindCoordinatorRequest)
def test_find_coordinator(version):
    node = Node(brokers=3)
    request = FindCoordinatorRequest(key_type=0)
    if version >= 4:
        request.coordinator_keys = ["g1", "g2"]
        answer = node.ask(request, version)
        assert [c.key for c in answer.coordinators] == ["g1", "g2"]
        found = answer.coordinators[0]
    else:
        request.key = "g1"
        found = node.ask(request, version)
    assert (found.error_code, found.node_id) == (0, coordinator_id(node.cluster, "g1"))
    assert found.port == 9000 + found.node_id


def test_coordinators_are_spread_as_kafka_spreads_them():
    node = Node(brokers=3)
    # Java: "hello".hashCode() is 99162322 (share 22), "polygenelubricants" has the smallest int (share 0, Utils.abs),
    # "ü😀" 2015071 (share 21), "orders" -1008770331 (share 31).
    shares = {"hello": 22, "polygenelubricants": 0, "ü😀": 21, "orders": 31}
    assert {key: coordinator_id(node.cluster, key) for key in shares} == {k: s % 3 + 1 for k, s in shares.items()}
    assert {coordinator_id(node.cluster, f"g{i}") for i in range(50)} == {1, 2, 3}
    before = {f"g{i}": coordinator_id(node.cluster, f"g{i}") for i in range(50)}
    node.cluster.set_broker_up(2, is_up=False)
    moved = [key for key, broker in before.items() if coordinator_id(node.cluster, key) != broker]
    assert {before[key] for key in moved} == {2}
    for broker in (1, 3):
        node.cluster.set_broker_up(broker, is_up=False)
    answer = node.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0]
    assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


def test_other_coordinator_types_are_refused():
    answer = Node().ask(FindCoordinatorRequest(key_type=2, coordinator_keys=["g"]), 6).coordinators[0]
    assert answer.error_code == 42


def test_another_broker_is_not_the_coordinator():
    node = Node(brokers=3)
    node.broker = node.cluster.brokers[next(b for b in (1, 2, 3) if b != coordinator_id(node.cluster, GROUP))]
    code = ErrorCode.NOT_COORDINATOR
    assert node.join(9).error_code == code
    assert node.ask(SyncGroupRequest(group_id=GROUP), 5).error_code == code
    assert node.ask(HeartbeatRequest(group_id=GROUP), 4).error_code == code
    assert node.ask(LeaveGroupRequest(group_id=GROUP), 5).error_code == code
    assert node.ask(DescribeGroupsRequest(groups=[GROUP]), 6).groups[0].error_code == code
    assert node.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2).results[0].error_code == code
    assert node.ask(OffsetDeleteRequest(group_id=GROUP), 0).error_code == code
    assert commit(node, 9).topics[0].partitions[0].error_code == code
    assert fetch(node, 8).groups[0].error_code == code


@versions(DescribeGroupsRequest)
def test_describe(version):
    node = Node()
    joined = node.stable()
    request = DescribeGroupsRequest(groups=[GROUP, "nope"], include_authorized_operations=version >= 3)
    group, unknown = node.ask(request, version).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    assert [(m.member_id, m.client_id, m.client_host) for m in group.members] == [(joined.member_id, "c", "/127.0.0.1")]
    assert (group.members[0].member_metadata, group.members[0].member_assignment) == (b"m", b"mine")
    assert unknown.group_state == "Dead"
    assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


@versions(ListGroupsRequest)
def test_list(version):
    node = Node()
    node.stable()
    (group,) = node.ask(ListGroupsRequest(), version).groups
    assert (group.group_id, group.protocol_type) == (GROUP, "consumer")
    if version >= 4:
        assert group.group_state == "Stable"
        assert node.ask(ListGroupsRequest(states_filter=["empty"]), version).groups == []
    if version >= 5:
        assert group.group_type == "classic"
        assert node.ask(ListGroupsRequest(types_filter=["Consumer"]), version).groups == []


@versions(DeleteGroupsRequest)
def test_delete(version):
    node = Node()
    commit(node, 9)
    node.service.coordinator.get_or_create("empty")
    request = DeleteGroupsRequest(groups_names=[GROUP, "empty", "nope"])
    codes = [r.error_code for r in node.ask(request, version).results]
    assert codes == [0, 0, ErrorCode.GROUP_ID_NOT_FOUND]
    assert list(node.service.offsets.fetch_all(GROUP)) == []


def commit(node, version, *, topic="t", topic_id=TOPIC_ID, metadata="note", member_id="", generation=-1):
    partitions = [
        OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=5, committed_leader_epoch=-1, committed_metadata=metadata
        )
        for index in (0, 9)
    ]
    named = OffsetCommitRequest.OffsetCommitRequestTopic(partitions=partitions)
    if version >= 10:
        named.topic_id = topic_id
    else:
        named.name = topic
    request = OffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=generation, member_id=member_id, topics=[named]
    )
    return node.ask(request, version)


def fetch(node, version, *, everything=False, topic="t", topic_id=TOPIC_ID, stable=False):
    request = OffsetFetchRequest(require_stable=stable)
    indexes = [0, 1]
    if version >= 8:
        named = OffsetFetchRequest.OffsetFetchRequestTopics(partition_indexes=indexes)
        if version >= 10:
            named.topic_id = topic_id
        else:
            named.name = topic
        topics = None if everything else [named]
        request.groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)]
    else:
        request.group_id = GROUP
        named = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
        request.topics = None if everything else [named]
    return node.ask(request, version)


def fetched(response, version):
    topics = response.groups[0].topics if version >= 8 else response.topics
    return [(p.partition_index, p.committed_offset, p.metadata, p.error_code) for t in topics for p in t.partitions]


@versions(OffsetCommitRequest)
def test_commit(version):
    node = Node()
    codes = [p.error_code for p in commit(node, version).topics[0].partitions]
    assert codes == [0, 3]
    assert fetched(fetch(node, 8), 8) == [(0, 5, "note", 0), (1, -1, "", 0)]


def test_commits_that_are_refused():
    node = Node()
    assert commit(node, 9, topic="nope").topics[0].partitions[0].error_code == 3
    assert commit(node, 10, topic_id=UUID(int=1)).topics[0].partitions[0].error_code == 100
    assert commit(node, 9, metadata="x" * 4097).topics[0].partitions[0].error_code == 12
    assert commit(node, 9, member_id="m", generation=3).topics[0].partitions[0].error_code == 25
    joined = node.stable()
    assert commit(node, 9).topics[0].partitions[0].error_code == 25
    assert commit(node, 9, member_id=joined.member_id, generation=1).topics[0].partitions[0].error_code == 0


@versions(OffsetCommitRequest)
def test_a_commit_with_a_generation_to_a_group_that_is_not_there(version):
    answer = commit(Node(), version, member_id="m", generation=3)
    assert answer.topics[0].partitions[0].error_code == (69 if version >= 9 else 22)


@versions(OffsetFetchRequest)
def test_fetch(version):
    node = Node()
    commit(node, 9)
    assert fetched(fetch(node, version), version) == [(0, 5, "note", 0), (1, -1, "", 0)]
    if version >= 2:
        assert fetched(fetch(node, version, everything=True), version) == [(0, 5, "note", 0)]
    if version >= 10:
        assert fetched(fetch(node, version, topic_id=UUID(int=1)), version)[0][3] == 100


def test_offsets_go_with_their_topic():
    node = Node()
    commit(node, 9)
    node.cluster.delete_topic("t")
    assert fetched(fetch(node, 9, everything=True), 9) == []
    node.cluster.create_topic("t", 2, topic_id=TOPIC_ID)
    commit(node, 9)
    node.cluster.delete_topic("t")
    node.cluster.create_topic("t", 2, topic_id=UUID(int=8))
    assert fetched(fetch(node, 9), 9) == [(0, -1, "", 0), (1, -1, "", 0)]


def test_fetching_what_a_transaction_is_about_to_change():
    node = Node()
    commit(node, 9)
    node.service.offsets.commit_pending(1, GROUP, "t", 0, node.service.offsets.fetch(GROUP, "t", 0))
    assert fetched(fetch(node, 9, stable=True), 9)[0] == (0, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert fetched(fetch(node, 9), 9)[0] == (0, 5, "note", 0)


def test_version_1_has_no_place_for_the_groups_error():
    node = Node(brokers=3)
    node.broker = node.cluster.brokers[next(b for b in (1, 2, 3) if b != coordinator_id(node.cluster, GROUP))]
    assert [p[3] for p in fetched(fetch(node, 1), 1)] == [16, 16]
    assert fetch(node, 2).error_code == 16


def test_offset_delete():
    node = Node()
    commit(node, 9)
    partitions = [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=i) for i in (0, 9)]
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=partitions)
    request = OffsetDeleteRequest(group_id=GROUP, topics=[topic])
    assert [p.error_code for p in node.ask(request, 0).topics[0].partitions] == [0, 3]
    assert fetched(fetch(node, 8), 8)[0] == (0, -1, "", 0)
    node.stable()
    assert [p.error_code for p in node.ask(request, 0).topics[0].partitions] == [86, 3], "its metadata is unreadable"
    request.group_id = "nope"
    assert node.ask(request, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def sasl(node, mechanism, token, version=2):
    node.connection.listener = "SASL_PLAINTEXT"
    shake = node.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    return shake, node.ask(SaslAuthenticateRequest(auth_bytes=token), version)


@versions(SaslAuthenticateRequest)
def test_sasl(version):
    node = Node()
    node.cluster.users["alice"] = "secret"
    node.connection.is_authenticated = False
    shake, answer = sasl(node, "PLAIN", b"\0alice\0secret", version)
    assert (shake.error_code, shake.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    assert answer.error_code == 0
    assert (node.connection.principal, node.connection.is_authenticated) == ("alice", True)
    assert not node.connection.close_after_response


def test_sasl_failures_close_the_connection():
    node = Node()
    node.connection.is_authenticated = False
    _, answer = sasl(node, "PLAIN", b"\0alice\0secret")
    assert (answer.error_code, answer.error_message) == (58, "Authentication failed: Invalid username or password")
    assert node.connection.close_after_response
    assert not node.connection.is_authenticated
    node = Node()
    node.connection.is_authenticated = False
    shake, answer = sasl(node, "GSSAPI", b"")
    assert (shake.error_code, answer.error_code) == (33, 34)
    assert node.connection.close_after_response


def test_there_is_no_sasl_on_a_plain_listener():
    node = Node()
    node.cluster.users["alice"] = "secret"
    assert node.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 34
    assert node.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2).error_code == 34
    assert node.connection.principal == "ANONYMOUS"


def test_every_api_of_these_families_is_registered():
    assert {8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 36, 42, 47} <= REGISTRY.keys()
    for key in (8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47):
        assert REGISTRY[key].max_version == API[key].max_version
