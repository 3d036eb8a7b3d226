"""The coordinator of classic groups against what Kafka's GroupMetadataManagerTest expects, in virtual time."""

import pytest

from kclient_quota.broker.groups.classic.group import GroupState
from kclient_quota.broker.groups.classic.requests import JoinResult, Leaver, Pending
from kclient_quota.wire.error_codes import ErrorCode
from tests.unit.broker.coordinator_harness import GROUP, REBALANCE_MS, SESSION_MS, Harness


def test_a_new_member_is_given_its_id_first():
    harness = Harness()
    answer = harness.join()
    assert answer == JoinResult(ErrorCode.MEMBER_ID_REQUIRED, "client-id1")
    joined = harness.join(answer.member_id)
    assert joined.error is ErrorCode.NONE
    assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, "client-id1", "range")
    assert [m.member_id for m in joined.members] == ["client-id1"]


def test_before_version_4_a_new_member_joins_at_once():
    joined = Harness().join(required=False)
    assert joined.error is ErrorCode.NONE


def test_an_id_that_was_handed_out_but_not_used_expires():
    harness = Harness()
    first = harness.join()
    harness.pass_ms(SESSION_MS)
    assert harness.join(first.member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_initial_delay_gathers_members_into_one_generation():
    harness = Harness(initial_rebalance_delay_ms=3_000)
    first = harness.member()
    harness.pass_ms(2_999)
    second = harness.member()
    assert not harness.answers
    harness.pass_ms(1)
    assert not harness.answers, "a member came in meanwhile: held open once more"
    harness.pass_ms(3_000)
    assert [harness.answer(p).generation_id for p in (first, second)] == [1, 1]


def test_the_initial_delay_ends_at_the_rebalance_timeout():
    harness = Harness(initial_rebalance_delay_ms=3_000)
    first = harness.member(rebalance_ms=5_000)
    harness.pass_ms(2_000)
    harness.member(rebalance_ms=5_000)
    harness.pass_ms(1_000)
    harness.member(rebalance_ms=5_000)
    harness.pass_ms(2_000)
    assert len(harness.answers) == 3
    assert harness.now_ms == 5_000
    assert harness.answer(first).generation_id == 1


def test_a_second_member_makes_the_first_rejoin():
    harness = Harness()
    first = harness.member()
    assert harness.sync(first, [(first.member_id, b"all")]).assignment == b"all"
    second = harness.member()
    assert isinstance(second, Pending)
    assert harness.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    again = harness.join(first.member_id)
    assert (again.generation_id, again.leader) == (2, first.member_id)
    assert {m.member_id for m in again.members} == {first.member_id, harness.answer(second).member_id}
    assert harness.answer(second).members == ()


def test_a_member_that_does_not_rejoin_in_time_is_dropped():
    harness = Harness()
    leader, other = harness.stable()
    waiting = harness.member()
    for _ in range(3):
        harness.pass_ms(9_000)
        for joined in (leader, other):
            assert harness.heartbeat(joined) is ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = harness.join(other.member_id)
    harness.pass_ms(3_000)
    assert harness.answer(waiting).generation_id == leader.generation_id + 1
    assert harness.answer(rejoined).leader == other.member_id
    assert harness.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_expired_and_the_others_rebalance():
    harness = Harness()
    leader, other = harness.stable()
    harness.pass_ms(6_000)
    assert harness.heartbeat(leader) is ErrorCode.NONE
    harness.pass_ms(4_000)
    assert harness.group.state is GroupState.PREPARING_REBALANCE
    assert harness.heartbeat(other) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.join(leader.member_id).generation_id == 3


def test_members_that_wait_are_not_expired_for_silence():
    harness = Harness()
    leader, other = harness.stable()
    waiting = harness.member()
    rejoined = harness.join(other.member_id)
    harness.pass_ms(9_000)
    harness.heartbeat(leader)
    harness.pass_ms(9_000)
    harness.heartbeat(leader)
    assert harness.answers.keys().isdisjoint({waiting.ticket, rejoined.ticket})
    harness.join(leader.member_id)
    assert harness.answer(waiting).error is ErrorCode.NONE
    assert harness.answer(rejoined).error is ErrorCode.NONE


def test_members_that_never_sync_are_dropped():
    harness = Harness()
    leader = harness.member()
    waiting = harness.member()
    leader = harness.join(leader.member_id)
    follower = harness.answer(waiting)
    synced = harness.sync(follower)
    harness.pass_ms(9_000)
    harness.heartbeat(leader)
    harness.pass_ms(9_000)
    harness.heartbeat(leader)
    harness.pass_ms(9_000)
    harness.heartbeat(leader)
    harness.pass_ms(3_000)
    assert harness.answer(synced).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.join(follower.member_id).leader == follower.member_id


def test_errors_of_sync_and_heartbeat():
    harness = Harness()
    leader, other = harness.stable()
    assert harness.sync(leader, generation_id=1).error is ErrorCode.ILLEGAL_GENERATION
    assert harness.sync(leader, protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.sync(leader, protocol_name="sticky").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.sync(leader, protocol_type="consumer", protocol_name="range").error is ErrorCode.NONE
    assert harness.sync(JoinResult(ErrorCode.NONE, "who", 2)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.heartbeat(other, generation_id=1) is ErrorCode.ILLEGAL_GENERATION
    assert harness.coordinator.heartbeat("nope", "m", None, 1, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.coordinator.heartbeat("", "m", None, 1, 0) is ErrorCode.INVALID_GROUP_ID


def test_sync_during_the_join_phase_means_rejoin():
    harness = Harness()
    leader, _ = harness.stable()
    harness.member()
    assert harness.sync(leader).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_rejoining_a_stable_group_changes_nothing_the_leader_does():
    harness = Harness()
    leader, other = harness.stable()
    same = harness.join(other.member_id)
    assert (same.generation_id, same.members) == (other.generation_id, ())
    assert isinstance(harness.join(leader.member_id), Pending)
    assert harness.group.state is GroupState.PREPARING_REBALANCE


def test_changed_metadata_of_a_follower_rebalances():
    harness = Harness()
    _, other = harness.stable()
    assert isinstance(harness.join(other.member_id, protocols=(("range", b"other"),)), Pending)


def test_protocols_are_voted_for():
    harness = Harness()
    first = harness.member(protocols=(("range", b"r"), ("sticky", b"s")))
    waiting = harness.member(protocols=(("sticky", b"s"), ("range", b"r")))
    third = harness.member(protocols=(("sticky", b"s"), ("range", b"r"), ("other", b"o")))
    done = harness.join(first.member_id, protocols=(("range", b"r"), ("sticky", b"s")))
    assert done.protocol_name == "sticky"
    assert {m.metadata for m in done.members} == {b"s"}
    assert harness.answer(waiting).protocol_name == harness.answer(third).protocol_name == "sticky"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"protocols": (("sticky", b""),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "x", "instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_join_that_is_refused(changes, error):
    harness = Harness()
    harness.stable()
    assert harness.join(**changes).error is error


def test_an_empty_group_takes_no_member_without_a_protocol_or_type():
    assert Harness().join(protocols=()).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert Harness().join(protocol_type="").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert Harness().join("stranger").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_no_more():
    harness = Harness(max_size=2)
    harness.stable()
    assert harness.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_static_member_restarts_without_a_rebalance():
    harness = Harness()
    first = harness.join(instance="a")
    harness.sync(first, [(first.member_id, b"all")])
    again = harness.join(instance="a")
    assert again.error is ErrorCode.NONE
    assert again.generation_id == first.generation_id
    assert again.member_id != first.member_id
    assert again.skip_assignment
    assert again.leader == again.member_id
    assert harness.sync(again, instance="a").assignment == b"all"
    assert harness.heartbeat(first, instance="a") is ErrorCode.FENCED_INSTANCE_ID
    assert harness.sync(first, instance="a").error is ErrorCode.FENCED_INSTANCE_ID
    assert harness.join(first.member_id, instance="a").error is ErrorCode.FENCED_INSTANCE_ID
    assert harness.group.state is GroupState.STABLE


def test_before_version_9_a_restarted_static_leader_is_shown_its_former_self():
    harness = Harness()
    first = harness.join(instance="a")
    harness.sync(first, [(first.member_id, b"all")])
    again = harness.join(instance="a", skipping=False)
    assert again.leader == first.member_id
    assert not again.skip_assignment


def test_a_static_member_that_waits_is_fenced_by_its_successor():
    harness = Harness()
    first = harness.join(instance="a")
    harness.sync(first, [(first.member_id, b"all")])
    waiting = harness.join(instance="b")
    successor = harness.join(instance="b")
    assert harness.answer(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    harness.join(first.member_id, instance="a")
    assert harness.answer(successor).error is ErrorCode.NONE


def test_a_static_member_with_other_protocols_rebalances():
    harness = Harness()
    first = harness.join(instance="a", protocols=(("range", b""), ("sticky", b"")))
    harness.sync(first, [(first.member_id, b"all")])
    again = harness.join(instance="a", protocols=(("sticky", b""),))
    assert again.generation_id == first.generation_id + 1


def test_static_members_that_are_away_at_a_rebalance_stay_until_their_session_ends():
    harness = Harness()
    first = harness.join(instance="a", session_ms=60_000)
    harness.sync(first, [(first.member_id, b"all")])
    second = harness.join(instance="b", session_ms=60_000)
    harness.pass_ms(REBALANCE_MS)
    joined = harness.answer(second)
    assert {m.group_instance_id for m in joined.members} == {"a", "b"}
    assert joined.leader == joined.member_id


def test_leaving_one_by_one_and_together():
    harness = Harness()
    leader, other, third = harness.stable(3)
    assert harness.leave(Leaver(other.member_id)) == [ErrorCode.NONE]
    assert harness.group.state is GroupState.PREPARING_REBALANCE
    errors = harness.leave(Leaver("who"), Leaver(leader.member_id), Leaver(third.member_id), Leaver("", "nobody"))
    assert errors == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert harness.group.state is GroupState.EMPTY
    assert harness.coordinator.leave("nope", [Leaver("m")], 0) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert harness.coordinator.leave("", [Leaver("m")], 0) is ErrorCode.INVALID_GROUP_ID


def test_leaving_answers_what_the_leaver_still_waits_for():
    harness = Harness()
    leader, _ = harness.stable()
    waiting = harness.member()
    member_id = next(m for m, member in harness.group.members.items() if member.join_ticket)
    assert harness.leave(Leaver(member_id)) == [ErrorCode.NONE]
    assert harness.answer(waiting) == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert harness.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_administrator_removes_a_static_member_by_instance():
    harness = Harness()
    harness.join(instance="a")
    assert harness.leave(Leaver("", "a")) == [ErrorCode.NONE]
    assert not harness.group.members


def test_a_pending_id_can_leave_and_no_longer_holds_up_the_rest():
    harness = Harness()
    leader, other = harness.stable()
    pending = harness.join()
    first = harness.join(leader.member_id)
    second = harness.join(other.member_id, protocols=(("range", b"new"),))
    assert isinstance(second, Pending), "the id handed out is waited for"
    assert harness.leave(Leaver(pending.member_id)) == [ErrorCode.NONE]
    assert harness.answer(first).generation_id == harness.answer(second).generation_id == 3


def test_who_may_commit():
    harness = Harness()
    check = harness.coordinator.validate_offset_commit
    assert check("simple", "", None, -1, 0) is ErrorCode.NONE
    assert harness.coordinator.groups["simple"].state is GroupState.EMPTY
    assert check("nope", "m", None, 1, 0) is ErrorCode.ILLEGAL_GENERATION
    leader, other = harness.stable()
    assert check(GROUP, leader.member_id, None, 2, 0) is ErrorCode.NONE
    assert check(GROUP, leader.member_id, None, 1, 0) is ErrorCode.ILLEGAL_GENERATION
    assert check(GROUP, "who", None, 2, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check(GROUP, "", None, -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check(GROUP, "", None, -1, 0, transactional=True) is ErrorCode.NONE
    harness.join(leader.member_id)
    assert check(GROUP, other.member_id, None, 2, 0) is ErrorCode.NONE, "during the join phase a member may commit"
    harness.join(other.member_id)
    assert harness.group.state is GroupState.COMPLETING_REBALANCE
    assert check(GROUP, other.member_id, None, 3, 0) is ErrorCode.REBALANCE_IN_PROGRESS
    assert check(GROUP, other.member_id, None, 3, 0, transactional=True) is ErrorCode.NONE


def test_a_commit_is_a_sign_of_life():
    harness = Harness()
    (leader,) = harness.stable(1)
    for _ in range(3):
        harness.pass_ms(SESSION_MS - 1)
        assert (
            harness.coordinator.validate_offset_commit(GROUP, leader.member_id, None, 1, harness.now_ms)
            is ErrorCode.NONE
        )
    assert harness.heartbeat(leader) is ErrorCode.NONE


def test_which_groups_may_be_deleted():
    harness = Harness()
    (leader,) = harness.stable(1)
    assert harness.coordinator.delete(GROUP) is ErrorCode.NON_EMPTY_GROUP
    assert harness.coordinator.delete("nope") is ErrorCode.GROUP_ID_NOT_FOUND
    harness.leave(Leaver(leader.member_id))
    assert harness.coordinator.delete(GROUP) is ErrorCode.NONE
    assert harness.coordinator.delete(GROUP) is ErrorCode.GROUP_ID_NOT_FOUND


def test_nothing_is_due_in_an_empty_coordinator():
    harness = Harness()
    assert harness.coordinator.next_deadline_ms() is None
    harness.stable(1)
    assert harness.coordinator.next_deadline_ms() == SESSION_MS
