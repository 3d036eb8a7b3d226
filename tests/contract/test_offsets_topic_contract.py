"""`__consumer_offsets` as a topic that is read: the same records on both brokers, byte for byte but for the time."""

import struct
import time

from confluent_kafka import Consumer, TopicPartition

from kclient_quota.wire.messages import DeleteGroupsRequest
from tests.contract.group_talk import commit, leave, stable
from tests.contract.told_records import assert_internal

TOPIC = "__consumer_offsets"


def text(value):
    return struct.pack(">h", len(value)) + value.encode()


def timeless(value, place):
    """A record's value without the eight bytes of its time."""
    return value[:place] + value[place + 8 if place > 0 else len(value) + place + 8 :]


def records_of(cluster, name, count, topic=TOPIC):
    """The first records about a group or transactional id, keys and values, in the order of their partition."""
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "enable.auto.commit": False}
    reader = Consumer(conf)
    try:
        partitions = reader.list_topics(topic, timeout=60).topics[topic].partitions
        reader.assign([TopicPartition(topic, index, 0) for index in partitions])
        found, until = [], time.monotonic() + 60
        while len(found) < count:
            assert time.monotonic() < until, found
            for message in reader.consume(100, 0.2):
                assert message.error() is None, message.error()
                if message.key()[2:].startswith(text(name)):
                    found.append((message.key(), message.value()))
    finally:
        reader.close()
    return found


def test_what_groups_do_can_be_read(cluster, talk, unique):
    group, topic = unique("g"), unique("t")
    id_ = talk.create(topic)
    member = stable(talk, group, session_timeout_ms=10_000).member_id
    assert commit(talk, group, topic, 5, member_id=member, generation=1) == 0
    assert leave(talk, group, (member, None)) == (0, [0])
    assert talk.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code == 0

    of_group = struct.pack(">h", 2) + text(group)
    of_offset = struct.pack(">h", 1) + text(group) + text(topic) + struct.pack(">i", 0)
    made, joined, committed, emptied, *deleted = records_of(cluster, group, 6)
    assert [made[0], joined[0], committed[0], emptied[0]] == [of_group, of_group, of_offset, of_group]
    assert sorted(deleted) == sorted([(of_offset, None), (of_group, None)])

    nobody = struct.pack(">i", 0)
    assert timeless(made[1], -12) == struct.pack(">h", 3) + text("") + struct.pack(">ihh", 0, -1, -1) + nobody
    head = struct.pack(">h", 3) + text("consumer") + struct.pack(">i", 1) + text("range") + text(member)
    names = text(member) + struct.pack(">h", -1) + text("kclient-quota") + text("/127.0.0.1")
    data = struct.pack(">iii", 60_000, 10_000, 1) + b"m" + struct.pack(">i", 3) + b"all"
    assert timeless(joined[1], len(head)) == head + struct.pack(">i", 1) + names + data
    note, topic_id = b"\x05note", b"\x01\x00\x10" + id_.bytes
    assert timeless(committed[1], -27) == struct.pack(">hqi", 4, 5, -1) + note + topic_id
    head = struct.pack(">h", 3) + text("consumer") + struct.pack(">ihh", 2, -1, -1)
    assert timeless(emptied[1], -12) == head + nobody


def test_it_is_internal_and_takes_nothing_from_clients(cluster, talk, unique):
    talk.ready(unique("g"))
    assert_internal(cluster, talk, TOPIC)
