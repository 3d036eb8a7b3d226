"""KIP-848 in virtual time: epochs, reconciliation, static members, errors, against Kafka's rules."""

from uuid import UUID

import pytest

from kclient_quota.broker.groups.assignors import by_range, uniform
from kclient_quota.broker.groups.consumer.coordinator import Beat, ConsumerGroupConfig, ConsumerGroupCoordinator
from kclient_quota.broker.groups.consumer.group import NOTHING
from kclient_quota.broker.groups.consumer.subscriptions import known_topics
from kclient_quota.broker.groups.in_steps import AT_ONCE, at_once
from kclient_quota.wire.error_codes import ErrorCode

T, U = UUID(int=1), UUID(int=2)
TOPICS = {"t": (T, 4), "u": (U, 2)}


class Client:
    """A well-behaved member: gives up what it has to and reports what it has."""

    def __init__(self, world, member_id, **join):
        self.world = world
        self.member_id = member_id
        self.join_with = {"topics": frozenset({"t"}), **join}
        self.epoch = 0
        self.owned = frozenset()
        self.assigned = frozenset()

    def beat(self, **changes):
        if self.epoch == 0:
            self.owned = self.assigned = frozenset()
            said = {"rebalance_timeout_ms": 30_000, "owned": frozenset(), **self.join_with}
        else:
            said = {"owned": self.owned, "instance_id": self.join_with.get("instance_id")}
        beat = Beat("g", self.member_id, self.epoch, **{**said, **changes})
        result = at_once(self.world.coordinator.heartbeat(beat, "fresh", self.world.topics, self.world.now_ms))
        if result.error is ErrorCode.NONE:
            self.epoch = result.member_epoch
            if result.assigned is not None:
                self.assigned = result.assigned
        return result

    def comply(self):
        """Give up and take what was assigned: what happens in the client between two heartbeats."""
        self.owned = self.assigned


class World:
    """A coordinator, topics and a clock."""

    def __init__(self, **config):
        self.coordinator = ConsumerGroupCoordinator(ConsumerGroupConfig(**config))
        self.topics = dict(TOPICS)
        self.now_ms = 0

    @property
    def group(self):
        return self.coordinator.groups["g"]

    def pass_ms(self, duration_ms):
        self.now_ms += duration_ms
        self.coordinator.tick(self.now_ms)

    def settle(self, *clients, rounds=6):
        for _ in range(rounds):
            for client in clients:
                assert client.beat().error is ErrorCode.NONE
                client.comply()


def indexes(assignment, topic=T):
    return sorted(index for topic_id, index in assignment if topic_id == topic)


def test_the_first_member_gets_everything_at_once():
    world = World()
    first = Client(world, "a")
    result = first.beat()
    assert (result.error, result.member_epoch, indexes(result.assigned)) == (ErrorCode.NONE, 1, [0, 1, 2, 3])
    assert world.group.state == "Stable"
    first.comply()
    assert first.beat().assigned is None, "nothing has changed"


def test_a_member_without_an_id_is_given_one():
    world = World()
    result = Client(world, "").beat()
    assert result.member_id == "fresh"


def test_partitions_are_given_up_before_they_are_given_on():
    world = World()
    first, second = Client(world, "a"), Client(world, "b")
    world.settle(first)
    joined = second.beat()
    assert (joined.member_epoch, joined.assigned) == (2, frozenset()), "nothing is free yet"
    assert world.group.state == "Reconciling"
    told = first.beat()
    assert (told.member_epoch, indexes(told.assigned)) == (1, [0, 1]), "it stays in its epoch until it has given up"
    assert second.beat().assigned is None
    first.comply()
    assert first.beat().member_epoch == 2
    assert indexes(second.beat().assigned) == [2, 3]
    assert world.group.state == "Stable"


def test_leaving_frees_partitions_for_the_others():
    world = World()
    first, second = Client(world, "a"), Client(world, "b")
    world.settle(first, second)
    left = at_once(world.coordinator.heartbeat(Beat("g", "a", -1), "", TOPICS, 0))
    assert (left.error, left.member_epoch) == (ErrorCode.NONE, -1)
    world.settle(second)
    assert indexes(second.assigned) == [0, 1, 2, 3]
    assert at_once(world.coordinator.heartbeat(Beat("g", "b", -1), "", TOPICS, 0)).error is ErrorCode.NONE
    assert world.group.state == "Empty"
    assert world.coordinator.next_deadline_ms() is None


