"""Who is in KIP-848 groups as records: what is told when, and how often."""

from uuid import UUID

from kclient_quota.broker.groups.consumer_group import ConsumerGroup, ConsumerMember
from kclient_quota.broker.groups.consumer_group_records import ToldConsumerGroup, changes, farewell
from kclient_quota.broker.groups.telling import Telling
from kclient_quota.wire.codec import decode, encode
from kclient_quota.wire.messages.coordinator_records import ConsumerGroupMemberMetadataValue
from tests.unit.broker.handler_node import ManualScheduler

TOPIC = UUID(int=7)


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
    group.update_target(dict.fromkeys(group.members, frozenset({TOPIC})), dict(group.metadata.values()))


def kinds(records):
    return [int.from_bytes(key[:2], "big") for key, _ in records]


def test_what_has_not_changed_is_not_told_again():
    group, told = group_of(2, "a"), ToldConsumerGroup()
    assert kinds(changes(told, group, 0)) == [5, 3, 7, 6, 8]
    assert changes(told, group, 1) == []
    group.put(ConsumerMember("a", topics=frozenset({"t"}), member_epoch=1))
    assert changes(told, group, 2) == [], "another object that says the same"
    group.epoch += 1
    assert kinds(changes(told, group, 3)) == [3]
    computed(group)
    assert kinds(changes(told, group, 4)) == [6], "nobody has another target"
    assert kinds(farewell(told, "g")) == [8, 7, 6, 5, 4, 3]


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


def test_a_large_group_is_told_of_now_and_then():
    names = [f"m{number}" for number in range(50)]
    group, told, topic, scheduler = group_of(10_000, *names), ToldConsumerGroup(), Topic(), ManualScheduler()
    telling = Telling(topic, scheduler, lambda _: changes(told, group, scheduler.now_ms()), lambda _: None)
    telling.tell(["g"])
    for number in range(20):
        group.put(ConsumerMember(f"n{number}", topics=frozenset({"t"}), member_epoch=1))
        group.epoch += 1
        computed(group)
        telling.tell(["g"])
    assert len(topic.taken) == 1
    scheduler.pass_ms(1_000)
    assert len(topic.taken) == 2, "once for all of them"
    assert told.epoch == group.epoch
    assert told.target == group.target
    scheduler.pass_ms(60_000)
    assert len(topic.taken) == 2


def test_a_member_that_is_no_classic_one_says_so():
    """Kafka's reader takes silence for an empty struct."""
    value = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert encode(value, 0).endswith(b"\x01\x00\x01\x00")
    assert decode(ConsumerGroupMemberMetadataValue, 0, encode(value, 0)) == value
