"""KIP-848: in any order of events no partition has two readers, and left alone a group settles, balanced."""

import struct
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kclient_quota.broker.groups import assignors, in_steps
from kclient_quota.broker.groups.assignors import by_range, uniform
from kclient_quota.broker.groups.classic.embedded_protocol import read_assignment
from kclient_quota.broker.groups.classic.requests import Join, Leaver, Sync
from kclient_quota.broker.groups.classic_members import ClassicMembers
from kclient_quota.broker.groups.consumer import subscriptions
from kclient_quota.broker.groups.consumer.coordinator import Beat, ConsumerGroupConfig, ConsumerGroupCoordinator
from kclient_quota.broker.groups.in_steps import at_once
from kclient_quota.broker.groups.migration import MigrationPolicy
from kclient_quota.wire.error_codes import ErrorCode
from tests.property.examples import examples

SESSION_MS = 10_000
IDS = {"t": UUID(int=1), "u": UUID(int=2)}


class Reader:
    """A client: what it reads now, and what it was told to read."""

    def __init__(self, name, instance):
        self.name, self.instance, self.restarts = name, instance, 0
        self.topics = frozenset({"t"})
        self.stop()

    def stop(self):
        self.epoch, self.reading, self.told = 0, frozenset(), frozenset()

    @property
    def member_id(self):
        return f"{self.name}{self.restarts}"


class ClassicReader(Reader):
    """A client of the classic protocol, which gives up what it has to before it asks again."""

    @property
    def metadata(self):
        """`ConsumerProtocolSubscription` 1, each partition that it reads by itself."""
        names = {topic_id: name.encode() for name, topic_id in IDS.items()}
        topics = b"".join(struct.pack(">h1s", 1, name.encode()) for name in self.topics)
        owned = b"".join(struct.pack(">h1sii", 1, names[topic_id], 1, index) for topic_id, index in self.reading)
        head = struct.pack(">hi", 1, len(self.topics)) + topics + struct.pack(">i", -1)
        return head + struct.pack(">i", len(self.reading)) + owned

    def join(self, machine):
        group = machine.coordinator.groups.get("g")
        if group is None or not group.members:
            return  # it would be a classic group
        protocols = (("range", self.metadata),)
        said = Join("g", self.member_id, None, "c", "h", SESSION_MS, 8_000, "consumer", protocols)
        answer = machine.done(machine.classic.join(group, said, "fresh", machine.topics, machine.now_ms))
        if answer.error is not ErrorCode.NONE:
            assert self.member_id not in group.members, "lost meanwhile"
            self.stop()
            return
        self.epoch = answer.generation_id
        synced = machine.classic.sync(group, Sync("g", self.epoch, self.member_id), machine.now_ms)
        assert synced.error in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}
        if synced.error is ErrorCode.NONE:
            self.told = frozenset((IDS[name], index) for name, index in read_assignment(synced.assignment))

    def beat(self, machine):
        group = machine.coordinator.groups.get("g")
        error = ErrorCode.REBALANCE_IN_PROGRESS
        if self.epoch:
            error = machine.classic.heartbeat(group, self.member_id, None, self.epoch, machine.now_ms)
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join(machine)
        elif error is not ErrorCode.NONE:
            self.stop()

    def leave(self, machine):
        left = machine.classic.leave(machine.coordinator.groups["g"], [Leaver(self.member_id)])
        assert left == [ErrorCode.NONE]


