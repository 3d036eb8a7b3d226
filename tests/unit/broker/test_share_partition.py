"""What a share group has of a partition: acquired, given back, settled, in virtual time."""

from uuid import UUID

import pytest

from kclient_quota.broker.groups.in_steps import at_once
from kclient_quota.broker.shares.share_group import ShareBeat, ShareGroupConfig, ShareGroupCoordinator
from kclient_quota.broker.shares.share_partition import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    SharePartition,
    ShareRules,
    Wanted,
)
from kclient_quota.broker.shares.share_records import Acquired, RecordState
from kclient_quota.wire.error_codes import ErrorCode

RULES = ShareRules(max_deliveries=3, lock_ms=1_000, max_locks=20)
BATCHES = [(first, first + 4) for first in range(0, 40, 5)]
MANY = Wanted(500, 500)


@pytest.fixture
def kept() -> SharePartition:
    return SharePartition(0)


def take(kept: SharePartition, member: str = "a", wanted: Wanted = MANY, now_ms: int = 0) -> list[Acquired]:
    return kept.acquire(member, [batch for batch in BATCHES if batch[1] >= kept.next_offset()], wanted, RULES, now_ms)


def say(kept: SharePartition, first: int, last: int, *types: int, member: str = "a", now_ms: int = 0) -> ErrorCode:
    return kept.acknowledge(member, [Acknowledgement(first, last, types)], RULES, now_ms)[0]


def test_batches_are_acquired_whole_up_to_the_locks_that_there_are(kept: SharePartition) -> None:
    assert take(kept, wanted=Wanted(7, 500)) == [Acquired(0, 9, 1)]
    assert take(kept) == [Acquired(10, 19, 1)]
    assert not kept.has_room(RULES)
    assert take(kept) == []
    say(kept, 3, 4, RELEASE)
    assert take(kept, "b") == [Acquired(3, 4, 2)]


def test_what_compaction_has_left_empty_is_passed_over(kept: SharePartition) -> None:
    fetched = [(0, 4), (300_000, 300_004), (900_000, 900_009)]
    assert kept.acquire("a", fetched, Wanted(500, 500), RULES, 0) == [Acquired(0, 4, 1)]
    assert kept.acquire("a", fetched[1:], Wanted(500, 500), RULES, 0) == [Acquired(300_000, 300_004, 1)]
    assert len(kept.deliveries()) == 10
    say(kept, 0, 4, ACCEPT)
    say(kept, 300_000, 300_004, ACCEPT)
    assert kept.start_offset == 300_005


def test_as_many_as_were_asked_for_where_that_is_strict(kept: SharePartition) -> None:
    strict = Wanted(3, 500, strict=True)
    assert take(kept, wanted=strict) == [Acquired(0, 2, 1)]
    assert take(kept, "b", strict) == [Acquired(3, 4, 1), Acquired(5, 5, 1)]
    assert take(kept, "b", strict) == [Acquired(6, 8, 1)]


def test_what_is_told_of_is_split_between_batches(kept: SharePartition) -> None:
    assert take(kept, wanted=Wanted(15, 4)) == [Acquired(0, 4, 1), Acquired(5, 9, 1), Acquired(10, 14, 1)]


