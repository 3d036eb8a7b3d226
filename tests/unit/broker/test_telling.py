"""Who is in KIP-848 groups as records: what is told when, and how often."""

import gc
import time
from dataclasses import replace
from uuid import UUID

import pytest

from kclient_quota.broker.groups.consumer.group import ConsumerGroup, ConsumerMember
from kclient_quota.broker.groups.consumer.group_records import ToldConsumerGroup, changes, farewell
from kclient_quota.broker.groups.in_steps import at_once
from kclient_quota.broker.groups.telling import Telling
from kclient_quota.wire.codec import decode, encode
from kclient_quota.wire.messages.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)
from tests.unit.broker.enforced_cluster import ManualScheduler as TurnByTurn
from tests.unit.broker.handler_node import ManualScheduler

TOPIC = UUID(int=7)
SLICE_MS = 250


class Topic:
    """Takes records, or says that it cannot."""

    def __init__(self):
        self.is_told, self.is_full, self.taken = True, False, []

    def append_all(self, _about, records):
        if self.is_full:
            raise OSError("full")
        self.taken.append(list(records))


def group_of(partitions, *names):
    group = ConsumerGroup("g", epoch=1, metadata={"t": (TOPIC, partitions)})
    for name in names:
        group.put(ConsumerMember(name, topics=frozenset({"t"}), member_epoch=1))
    computed(group)
    return group


def computed(group):
    wanted = dict.fromkeys(group.members, frozenset({TOPIC}))
    at_once(group.update_target(group.epoch, wanted, dict(group.metadata.values())))


def kinds(records):
    return [int.from_bytes(key[:2], "big") for key, _ in records]


def test_what_has_not_changed_is_not_told_again():
    group, told = group_of(2, "a"), ToldConsumerGroup()
    assert kinds(changes(told, group, 0)) == [5, 3, 7, 6, 8]
    assert not list(changes(told, group, 1))
    group.put(ConsumerMember("a", topics=frozenset({"t"}), member_epoch=1))
    assert not list(changes(told, group, 2)), "another object that says the same"
    group.epoch += 1
    assert kinds(changes(told, group, 3)) == [3]
    computed(group)
    assert kinds(changes(told, group, 4)) == [6], "nobody has another target"
    assert kinds(farewell(told, "g")) == [8, 7, 6, 5, 4, 3]


def test_an_assignment_epoch_is_told_of_after_its_own_targets_whenever_it_changes():
    for step in range(1, 100):
        group, told = group_of(6_000, "a", "b"), ToldConsumerGroup()
        assert list(changes(told, group, 0))
        assigned_anew(group, 9_000)
        records, is_changed = [], False
        for number, record in enumerate(changes(told, group, 0), 1):
            if record is not None:
                records.append(record)
            if number == step:
                is_changed = True
                assigned_anew(group, 12_000)
        records += filter(None, changes(told, group, 0))
        values = [(kind, value[2:6]) for kind, (_, value) in zip(kinds(records), records, strict=True)]
        third = values.index((6, (3).to_bytes(4, "big"))) if is_changed else len(values)
        assert all(kind != 7 for kind, _ in values[third:]), step
        assert (told.target, told.assignment_epoch) == (group.target, group.assignment_epoch)
        if not is_changed:
            break
    assert step > 10


def assigned_anew(group, partitions):
    group.metadata = {"t": (TOPIC, partitions)}
    group.epoch += 1
    computed(group)


def test_a_change_that_could_not_be_written_is_told_with_the_next():
    group, told, topic = group_of(2, "a"), {}, Topic()

    def said(group_id):
        return changes(told.setdefault(group_id, ToldConsumerGroup()), group, 0)

    telling = Telling(topic, ManualScheduler(), said, told.pop)
    topic.is_full = True
    telling.tell(["g"])
    topic.is_full = False
    group.epoch += 1
    telling.tell(["g"])
    assert [kinds(records) for records in topic.taken] == [[5, 3, 7, 6, 8]]


def large(members, partitions):
    group = group_of(partitions, *(f"m{number}" for number in range(members)))
    for name in list(group.members):
        member = ConsumerMember(name, topics=frozenset({"t"}))
        group.put(group.reconcile(member, frozenset()))
    return group


def telling_of(groups, topic, scheduler):
    told = {}

    def said(group_id):
        if group_id not in groups:
            return farewell(told.pop(group_id), group_id) if group_id in told else []
        return changes(told.setdefault(group_id, ToldConsumerGroup()), groups[group_id], scheduler.now_ms())

    return Telling(topic, scheduler, said, told.pop)


def last(topic):
    """What a reader of all records has in the end; of what is no more nothing."""
    values = {key: value for records in topic.taken for key, value in records}
    return {key: value for key, value in values.items() if value is not None}


def whole(group):
    return dict(filter(None, changes(ToldConsumerGroup(), group, 1_000)))