def test_a_silent_member_is_fenced_after_the_brokers_session_timeout():
    world = World(session_timeout_ms=10_000)
    first, second = Client(world, "a"), Client(world, "b")
    world.settle(first, second)
    world.pass_ms(9_000)
    first.beat()
    world.pass_ms(1_000)
    world.settle(first)
    assert indexes(first.assigned) == [0, 1, 2, 3]
    assert second.beat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_partitions_in_time_is_fenced():
    world = World()
    first, second = Client(world, "a"), Client(world, "b")
    world.settle(first)
    world.settle(second, rounds=1)
    first.beat()
    for _ in range(2):
        world.pass_ms(15_000)
        assert second.beat().error is ErrorCode.NONE
    assert first.beat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert indexes(second.assigned or second.beat().assigned) == [0, 1, 2, 3]


def test_epochs_that_do_not_fit_are_fenced_and_a_repetition_is_not():
    world = World()
    first, second = Client(world, "a"), Client(world, "b")
    world.settle(first, second)
    epoch = first.epoch
    for wrong in (epoch + 1, epoch - 1):
        result = at_once(world.coordinator.heartbeat(Beat("g", "a", wrong), "", TOPICS, 0))
        assert result.error is ErrorCode.FENCED_MEMBER_EPOCH
    previous = world.group.members["a"].previous_epoch
    repeated = Beat("g", "a", previous, owned=first.owned)
    assert at_once(world.coordinator.heartbeat(repeated, "", TOPICS, 0)).error is ErrorCode.NONE, "its answer was lost"
    first.epoch = 0
    assert first.beat().error is ErrorCode.NONE, "a fenced member comes back under its id"


def test_new_partitions_and_topics_are_found():
    world = World()
    first = Client(world, "a", topics=frozenset({"t", "later"}))
    world.settle(first)
    world.topics = {**world.topics, "t": (T, 6)}
    world.settle(first)
    assert indexes(first.assigned) == [0, 1, 2, 3, 4, 5]
    world.topics = {**world.topics, "later": (UUID(int=9), 1)}
    world.settle(first)
    assert indexes(first.assigned, UUID(int=9)) == [0]
    world.topics = {name: entry for name, entry in world.topics.items() if name != "t"}
    world.settle(first)
    assert indexes(first.assigned) == []


def test_a_regular_expression_subscribes_to_what_it_matches():
    world = World()
    first = Client(world, "a", topics=frozenset(), regex="[tx]")
    world.settle(first)
    assert (indexes(first.assigned), indexes(first.assigned, U)) == ([0, 1, 2, 3], [])
    result = Client(world, "b", regex="(").beat()
    assert result.error is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_members_may_subscribe_differently_and_change_their_mind():
    world = World()
    first, second = Client(world, "a"), Client(world, "b", topics=frozenset({"t", "u"}))
    world.settle(first, second)
    assert len(first.assigned) + len(second.assigned) == 6
    assert indexes(second.assigned, U) == [0, 1]
    second.beat(topics=frozenset({"u"}))
    world.settle(second, first)
    assert (indexes(first.assigned), indexes(second.assigned)) == ([0, 1, 2, 3], [])


def test_a_static_member_returns_to_its_partitions_without_a_new_epoch():
    world = World()
    first, second = Client(world, "a", instance_id="i"), Client(world, "b")
    world.settle(first, second)
    had, epoch = first.assigned, world.group.epoch
    away = at_once(world.coordinator.heartbeat(Beat("g", "a", -2, instance_id="i"), "", TOPICS, 0))
    assert (away.error, away.member_epoch) == (ErrorCode.NONE, -2)
    again = Client(world, "a2", instance_id="i")
    assert again.beat().assigned == had
    assert world.group.epoch == epoch
    assert first.beat().error is ErrorCode.FENCED_INSTANCE_ID
    assert at_once(world.coordinator.heartbeat(Beat("g", "a", -1, instance_id="i"), "", TOPICS, 0)).error in {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }


def test_an_instance_id_in_use_is_not_given_away():
    world = World()
    world.settle(Client(world, "a", instance_id="i"))
    assert Client(world, "b", instance_id="i").beat().error is ErrorCode.UNRELEASED_INSTANCE_ID
    unknown = Beat("g", "x", 3, instance_id="nobody")
    assert at_once(world.coordinator.heartbeat(unknown, "", TOPICS, 0)).error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("beat", "error", "words"),
    [
        (Beat("", "a", 0), ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
        (Beat("g", "a", 0, instance_id=""), ErrorCode.INVALID_REQUEST, "InstanceId can't be empty."),
        (Beat("g", "a", 0, rack_id=" "), ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
        (Beat("g", "", 1), ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
        (Beat("g", "a", 0), ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request."),
        (Beat("g", "a", 0, rebalance_timeout_ms=5), ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty"),
        (
            Beat("g", "a", 0, rebalance_timeout_ms=5, owned=frozenset()),
            ErrorCode.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex",
        ),
        (Beat("g", "a", -2), ErrorCode.INVALID_REQUEST, "InstanceId can't be null."),
        (Beat("g", "a", -3), ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid."),
        (Beat("g", "a", 1), ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found."),
        (Beat("g", "a", -1), ErrorCode.UNKNOWN_MEMBER_ID, "not a member"),
        (Beat("g", "a", 1, assignor="best"), ErrorCode.UNSUPPORTED_ASSIGNOR, "Supported assignors: uniform, range."),
    ],
)
def test_heartbeats_that_are_refused(beat, error, words):
    result = at_once(World().coordinator.heartbeat(beat, "", TOPICS, 0))
    assert result.error is error
    assert words in result.message


def test_a_full_group():
    world = World(max_size=1)
    world.settle(Client(world, "a"))
    assert Client(world, "b").beat().error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_who_may_commit():
    world = World()
    first = Client(world, "a")
    world.settle(first)
    check = world.coordinator.validate_epoch
    assert check(world.group, "a", first.epoch) is ErrorCode.NONE
    assert check(world.group, "a", first.epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert check(world.group, "b", first.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check(world.group, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    at_once(world.coordinator.heartbeat(Beat("g", "a", -1), "", TOPICS, 0))
    assert check(world.group, "", -1) is ErrorCode.NONE


def test_range_gives_neighbours_and_the_first_members_one_more():
    everything = {"a": frozenset({T, U}), "b": frozenset({T, U}), "c": frozenset({T})}
    assignment = at_once(by_range(everything, {T: 4, U: 3}, {}))
    assert [indexes(assignment[m]) for m in "abc"] == [[0, 1], [2], [3]]
    assert [indexes(assignment[m], U) for m in "abc"] == [[0, 1], [2], []]


def test_uniform_moves_no_more_than_it_must():
    both = {"a": frozenset({T}), "b": frozenset({T})}
    first = at_once(uniform({"a": frozenset({T})}, {T: 5}, {}))
    second = at_once(uniform(both, {T: 5}, first))
    assert sorted(map(len, second.values())) == [2, 3]
    assert second["a"] <= first["a"]
    assert at_once(uniform(both, {T: 5}, second)) == second


def leave(world, member_id, epoch=-1, **said):
    said_by = Beat("g", member_id, epoch, **said)
    return at_once(world.coordinator.heartbeat(said_by, "fresh", world.topics, world.now_ms))


def test_a_member_that_comes_back_with_another_instance_id_gives_up_the_former():
    world = World()
    first = Client(world, "a", instance_id="i1")
    world.settle(first)
    first.epoch, first.join_with = 0, {**first.join_with, "instance_id": "i2"}
    world.settle(first)
    assert world.group.static_members == {"i2": "a"}
    assert leave(world, "a").error is ErrorCode.NONE
    newcomer = Client(world, "b", instance_id="i1")
    assert newcomer.beat().error is ErrorCode.NONE
    assert world.group.static_members == {"i1": "b"}


def test_a_static_member_that_comes_back_without_an_instance_id_frees_it():
    world = World()
    first = Client(world, "a", instance_id="i1")
    world.settle(first)
    first.epoch, first.join_with = 0, {"topics": frozenset({"t"})}
    world.settle(first)
    assert world.group.static_members == {}
    assert leave(world, "a").error is ErrorCode.NONE
    assert Client(world, "b", instance_id="i1").beat().error is ErrorCode.NONE


def test_a_member_takes_over_the_place_of_a_static_one_and_leaves_its_own():
    world = World()
    first, second = Client(world, "a", instance_id="i1"), Client(world, "b", instance_id="i2")
    world.settle(first, second)
    assert leave(world, "b", -2, instance_id="i2").error is ErrorCode.NONE
    first.epoch, first.join_with = 0, {**first.join_with, "instance_id": "i2"}
    world.settle(first)
    assert (world.group.static_members, list(world.group.members)) == ({"i2": "a"}, ["a"])
    assert Client(world, "c", instance_id="i1").beat().error is ErrorCode.NONE


def test_members_that_subscribe_to_the_same_share_the_names():
    names = [f"topic-{number}" for number in range(100)]
    first = at_once(known_topics([], frozenset(names)))
    assert at_once(known_topics([NOTHING, first], frozenset(reversed(names)))) is first
    others = frozenset([*names[1:], "another"])
    assert at_once(known_topics([first], others)) is others


def test_very_many_names_are_compared_in_turns():
    names = [f"topic-{number}" for number in range(3 * AT_ONCE)]
    assert len(list(known_topics([frozenset(names)], frozenset(reversed(names))))) == 3
    others = frozenset([*names[1:], "another"])
    assert not list(known_topics([frozenset(names)], others)), "told apart by their hashes"
