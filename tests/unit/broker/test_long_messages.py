"""Long requests are read by and by, and long answers written so."""

from itertools import pairwise

import pytest

from kclient_quota.broker.request.context import ELEMENTS_AT_ONCE as AT_ONCE
from kclient_quota.broker.request.long import messages as long_messages
from kclient_quota.broker.request.promise import Drive
from kclient_quota.errors import WireError
from kclient_quota.wire.codec import decode_by_and_by, decode_few, encode, encode_element
from kclient_quota.wire.messages import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
)
from tests.unit.broker.handler_node import Node, versions
from tests.unit.broker.long_requests import INDEXES, LONG, MANY, NAMES, VERSIONS


@versions(MetadataRequest)
def test_an_element_may_be_encoded_before(version):
    partition = MetadataResponse.MetadataResponsePartition(partition_index=1, leader_id=2, replica_nodes=[2, 3])
    topic = MetadataResponse.MetadataResponseTopic(name="t", partitions=[partition])
    plain = encode(MetadataResponse(topics=[topic, topic]), version)
    topic.partitions = [encode_element(partition, version)]
    assert encode(MetadataResponse(topics=[topic, encode_element(topic, version)]), version) == plain


@pytest.mark.parametrize("name", LONG)
def test_long_requests_are_read_and_long_answers_written_by_and_by(name):
    request, version = LONG[name], VERSIONS.get(name, 4)
    body = encode(request, version)
    most = AT_ONCE if name != "OffsetFetch" else 20  # numbers are read faster than structs
    assert decode_few(type(request), version, body, 0, len(body), most) is None
    assert decode_few(type(request), version, body, 0, len(body), 3 * MANY) == request
    turns = []

    async def turn():
        turns.append(True)

    read = []
    Drive(long_messages.read(type(request), version, body, 0, turn), read.append, read.append)
    assert read == [request]
    assert len(turns) >= 2 or name == "OffsetFetch"
    node = Node()
    answers = node.start(request, version)
    while not answers:
        node.scheduler.pass_ms(0)
    answer = answers[0]
    plain = encode(answer, version)
    turns.clear()
    written = []
    Drive(long_messages.written(answer, version, turn), written.append, written.append)
    assert written == [None]
    assert len(turns) >= 2
    assert encode(answer, version) == plain


def test_what_is_written_of_a_long_answer_is_let_go():
    topic = MetadataResponse.MetadataResponseTopic(name="t")
    row = MetadataResponse.MetadataResponsePartition
    rows = topic.partitions = [row(partition_index=number, leader_id=1) for number in INDEXES]
    answer = MetadataResponse(topics=[topic])
    plain, left = encode(answer, 12), []

    async def turn():
        left.append(len(rows))

    written = []
    Drive(long_messages.written(answer, 12, turn), written.append, written.append)
    assert written == [None]
    assert left[0] <= MANY - AT_ONCE + 1
    assert max(before - after for before, after in pairwise([MANY, *left, len(rows)])) <= AT_ONCE
    assert not rows
    assert encode(answer, 12) == plain


def turns_of_writing(answer, version):
    """How many turns it takes to write an answer, which then is what it would have been at once."""
    plain, turns, written = encode(answer, version), [], []

    async def turn():
        turns.append(True)

    Drive(long_messages.written(answer, version, turn), written.append, written.append)
    assert written == [None]
    assert encode(answer, version) == plain
    return len(turns)


def test_very_many_names_are_as_long_as_structs():
    member = ConsumerGroupDescribeResponse.Member
    group = ConsumerGroupDescribeResponse.DescribedGroup(group_id="g")
    group.members = [member(member_id=str(number), subscribed_topic_names=NAMES * 4) for number in range(20)]
    answer = ConsumerGroupDescribeResponse(groups=[group])
    turns = turns_of_writing(answer, 1)
    assert turns >= 20, "after each member"


def test_very_many_names_of_one_list_are_written_by_and_by():
    names = [f"topic-{number}" for number in range(40 * AT_ONCE)]
    member = ConsumerGroupDescribeResponse.Member(member_id="m", subscribed_topic_names=names)
    group = ConsumerGroupDescribeResponse.DescribedGroup(group_id="g", members=[member])
    answer = ConsumerGroupDescribeResponse(groups=[group])
    turns = turns_of_writing(answer, 1)
    assert turns >= 4, "ten names cost as much as a struct"
    assert names[0] == "topic-0", "the list may be somebody's"


def assigned(cls, count=4 * MANY):
    return cls.Assignment(topic_partitions=[cls.TopicPartitions(partitions=[number]) for number in range(count)])


@pytest.mark.parametrize("name", ["heartbeat", "heartbeat of nothing", "describe"])
def test_a_list_in_a_struct_of_the_answer_is_written_by_and_by_as_one_in_the_answer_itself(name):
    described = ConsumerGroupDescribeResponse
    member = described.Member(assignment=assigned(described), target_assignment=assigned(described))
    answer, least = {
        "heartbeat": (
            ConsumerGroupHeartbeatResponse(assignment=assigned(ConsumerGroupHeartbeatResponse)),
            4 * MANY // AT_ONCE,
        ),
        "heartbeat of nothing": (ConsumerGroupHeartbeatResponse(), 0),
        "describe": (described(groups=[described.DescribedGroup(members=[member])]), 8 * MANY // AT_ONCE),
    }[name]
    turns = turns_of_writing(answer, 1)
    assert turns >= least


@pytest.mark.parametrize("cut", [1, 100, 20_000])
def test_a_long_request_that_is_cut_short_is_malformed(cut):
    body = encode(LONG["ListOffsets"], 4)[:-cut]
    with pytest.raises(WireError, match="ListOffsetsRequest v4"):
        for _ in decode_by_and_by(ListOffsetsRequest, 4, body, 0, len(body), AT_ONCE):
            pass


def test_no_more_is_counted_than_it_takes_to_call_an_answer_long(monkeypatch):
    """Many lists of a thousand: to count them all took as long as a hundred thousand partitions."""
    counted = []
    plain = long_messages._size
    monkeypatch.setattr(long_messages, "_size", lambda struct: counted.append(struct) or plain(struct))
    row = MetadataResponse.MetadataResponsePartition(partition_index=1, leader_id=1, replica_nodes=[1], isr_nodes=[1])
    for per_topic in (10, 500, AT_ONCE):
        topics = [MetadataResponse.MetadataResponseTopic(name="t", partitions=[row] * per_topic) for _ in range(100)]
        counted.clear()
        long_messages._size(MetadataResponse(topics=topics))
        assert len(counted) <= 3 * AT_ONCE
