"""The group as a value: its transition table, votes and what it reads."""

import struct

import pytest

from kclient_quota.broker.groups.classic.embedded_protocol import read_assignment, read_subscription, write_assignment
from kclient_quota.broker.groups.classic.group import (
    VALID_PREVIOUS_STATES,
    ClassicGroup,
    GroupState,
    Member,
)
from kclient_quota.broker.groups.timers import Timers


def subscription(*topics: str, version: int = 3) -> bytes:
    names = b"".join(struct.pack(">h", len(t.encode())) + t.encode() for t in topics)
    return struct.pack(">hi", version, len(topics)) + names + struct.pack(">i", -1)


def member(member_id: str, *protocols: tuple[str, bytes]) -> Member:
    return Member(member_id, None, "c", "h", 10_000, 30_000, "consumer", protocols)


@pytest.mark.parametrize("source", list(GroupState))
@pytest.mark.parametrize("target", list(GroupState))
def test_only_the_transitions_of_the_table_are_taken(source, target):
    group = ClassicGroup("g", state=source)
    if source in VALID_PREVIOUS_STATES[target]:
        group.transition_to(target)
        assert (group.state, group.previous_state) == (target, source)
    else:
        with pytest.raises(ValueError, match="may not become"):
            group.transition_to(target)


def test_the_subscription_of_every_version_is_read():
    for version in range(4):
        said = read_subscription(subscription("a", "ü", version=version))
        assert (said.version, said.topics, said.owned, said.rack_id) == (version, {"a", "ü"}, frozenset(), None)


@pytest.mark.parametrize(
    "metadata",
    [b"", b"\0\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\xff\xff", b"\0\0\0\0\0\1\0\5ab", b"\0\0\0\0\0\1\0\1\xff"],
)
def test_an_unreadable_subscription_is_none(metadata):
    assert read_subscription(metadata) is None


def test_what_a_subscription_says_beside_topics_is_read():
    owned = struct.pack(">ih1siii", 1, 1, b"a", 2, 5, 7)
    metadata = subscription("a", "b", version=3) + owned + struct.pack(">ih2s", 9, 2, b"az")
    said = read_subscription(metadata + b"what comes with later versions")
    assert (said.owned, said.rack_id) == ({("a", 5), ("a", 7)}, "az")
    assert read_subscription(subscription("a", version=0) + owned).owned == frozenset()
    assert read_subscription(metadata[:-1]) is None


def test_an_assignment_is_read_as_it_was_written():
    told = {("a", 1), ("a", 0), ("ü", 5)}
    for version in (-1, 0, 3, 9):
        assert read_assignment(write_assignment(version, told)) == told
    assert write_assignment(1, {("t", 3)}) == struct.pack(">hih1siii", 1, 1, 1, b"t", 1, 3, -1)
    assert read_assignment(b"") == frozenset()
    for damaged in (b"\0", write_assignment(0, told)[:9], b"\0\0\x7f\xff\xff\xff"):
        assert read_assignment(damaged) is None


def test_whose_topics_are_subscribed():
    group = ClassicGroup("g")
    assert not group.is_subscribed_to("a")
    group.add(member("m", ("range", subscription("a"))))
    assert group.is_subscribed_to("b"), "no protocol is settled yet, so it might be"
    group.protocol_name = "range"
    assert group.is_subscribed_to("a")
    assert not group.is_subscribed_to("b")
    group.add(member("n", ("range", b"")))
    assert group.is_subscribed_to("b"), "metadata that cannot be read may mean any topic"


def test_a_removed_leader_is_followed_by_another_member():
    group = ClassicGroup("g")
    group.add(member("a", ("range", b"")))
    group.add(member("b", ("range", b"")))
    group.remove("a")
    assert group.leader_id == "b"
    group.remove("b")
    assert group.leader_id is None


def test_timers_fire_in_order_once_and_can_move():
    timers: Timers[str] = Timers()
    timers.schedule("a", 10)
    timers.schedule("b", 5)
    timers.schedule("c", 5)
    timers.schedule("a", 4)
    assert timers.next_deadline_ms() == 4
    timers.cancel("c")
    assert [timers.pop_due(5) for _ in range(3)] == ["a", "b", None]
    assert timers.next_deadline_ms() is None
    assert timers.deadline_ms("a") is None
