"""KIP-848: in any order of events no partition has two readers, and left alone a group settles, balanced."""

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kclient_quota.broker.groups.assignors import assign_range, assign_uniform
from kclient_quota.broker.groups.consumer_coordinator import Beat, ConsumerGroupConfig, ConsumerGroupCoordinator
from kclient_quota.wire.error_codes import ErrorCode

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


class ConsumerGroups(RuleBasedStateMachine):
    """Four clients, one of them static."""

    def __init__(self):
        super().__init__()
        self.coordinator = ConsumerGroupCoordinator(ConsumerGroupConfig(session_timeout_ms=SESSION_MS))
        self.readers = [Reader("a", None), Reader("b", None), Reader("c", None), Reader("s", "i")]
        self.counts = {"t": 3, "u": 1}
        self.now_ms = 0

    numbers = st.integers(0, 3)

    @property
    def topics(self):
        return {name: (IDS[name], count) for name, count in self.counts.items()}

    def send(self, reader, epoch, **said):
        beat = Beat("g", reader.member_id, epoch, instance_id=reader.instance, **said)
        return self.coordinator.heartbeat(beat, "fresh", self.topics, self.now_ms)

    @rule(number=numbers)
    def beat(self, number):
        reader = self.readers[number]
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
        for _ in range(12):
            for number in alive:
                self.beat(number)
                self.comply(number)
                self.no_partition_has_two_readers()
            self.now_ms += 2_000
            self.coordinator.tick(self.now_ms)
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


ConsumerGroups.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
test_consumer_groups_stay_sound = ConsumerGroups.TestCase

TOPIC_IDS = [UUID(int=number) for number in range(1, 4)]
subscriptions_st = st.dictionaries(
    st.sampled_from("abcdef"), st.frozensets(st.sampled_from(TOPIC_IDS), min_size=1), min_size=1
)
partitions_st = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPIC_IDS})


def wanted_of(subscriptions, partitions):
    topics = set().union(*subscriptions.values())
    return sorted((topic, index) for topic in topics for index in range(partitions[topic]))


@settings(max_examples=200, deadline=None)
@given(subscriptions_st, subscriptions_st, partitions_st)
def test_uniform_covers_everything_once_and_is_balanced(before, subscriptions, partitions):
    current = assign_uniform(before, partitions, {})
    result = assign_uniform(subscriptions, partitions, current)
    assert sorted(tp for tps in result.values() for tp in tps) == wanted_of(subscriptions, partitions)
    for giver, has in result.items():
        assert all(topic in subscriptions[giver] for topic, _ in has)
        for taker, other in result.items():
            if any(topic in subscriptions[taker] for topic, _ in has):
                assert len(has) - len(other) <= 1, "a partition could move and make it more even"
    assert assign_uniform(subscriptions, partitions, result) == result


@settings(max_examples=100, deadline=None)
@given(subscriptions_st, partitions_st)
def test_range_covers_everything_once(subscriptions, partitions):
    result = assign_range(subscriptions, partitions, {})
    assert sorted(tp for tps in result.values() for tp in tps) == wanted_of(subscriptions, partitions)
    for topic, count in partitions.items():
        shares = [
            [index for one, index in sorted(tps) if one == topic]
            for member, tps in sorted(result.items())
            if topic in subscriptions[member]
        ]
        assert [index for share in shares for index in share] == list(range(count if shares else 0))
        assert not shares or max(map(len, shares)) - min(map(len, shares)) <= 1