def test_a_lock_runs_out_unless_it_is_renewed(kept: SharePartition) -> None:
    take(kept, wanted=Wanted(10, 500))
    assert say(kept, 5, 9, RENEW, now_ms=600) is ErrorCode.NONE
    assert kept.next_deadline_ms() == 1_000
    assert not kept.expire(RULES, 999)
    assert kept.expire(RULES, 1_000)
    assert kept.next_offset() == 0
    assert kept.next_deadline_ms() == 1_600
    assert say(kept, 0, 4, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    assert take(kept, "b", Wanted(1, 500), 1_000) == [Acquired(0, 4, 2)]


def test_locks_that_run_out_too_often_archive_what_nobody_was_given(kept: SharePartition) -> None:
    for now_ms in range(0, 30_000, 1_000):
        take(kept, wanted=Wanted(10, 500), now_ms=now_ms)
        kept.expire(RULES, now_ms + 1_000)
    assert kept.start_offset > 9


def test_what_was_taken_back_was_never_delivered(kept: SharePartition) -> None:
    for _ in range(9):
        acquired = take(kept, wanted=Wanted(10, 500))
        assert acquired == [Acquired(0, 9, 1)]
        kept.take_back("a", acquired)
    assert set(kept.deliveries().values()) == {(RecordState.AVAILABLE, 0)}


def test_what_others_have_or_have_settled_meanwhile_is_not_taken_back(kept: SharePartition) -> None:
    acquired = take(kept, wanted=Wanted(10, 500))
    kept.move(1)
    assert take(kept, "b", Wanted(10, 500)) == [Acquired(0, 9, 1)], "it was forgotten who had them"
    assert say(kept, 0, 4, ACCEPT, member="b") is ErrorCode.NONE
    kept.take_back("a", acquired)
    assert say(kept, 5, 9, ACCEPT, member="b") is ErrorCode.NONE
    assert kept.start_offset == 10


def test_another_leader_knows_what_was_written(kept: SharePartition) -> None:
    take(kept, wanted=Wanted(10, 500))
    say(kept, 0, 2, RELEASE)
    say(kept, 5, 5, ACCEPT)
    kept.move(1)
    states = kept.deliveries()
    assert (states[0], states[3], states[5]) == (
        (RecordState.AVAILABLE, 1),
        (RecordState.AVAILABLE, 0),
        (RecordState.ACKNOWLEDGED, 1),
    )


def test_the_start_follows_what_is_settled_and_the_log(kept: SharePartition) -> None:
    take(kept, wanted=Wanted(10, 500))
    say(kept, 5, 9, ACCEPT)
    assert (kept.start_offset, kept.written) == (0, (0, 5))
    say(kept, 0, 4, REJECT)
    assert (kept.start_offset, kept.written) == (10, (0, 10))
    kept.log_starts_at(30)
    assert (kept.start_offset, kept.next_offset()) == (30, 30)
    assert take(kept, wanted=Wanted(1, 500)) == [Acquired(30, 34, 1)]


def test_all_or_nothing_of_an_acknowledgement_is_taken(kept: SharePartition) -> None:
    take(kept, wanted=Wanted(10, 500))
    said = [Acknowledgement(0, 4, [ACCEPT]), Acknowledgement(5, 12, [ACCEPT])]
    assert kept.acknowledge("a", said, RULES, 0)[0] is ErrorCode.INVALID_REQUEST
    assert kept.start_offset == 0
    assert say(kept, 0, 4, ACCEPT, member="b") is ErrorCode.INVALID_RECORD_STATE


def test_what_a_call_costs_does_not_grow_with_what_is_settled_behind_one_record(kept: SharePartition) -> None:
    rules = ShareRules(max_deliveries=5, lock_ms=1_000, max_locks=200)
    for first in range(0, 100_000, 100):
        assert kept.acquire("a", [(first, first + 99)], MANY, rules, 0)
        said = Acknowledgement(max(first, 1), first + 99, [ACCEPT])
        assert kept.acknowledge("a", [said], rules, 0)[0] is ErrorCode.NONE
        assert len(kept) == 2
    assert kept.state == [0, 100_000, [0, 99_999], [[0, 0, 0, 0], [1, 99_999, 2, 1]]]
    assert say(kept, 500, 600, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    again = SharePartition.of_state(kept.state, 1)
    assert again.acquire("b", [(0, 99)], MANY, rules, 0) == [Acquired(0, 0, 1)]
    assert say(again, 0, 0, ACCEPT, member="b") is ErrorCode.NONE
    assert again.state == [100_000, 100_000, [0, 100_000], []]


def test_what_was_not_sent_is_taken_back_as_far_as_it_still_stands(kept: SharePartition) -> None:
    acquired = take(kept, wanted=Wanted(10, 500))
    say(kept, 0, 2, ACCEPT)
    kept.expire(RULES, 1_000)
    take(kept, wanted=Wanted(2, 500), now_ms=1_000)
    before = kept.deliveries()
    kept.take_back("a", acquired)
    assert kept.deliveries() == before


def test_a_member_that_is_silent_is_given_up() -> None:
    groups = ShareGroupCoordinator(ShareGroupConfig(session_timeout_ms=1_000, max_size=2))
    topics = {"t": (UUID(int=7), 3)}
    beats = [ShareBeat("g", name, 0, topics=frozenset({"t"})) for name in "abc"]
    errors = [at_once(groups.heartbeat(beat, topics, 0)).error for beat in beats]
    assert errors == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert [len(groups.groups["g"].target[name]) for name in "ab"] == [2, 1]
    epoch = groups.groups["g"].members["b"].epoch
    assert at_once(groups.heartbeat(ShareBeat("g", "b", epoch), topics, 500)).error is ErrorCode.NONE
    groups.tick(1_000)
    assert list(groups.groups["g"].members) == ["b"]
    told = at_once(groups.heartbeat(ShareBeat("g", "b", epoch), topics, 1_100)).assigned
    assert told == {(UUID(int=7), index) for index in range(3)}
