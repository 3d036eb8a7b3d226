"""`__transaction_state` as a topic that is read: the same records on both brokers, but for producer ids and times."""

import struct

import pytest

from kclient_quota.wire.messages import MetadataRequest
from tests.contract.test_group_transactions_contract import Producer
from tests.contract.test_offsets_topic_contract import records_of
from tests.contract.test_transactions_v2_contract import end

pytestmark = pytest.mark.timeout(120)
TOPIC = "__transaction_state"
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)


def test_what_becomes_of_a_transaction_can_be_read(cluster, talk, unique):
    name, topic, group = unique("id"), unique("t"), unique("g")
    talk.create(topic, 2)
    talk.ready(group)
    producer = Producer(talk, name)
    (found,) = talk.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)]), 12).topics
    assert (found.error_code, found.is_internal) == (0, True)
    assert producer.write(topic, version=12) == 0
    assert end(producer, commit=True) == (0, 1)
    producer.epoch, producer.sequence = 1, 0
    assert producer.add(topic, 1, 0) == [0, 0]
    assert producer.write(topic) == 0
    assert producer.add_group(group) == 0
    assert producer.end(commit=False) == 0
    producer = Producer(talk, name)
    assert producer.commit_offset(group, topic, version=5) == 0
    assert end(producer, commit=False)[0] == 0

    keys, values = zip(*records_of(cluster, name, 12, TOPIC), strict=True)
    assert set(keys) == {struct.pack(">hh", 0, len(name)) + name.encode()}
    both, offsets = {topic: [0, 1]}, {"__consumer_offsets": 1}
    assert [told(value, producer.id) for value in values] == [
        (0, EMPTY, None, False, 0),
        (0, ONGOING, {topic: [0]}, True, 2),
        (1, PREPARE_COMMIT, {topic: [0]}, True, 2),
        (1, COMPLETE_COMMIT, {}, True, 2),
        (1, ONGOING, both, True, 0),
        (1, ONGOING, both | offsets, True, 0),
        (1, PREPARE_ABORT, both | offsets, True, 0),
        (1, COMPLETE_ABORT, {}, True, 0),
        (2, EMPTY, None, False, 0),
        (2, ONGOING, offsets, True, 2),
        (3, PREPARE_ABORT, offsets, True, 2),
        (3, COMPLETE_ABORT, {}, True, 2),
    ]


def told(value, producer_id):
    """Epoch, state, partitions (of `__consumer_offsets` how many), whether it has begun, the client's protocol."""
    *head, status = struct.unpack_from(">hqhib", value)
    assert (head[:2], head[3]) == ([1, producer_id], 60_000)
    at, topics = 18, value[17] - 1
    partitions = None if topics < 0 else {}
    for _ in range(topics):
        name = value[at + 1 : at + value[at]].decode()
        at += value[at]
        indexes = sorted(struct.unpack_from(f">{value[at] - 1}i", value, at + 1))
        at += 2 + 4 * len(indexes)
        partitions[name] = len(indexes) if name.startswith("_") else indexes
    now_ms, started_ms = struct.unpack_from(">qq", value, at)
    assert started_ms == -1 or 0 < started_ms <= now_ms
    tags = value[at + 16 :]
    previous = b"\x00\x08" + struct.pack(">q", producer_id)
    assert tags in {b"\x01" + previous, b"\x02" + previous + b"\x02\x02\x00\x02"}
    return head[2], status, partitions, started_ms > 0, 2 * (tags[0] - 1)
