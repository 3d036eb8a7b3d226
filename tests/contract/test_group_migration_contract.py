"""A group whose members speak the classic and the consumer protocol at once (KIP-848), request by request.

It becomes a group of the consumer protocol with its first member of that, and a classic one again without its last.
"""

import struct

import pytest

from kclient_quota.broker.groups.classic.embedded_protocol import read_assignment, write_assignment
from kclient_quota.wire.messages import ConsumerGroupDescribeRequest, ListGroupsRequest
from tests.contract.group_talk import commit, fetch_offsets, heartbeat, join, leave, sync
from tests.contract.test_groups_kip848_contract import Reader, beat, settle

pytestmark = pytest.mark.timeout(120)
REBALANCE, UNKNOWN_MEMBER, ILLEGAL_GENERATION, INCONSISTENT, ID_REQUIRED = 27, 25, 22, 23, 79
UNSUPPORTED_VERSION, NOT_FOUND = 35, 69


def subscription(topic, owned=()):
    """`ConsumerProtocolSubscription` 1: to one topic, of which these partitions are owned."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    partitions = struct.pack(f">i{len(owned)}i", len(owned), *owned)
    return struct.pack(">hi", 1, 1) + name + struct.pack(">ii", -1, 1) + name + partitions


class ClassicReader:
    """A classic member that does what it is told, cooperatively."""

    def __init__(self, talk, group, topic):
        self.talk, self.group, self.topic = talk, group, topic
        self.owned, self.member_id, self.generation, self.leader = (), "", -1, ""
        first = self.join()
        assert (first.error_code, first.member_id != "") == (ID_REQUIRED, True)
        self.member_id = first.member_id

    def join(self):
        said = (("range", subscription(self.topic, self.owned)),)
        answer = join(self.talk, self.group, self.member_id, protocols=said)
        if answer.error_code == 0:
            self.generation, self.leader = answer.generation_id, answer.leader
        return answer

    def sync(self, given=None):
        answer = sync(self.talk, self.group, self, given)
        if answer.error_code == 0:
            self.owned = tuple(sorted(index for _, index in read_assignment(answer.assignment)))
        return answer.error_code

    # as `sync` asks for them
    @property
    def generation_id(self):
        return self.generation

    def heartbeat(self):
        return heartbeat(self.talk, self.group, self.member_id, self.generation)

    def beat(self):
        """What a client does at every heartbeat."""
        if self.heartbeat() in {REBALANCE, ILLEGAL_GENERATION}:
            assert self.join().error_code == 0
            assert self.sync() in {0, REBALANCE}

    @property
    def told(self):
        return self.owned

    @property
    def epoch(self):
        return self.generation


def alone(talk, group, topic):
    """A stable classic group of one member that has both partitions."""
    reader = ClassicReader(talk, group, topic)
    assert reader.join().leader == reader.member_id
    assert reader.sync({reader.member_id: write_assignment(1, {(topic, 0), (topic, 1)})}) == 0
    assert (reader.owned, reader.heartbeat()) == ((0, 1), 0)
    return reader


def listed(talk, group):
    return [one.group_type for one in talk.ask(ListGroupsRequest(), 5).groups if one.group_id == group]


def test_a_group_turns_and_turns_back_while_a_classic_member_goes_on(talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic, 2)
    talk.ready(group)
    classic = alone(talk, group, topic)
    assert listed(talk, group) == ["classic"]
    assert commit(talk, group, topic, 5, member_id=classic.member_id, generation=classic.generation) == 0
    assert beat(talk, group, "c" * 22, 1, topic_partitions=[]).error_code == NOT_FOUND, "only who joins turns it"

    modern = Reader(talk, group, topic, topic_id, "b" * 22)
    assert (listed(talk, group), modern.told) == (["consumer"], ())
    assert classic.heartbeat() == REBALANCE
    assert classic.owned == (0, 1), "it goes on reading"
    joined = classic.join()
    assert (joined.error_code, joined.leader, joined.members, joined.protocol_name) == (0, "", [], "range")
    # Apache Kafka computes assignments a little later than it is asked
    settle(lambda: len(classic.owned) == len(modern.owned) == 1, classic, modern)
    assert {*classic.owned, *modern.owned} == {0, 1}
    settle(lambda: classic.heartbeat() == 0, classic, modern)

    (described,) = talk.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups
    assert {(m.member_id, m.member_type) for m in described.members} == {(classic.member_id, 0), (modern.member_id, 1)}
    assert fetch_offsets(talk, group, topic)[1][0][1] == 5
    assert commit(talk, group, topic, 6, member_id=classic.member_id, generation=classic.generation, version=7) == 0
    assert commit(talk, group, topic, 7, member_id=classic.member_id, generation=99) == ILLEGAL_GENERATION
    assert commit(talk, group, topic, 7, member_id=modern.member_id, generation=modern.epoch, version=8) == (
        UNSUPPORTED_VERSION
    )
    assert heartbeat(talk, group, modern.member_id, modern.epoch) == UNKNOWN_MEMBER, "it is not a classic member"
    assert heartbeat(talk, group, classic.member_id, 99) == ILLEGAL_GENERATION

    assert beat(talk, group, modern.member_id, -1).error_code == 0
    assert listed(talk, group) == ["classic"]
    assert classic.heartbeat() in {REBALANCE, ILLEGAL_GENERATION}
    assert classic.join().leader == classic.member_id
    assert classic.sync({classic.member_id: write_assignment(1, {(topic, 0), (topic, 1)})}) == 0
    assert (classic.owned, classic.heartbeat()) == ((0, 1), 0)
    assert fetch_offsets(talk, group, topic)[1][0][1] == 6


def test_a_classic_member_comes_into_a_group_of_the_new_protocol_and_stays_in_it_alone(talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic, 2)
    talk.ready(group)
    modern = Reader(talk, group, topic, topic_id, "b" * 22)
    settle(lambda: sorted(modern.owned) == [0, 1], modern)
    assert join(talk, group, protocols=(("x", b""),), protocol_type="connect").error_code == INCONSISTENT
    classic = ClassicReader(talk, group, topic)
    assert classic.join().error_code == 0
    assert classic.sync() in {0, REBALANCE}
    settle(lambda: len(classic.owned) == len(modern.owned) == 1, classic, modern)
    other = join(talk, group, protocols=(("sticky", subscription(topic)),))
    assert other.error_code == INCONSISTENT, "classic members need a protocol in common"
    assert leave(talk, group, ("nobody", None), (classic.member_id, None)) == (0, [UNKNOWN_MEMBER, 0])
    settle(lambda: sorted(modern.owned) == [0, 1], modern)
    assert listed(talk, group) == ["consumer"]

    again = ClassicReader(talk, group, topic)
    assert again.join().error_code == 0
    assert leave(talk, group, (modern.member_id, None)) == (0, [0]), "LeaveGroup takes members of either protocol out"
    assert listed(talk, group) == ["classic"]