def same(found, wanted):
    """But for times, and for when members have got their partitions."""
    return plain(found) == plain(wanted)


def plain(records):
    return {key: PLAIN.get(int.from_bytes(key[:2], "big"), bytes)(value) for key, value in records.items()}


def epoch_and_partitions(value):
    current = decode(ConsumerGroupCurrentMemberAssignmentValue, 0, value[2:])
    return current.member_epoch, [(topic.topic_id, topic.partitions) for topic in current.assigned_partitions]


PLAIN = {6: lambda value: value[:6], 8: epoch_and_partitions}
"""By type of record."""


@pytest.fixture
def alone():
    """A broker puts aside what has outlived a collection; here all that other tests left would be looked through."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("alone")
def test_a_group_of_a_thousand_members_is_told_of_in_turns():
    group, topic, scheduler = large(1_000, 100_000), Topic(), ManualScheduler()
    telling = telling_of({"g": group}, topic, scheduler)
    longest, before = 0.0, len(topic.taken)
    telling.tell(["g"])
    while len(topic.taken) > before:
        before, started = len(topic.taken), time.thread_time()
        scheduler.pass_ms(300)
        longest = max(longest, time.thread_time() - started)
    assert longest < 0.05
    sizes = [sum(len(key) + len(value) for key, value in records) for records in topic.taken]
    assert len(sizes) > 10
    assert max(sizes) < 110_000
    keys = [key for records in topic.taken for key, _ in records]
    assert len(keys) == len(set(keys)), "nothing twice"
    assert same(last(topic), whole(group))


@pytest.mark.parametrize("after", [0, 1, 3, 6])
def test_a_group_that_changes_while_it_is_told_of_is_told_as_it_is_in_the_end(after):
    group, topic, scheduler = large(300, 60_000), Topic(), ManualScheduler()
    telling = telling_of({"g": group}, topic, scheduler)
    telling.tell(["g"])
    scheduler.pass_ms(SLICE_MS * after)
    assert len(topic.taken) > after
    group.remove("m7")
    group.put(ConsumerMember("new", topics=frozenset({"t"}), member_epoch=0))
    group.epoch += 1
    computed(group)
    for member in list(group.members.values()):
        group.put(group.reconcile(member, frozenset()))
    telling.tell(["g"])
    scheduler.pass_ms(60_000)
    assert same(last(topic), whole(group))


@pytest.mark.parametrize("after", [0, 1, 3, 6])
def test_a_group_that_ends_while_it_is_told_of_leaves_nothing(after):
    groups, topic, scheduler = {"g": large(300, 60_000)}, Topic(), ManualScheduler()
    telling = telling_of(groups, topic, scheduler)
    telling.tell(["g"])
    scheduler.pass_ms(SLICE_MS * after)
    del groups["g"]
    telling.tell_now("g")
    assert last(topic) == {}
    scheduler.pass_ms(60_000)
    assert last(topic) == {}
    groups["g"] = another = large(2, 4)
    telling.tell(["g"])
    scheduler.pass_ms(60_000)
    assert same(last(topic), whole(another))


def test_a_large_group_is_told_of_now_and_then():
    names = [f"m{number}" for number in range(50)]
    group, topic, scheduler = group_of(10_000, *names), Topic(), ManualScheduler()
    telling = telling_of({"g": group}, topic, scheduler)
    telling.tell(["g"])
    for number in range(20):
        group.put(ConsumerMember(f"n{number}", topics=frozenset({"t"}), member_epoch=1))
        group.epoch += 1
        computed(group)
        telling.tell(["g"])
    assert len(topic.taken) == 1
    scheduler.pass_ms(1_000)
    assert len(topic.taken) == 2, "once for all of them"
    assert same(last(topic), whole(group))
    scheduler.pass_ms(60_000)
    assert len(topic.taken) == 2


def wide(topics, partitions, *names):
    """A group each of whose members has very much."""
    metadata = {f"t{number}": (UUID(int=number + 1), partitions) for number in range(topics)}
    group = ConsumerGroup("g", epoch=1, metadata=metadata)
    for name in names:
        group.put(ConsumerMember(name, topics=frozenset(metadata), member_epoch=1))
    assigned(group)
    return group


def assigned(group):
    wanted = dict.fromkeys(group.members, frozenset(topic_id for topic_id, _ in group.metadata.values()))
    at_once(group.update_target(group.epoch, wanted, dict(group.metadata.values())))
    for member in list(group.members.values()):
        group.put(group.reconcile(member, frozenset()))


WIDE = {"topics": (4_500, 1), "partitions": (10, 1_500)}


@pytest.mark.parametrize("shape", WIDE)
def test_others_have_their_turn_while_one_member_is_told_of(shape):
    group, topic, scheduler = wide(*WIDE[shape], "a", "b"), Topic(), TurnByTurn()
    telling = telling_of({"g": group}, topic, scheduler)
    telling.tell(["g"])
    turns = 0
    for _ in range(200):
        turns += bool(telling._begun)
        scheduler.pass_ms(1_000)
    assert turns >= 6
    keys = [key for records in topic.taken for key, _ in records]
    assert len(keys) == len(set(keys)), "nothing twice"
    assert same(last(topic), whole(group))


@pytest.mark.parametrize("shape", WIDE)
@pytest.mark.parametrize("after", range(0, 24, 3))
def test_a_member_that_changes_while_it_is_told_of_is_told_as_it_is_in_the_end(shape, after):
    group, topic, scheduler = wide(*WIDE[shape], "a", "b"), Topic(), TurnByTurn()
    telling = telling_of({"g": group}, topic, scheduler)
    telling.tell(["g"])
    for _ in range(after):
        scheduler.pass_ms(1_000)
    group.remove("b")
    group.metadata = dict(list(group.metadata.items())[1:])
    group.epoch += 1
    assigned(group)
    telling.tell(["g"])
    for _ in range(200):
        scheduler.pass_ms(1_000)
    assert same(last(topic), whole(group))


@pytest.mark.parametrize("after", [0, 2, 5, 11])
def test_a_group_that_ends_while_a_member_is_told_of_leaves_nothing(after):
    groups, topic, scheduler = {"g": wide(*WIDE["topics"], "a", "b")}, Topic(), TurnByTurn()
    telling = telling_of(groups, topic, scheduler)
    telling.tell(["g"])
    for _ in range(after):
        scheduler.pass_ms(1_000)
    del groups["g"]
    telling.tell_now("g")
    assert last(topic) == {}
    groups["g"] = another = wide(3, 2, "c")
    telling.tell(["g"])
    for _ in range(200):
        scheduler.pass_ms(1_000)
    assert same(last(topic), whole(another))


def test_a_disk_that_is_full_while_a_member_is_told_of_has_it_told_later():
    group, topic, scheduler = wide(*WIDE["topics"], "a"), Topic(), TurnByTurn()
    telling = telling_of({"g": group}, topic, scheduler)
    topic.is_full = True
    telling.tell(["g"])
    for _ in range(200):
        scheduler.pass_ms(1_000)
    topic.is_full = False
    group.epoch += 1
    telling.tell(["g"])
    for _ in range(200):
        scheduler.pass_ms(1_000)
    assert same(last(topic), whole(group))


def test_a_member_that_is_no_classic_one_says_so():
    """Kafka's reader takes silence for an empty struct."""
    value = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert encode(value, 0).endswith(b"\x01\x00\x01\x00")
    assert decode(ConsumerGroupMemberMetadataValue, 0, encode(value, 0)) == value