class ConsumerGroups(RuleBasedStateMachine):
    """Six clients, one of them static, two of them of the classic protocol."""

    def __init__(self):
        super().__init__()
        config = ConsumerGroupConfig(session_timeout_ms=SESSION_MS, migration_policy=MigrationPolicy.UPGRADE)
        self.coordinator = ConsumerGroupCoordinator(config)
        self.classic = ClassicMembers(self.coordinator)
        self.readers = [Reader("a", None), Reader("b", None), Reader("c", None), Reader("s", "i")]
        self.readers += [ClassicReader("k", None), ClassicReader("l", None)]
        self.counts = {"t": 3, "u": 1}
        self.now_ms = 0
        self.meanwhile = []

    numbers = st.integers(0, 5)

    @property
    def topics(self):
        return {name: (IDS[name], count) for name, count in self.counts.items()}

    def send(self, reader, epoch, **said):
        beat = Beat("g", reader.member_id, epoch, instance_id=reader.instance, **said)
        return self.done(self.coordinator.heartbeat(beat, "fresh", self.topics, self.now_ms))

    def done(self, steps):
        """What comes of steps, with something else between them that has been asked for."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            if self.meanwhile:
                self.meanwhile.pop()()

    @rule(number=numbers)
    def beat(self, number):
        reader = self.readers[number]
        if isinstance(reader, ClassicReader):
            reader.beat(self)
            return
        if reader.epoch == 0:
            result = self.send(reader, 0, rebalance_timeout_ms=8_000, topics=reader.topics, owned=frozenset())
        else:
            result = self.send(reader, reader.epoch, owned=reader.reading)
        if result.error is ErrorCode.NONE:
            reader.epoch = result.member_epoch
            reader.told = reader.told if result.assigned is None else result.assigned
        else:
            reader.stop()

    @rule(number=numbers)
    def comply(self, number):
        self.readers[number].reading = self.readers[number].told

    @rule(number=numbers)
    def resubscribe(self, number):
        reader = self.readers[number]
        if reader.epoch > 0:
            reader.topics = frozenset({"u"}) if "t" in reader.topics else frozenset({"t", "u"})
            if isinstance(reader, ClassicReader):
                reader.join(self)
                return
            result = self.send(reader, reader.epoch, topics=reader.topics, owned=reader.reading)
            if result.error is not ErrorCode.NONE:
                reader.stop()
            else:
                reader.epoch = result.member_epoch
                reader.told = reader.told if result.assigned is None else result.assigned

    @rule(number=numbers)
    def leave(self, number):
        reader = self.readers[number]
        if reader.epoch > 0:
            if isinstance(reader, ClassicReader):
                reader.leave(self)
            else:
                self.send(reader, -2 if reader.instance else -1)
            reader.stop()
            reader.restarts += 1

    @rule(name=st.sampled_from(("t", "u")))
    def grow(self, name):
        self.counts[name] += 1

    @rule(duration_ms=st.sampled_from((100, 3_000, 9_000)))
    def pass_time(self, duration_ms):
        self.now_ms += duration_ms
        self.coordinator.tick(self.now_ms)
        group = self.coordinator.groups.get("g")
        for reader in self.readers:
            if group is None or reader.member_id not in group.members:
                reader.stop()  # a client whose session has ended knows it by its own clock

    @invariant()
    def no_partition_has_two_readers(self):
        read = [tp for reader in self.readers for tp in reader.reading]
        assert len(read) == len(set(read))

    @invariant()
    def the_coordinators_book_is_sound(self):
        group = self.coordinator.groups.get("g")
        if group is not None:
            held = [tp for member in group.members.values() for tp in member.assigned | member.revoking]
            assert len(held) == len(set(held))
            assert set(group.static_members.values()) <= set(group.members)
            assert group.assignment_epoch <= group.epoch

    def teardown(self):
        alive = [number for number, reader in enumerate(self.readers) if reader.epoch > 0]
        for number in alive:
            if isinstance(self.readers[number], ClassicReader):
                self.readers[number].join(self)  # its heartbeats see no new partitions, as in Kafka
        for _ in range(12):
            for number in alive:
                self.beat(number)
                self.comply(number)
                self.no_partition_has_two_readers()
            self.pass_time(2_000)  # who is late to give something up may be shut out by now, and knows it
        group = self.coordinator.groups.get("g")
        if group is None or not alive:
            return
        assert group.state == "Stable"
        wanted = {
            (IDS[name], index)
            for name, count in self.counts.items()
            for index in range(count)
            if any(name in self.readers[number].topics for number in alive)
        }
        assert {tp for number in alive for tp in self.readers[number].reading} == wanted


class InSteps(ConsumerGroups):
    """The same where every topic and partition is a step, and others leave or are lost between them."""

    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for module in (assignors, in_steps, subscriptions):
            self.patch.setattr(module, "AT_ONCE", 1)

    @rule(number=ConsumerGroups.numbers)
    def leave_meanwhile(self, number):
        self.meanwhile.append(lambda: self.leave(number))

    @rule(name=st.sampled_from(("t", "u")))
    def grow_meanwhile(self, name):
        self.meanwhile.append(lambda: self.grow(name))

    @rule(duration_ms=st.sampled_from((3_000, 9_000)))
    def pass_time_meanwhile(self, duration_ms):
        self.meanwhile.append(lambda: self.pass_time(duration_ms))

    def teardown(self):
        self.meanwhile.clear()
        try:
            super().teardown()
        finally:
            self.patch.undo()


InSteps.TestCase.settings = settings(max_examples=examples(60, 150), stateful_step_count=40, deadline=None)
test_consumer_groups_stay_sound_in_steps = InSteps.TestCase

ConsumerGroups.TestCase.settings = settings(max_examples=examples(60, 150), stateful_step_count=40, deadline=None)
test_consumer_groups_stay_sound = ConsumerGroups.TestCase

TOPIC_IDS = [UUID(int=number) for number in range(1, 4)]
subscriptions_st = st.dictionaries(
    st.sampled_from("abcdef"), st.frozensets(st.sampled_from(TOPIC_IDS), min_size=1), min_size=1
)
partitions_st = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPIC_IDS})


def wanted_of(subscriptions, partitions):
    topics = set().union(*subscriptions.values())
    return sorted((topic, index) for topic in topics for index in range(partitions[topic]))


@settings(max_examples=examples(100, 200), deadline=None)
@given(subscriptions_st, subscriptions_st, partitions_st)
def test_uniform_covers_everything_once_and_is_balanced(before, subscriptions, partitions):
    current = at_once(uniform(before, partitions, {}))
    result = at_once(uniform(subscriptions, partitions, current))
    assert sorted(tp for tps in result.values() for tp in tps) == wanted_of(subscriptions, partitions)
    for giver, has in result.items():
        assert all(topic in subscriptions[giver] for topic, _ in has)
        for taker, other in result.items():
            if any(topic in subscriptions[taker] for topic, _ in has):
                assert len(has) - len(other) <= 1, "a partition could move and make it more even"
    assert at_once(uniform(subscriptions, partitions, result)) == result


@settings(max_examples=100, deadline=None)
@given(subscriptions_st, partitions_st)
def test_range_covers_everything_once(subscriptions, partitions):
    result = at_once(by_range(subscriptions, partitions, {}))
    assert sorted(tp for tps in result.values() for tp in tps) == wanted_of(subscriptions, partitions)
    for topic, count in partitions.items():
        shares = [
            [index for one, index in sorted(tps) if one == topic]
            for member, tps in sorted(result.items())
            if topic in subscriptions[member]
        ]
        assert [index for share in shares for index in share] == list(range(count if shares else 0))
        assert not shares or max(map(len, shares)) - min(map(len, shares)) <= 1
