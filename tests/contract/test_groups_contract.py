"""Classic groups and offsets request by request: the same error codes and values on both brokers."""

import threading
import time
import uuid

from kclient_quota.wire.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
)
from tests.contract.group_talk import (
    commit,
    fetch_offsets,
    heartbeat,
    join,
    join_request,
    leave,
    stable,
    sync,
)


def test_a_member_from_join_to_leave(talk, unique):
    group = unique("g")
    talk.ready(group)
    first = join(talk, group)
    assert (first.error_code, first.generation_id, first.leader, first.members) == (79, -1, "", [])
    joined = join(talk, group, first.member_id)
    assert (joined.error_code, joined.generation_id, joined.protocol_type, joined.protocol_name) == (
        0,
        1,
        "consumer",
        "range",
    )
    assert (joined.leader, joined.skip_assignment) == (joined.member_id, False)
    assert [(m.member_id, m.metadata) for m in joined.members] == [(joined.member_id, b"m")]
    assert heartbeat(talk, group, joined.member_id, 1) == 0
    synced = sync(talk, group, joined, {joined.member_id: b"all"})
    assert (synced.error_code, synced.protocol_name, synced.assignment) == (0, "range", b"all")
    assert heartbeat(talk, group, joined.member_id, 1) == 0
    assert heartbeat(talk, group, joined.member_id, 2) == 22
    assert heartbeat(talk, group, joined.member_id, 0) == 22
    assert heartbeat(talk, group, "who", 1) == 25
    assert heartbeat(talk, unique("other"), "who", 1) == 25
    assert leave(talk, group, ("who", None), (joined.member_id, None)) == (0, [25, 0])
    assert heartbeat(talk, group, joined.member_id, 1) == 25


def test_joins_that_are_refused(talk, unique):
    group = unique("g")
    stable(talk, group)
    assert join(talk, group, protocols=(("sticky", b""),)).error_code == 23
    assert join(talk, group, protocols=()).error_code == 23
    assert join(talk, group, protocol_type="connect").error_code == 23
    assert join(talk, group, session_timeout_ms=1).error_code == 26
    assert join(talk, group, session_timeout_ms=1_800_001).error_code == 26
    assert join(talk, group, "who").error_code == 25
    assert join(talk, group, "who", instance="i").error_code == 25
    assert join(talk, unique("other"), "who").error_code == 25
    assert join(talk, "").error_code == 24
    assert join(talk, unique("empty"), protocols=()).error_code == 23


def test_syncs_that_are_refused(talk, unique):
    group = unique("g")
    joined = stable(talk, group)
    assert sync(talk, group, joined, generation=7).error_code == 22
    assert sync(talk, group, joined, protocol_type="connect").error_code == 23
    assert sync(talk, group, joined, protocol_name="sticky").error_code == 23
    assert sync(talk, group, joined).assignment == b"all"
    joined.member_id = "who"
    assert sync(talk, group, joined).error_code == 25
    assert sync(talk, unique("other"), joined).error_code == 25


def test_a_second_member_and_the_leaders_rejoin(talk, unique):
    group = unique("g")
    leader = stable(talk, group)
    second_id = join(talk, group).member_id
    answers, other = [], talk.open()
    waiting = threading.Thread(
        target=lambda: answers.append(talk.ask(join_request(group, second_id), 9, connection=other))
    )
    waiting.start()
    deadline = time.monotonic() + 60
    while heartbeat(talk, group, leader.member_id, 1) != 27:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert sync(talk, group, leader).error_code == 27
    again = join(talk, group, leader.member_id)
    waiting.join(60)
    assert (again.generation_id, again.leader) == (2, leader.member_id)
    assert {m.member_id for m in again.members} == {leader.member_id, second_id}
    assert (answers[0].generation_id, answers[0].leader, answers[0].members) == (2, leader.member_id, [])
    assert join(talk, group, second_id).generation_id == 2, "a follower that asks again is told again"
    assert leave(talk, group, (leader.member_id, None), (second_id, None)) == (0, [0, 0])


def test_a_static_member_returns(talk, unique):
    group = unique("g")
    first = stable(talk, group, instance="i")
    again = join(talk, group, instance="i")
    assert (again.error_code, again.generation_id, again.skip_assignment) == (0, 1, True)
    assert again.leader == again.member_id != first.member_id
    assert sync(talk, group, again, instance="i").assignment == b"all"
    assert heartbeat(talk, group, first.member_id, 1, "i") == 82
    assert heartbeat(talk, group, first.member_id, 1) == 25
    assert sync(talk, group, first, instance="i").error_code == 82
    assert join(talk, group, first.member_id, instance="i").error_code == 82
    older = join(talk, group, version=8, instance="i")
    assert (older.error_code, older.leader) == (0, again.member_id)
    assert leave(talk, group, ("", "nobody"), (again.member_id, "i"), ("", "i")) == (0, [25, 82, 0])