@pytest.mark.parametrize("is_other", [False, True])
def test_a_heartbeat_meanwhile_takes_nothing_from_what_is_told(is_other):
    names = frozenset(f"t{number}" for number in range(9_000))
    group = ConsumerGroup("g", epoch=1, metadata={"t": (TOPIC, 20_000)})
    group.put(ConsumerMember("a", topics=names | {"t"}, member_epoch=1))
    computed(group)
    group.put(group.reconcile(group.members["a"], frozenset()))
    told = ToldConsumerGroup()
    found = []
    for record in changes(told, group, 0):
        if record is not None:
            found.append(record)
            continue
        client = "another" if is_other else ""
        group.put(replace(group.members["a"], client_id=client))
    assert kinds(found) == ([] if is_other else [5]) + [3, 7, 6, 8]
    # who has changed is told of when the group is told of anew, and only then
    assert kinds(filter(None, changes(told, group, 0))) == ([5] if is_other else [])


def test_the_epoch_of_a_target_is_told_when_all_of_that_target_have_been():
    few, many = frozenset({(UUID(int=8), 0)}), frozenset((TOPIC, index) for index in range(9_000))
    group = ConsumerGroup("g", epoch=1, assignment_epoch=1, metadata={"t": (TOPIC, 9_000), "u": (UUID(int=8), 2)})
    group.put(ConsumerMember("a", topics=frozenset({"t", "u"}), member_epoch=1))
    group.put(ConsumerMember("b", topics=frozenset({"t", "u"}), member_epoch=1))
    group.target = {"a": few, "b": many}
    told, first = ToldConsumerGroup(), []
    for record in changes(told, group, 0):
        if record is not None:
            first.append(record)
        elif kinds(first)[-1] == 7 and group.epoch == 1:
            # b's target of the next epoch is what it was, a's is another
            group.epoch = group.assignment_epoch = 2
            group.target = {"a": few | {(UUID(int=8), 1)}, "b": many}
    assert kinds(first) == [5, 5, 3, 7, 8, 8], "nothing of a target that is no more, nor the next one's epoch"
    assert kinds(filter(None, changes(told, group, 1))) == [3, 7, 7, 6]