def test_describing_listing_and_deleting(talk, unique):
    group = unique("g")
    joined = stable(talk, group)

    def describe(name, version):
        (found,) = talk.ask(DescribeGroupsRequest(groups=[name]), version).groups
        return found

    found = describe(group, 5)
    assert (found.error_code, found.group_state, found.protocol_type, found.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    (member,) = found.members
    assert (member.member_id, member.member_metadata, member.member_assignment) == (joined.member_id, b"m", b"all")
    unknown = unique("nope")
    assert (describe(unknown, 5).group_state, describe(unknown, 5).error_code) == ("Dead", 0)
    assert (describe(unknown, 6).group_state, describe(unknown, 6).error_code) == ("Dead", 69)

    def listed(**filters):
        found = talk.ask(ListGroupsRequest(**filters), 5).groups
        return [(g.protocol_type, g.group_state, g.group_type.lower()) for g in found if g.group_id == group]

    assert listed() == listed(states_filter=["stable"]) == listed(types_filter=["classic"])
    assert listed() == [("consumer", "Stable", "classic")]
    assert listed(states_filter=["Empty"]) == listed(types_filter=["consumer"]) == []

    def delete(*names):
        results = talk.ask(DeleteGroupsRequest(groups_names=list(names)), 2).results
        return {r.group_id: r.error_code for r in results}

    assert delete(group, unknown) == {group: 68, unknown: 69}
    leave(talk, group, (joined.member_id, None))
    assert delete(group) == {group: 0}
    assert delete(group) == {group: 69}


def test_offsets_of_a_group_without_members(talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic)
    talk.ready(group)
    assert fetch_offsets(talk, group, topic) == (0, [(0, -1, "", 0)])
    assert fetch_offsets(talk, group) == (0, [])
    assert commit(talk, group, topic, member_id="m", generation=3, version=8) == 22
    assert commit(talk, group, topic, member_id="m", generation=3, version=9) == 69
    assert commit(talk, group, topic) == 0
    assert commit(talk, group, topic, partition=7) == 3
    assert commit(talk, group, unique("nope")) == 3
    assert commit(talk, group, uuid.uuid4(), version=10) == 100
    assert commit(talk, group, topic, metadata="x" * 4097) == 12
    assert fetch_offsets(talk, group, topic) == fetch_offsets(talk, group) == (0, [(0, 5, "note", 0)])
    assert commit(talk, group, topic_id, 6, version=10) == 0
    assert fetch_offsets(talk, group, topic_id, version=10) == (0, [(0, 6, "note", 0)])
    assert fetch_offsets(talk, group, uuid.uuid4(), version=10)[1][0][3] == 100
    assert commit(talk, group, topic, member_id="m", generation=3) == 25


def test_who_may_commit_to_a_group_with_members(talk, unique):
    group, topic = unique("g"), unique("t")
    talk.create(topic)
    member = stable(talk, group).member_id
    assert commit(talk, group, topic, member_id=member, generation=1) == 0
    assert commit(talk, group, topic, member_id=member, generation=2) == 22
    assert commit(talk, group, topic, member_id="who", generation=1) == 25
    assert commit(talk, group, topic) == 25


def test_deleting_offsets(talk, unique):
    group, topic = unique("g"), unique("t")
    talk.create(topic)
    talk.ready(group)
    commit(talk, group, topic)

    def delete(name):
        parts = [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=i) for i in (0, 9)]
        topics = [OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=parts)]
        answer = talk.ask(OffsetDeleteRequest(group_id=name, topics=topics), 0)
        return answer.error_code, sorted((p.partition_index, p.error_code) for t in answer.topics for p in t.partitions)

    assert delete(unique("nope"))[0] == 69
    assert delete(group) == (0, [(0, 0), (9, 3)])
    assert fetch_offsets(talk, group, topic) == (0, [(0, -1, "", 0)])
    other = unique("connect")
    talk.ready(other)
    first = join(talk, other, protocol_type="connect")
    join(talk, other, first.member_id, protocol_type="connect")
    assert delete(other)[0] == 68
