"""KIP-848 request by request: the same error codes and values on both brokers."""

import time

from kclient_quota.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from tests.contract.group_talk import (
    commit,
    fetch_offsets,
)


def beat(talk, group, member_id, epoch=0, **said):
    def request():
        made = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch)
        if epoch == 0:
            made.rebalance_timeout_ms, made.topic_partitions = 20_000, []
        for name, value in said.items():
            setattr(made, name, value)
        return made

    return talk.until(request, lambda answer: answer.error_code, 1)


class Reader:
    """A KIP-848 member that does what it is told."""

    def __init__(self, talk, group, topic, topic_id, member_id, **said):
        self.talk, self.group, self.topic_id = talk, group, topic_id
        self.said = said
        names = [] if topic is None else [topic]
        first = beat(talk, group, member_id, subscribed_topic_names=names, **said)
        assert first.error_code == 0, first
        self.member_id, self.epoch, self.told, self.owned = first.member_id, first.member_epoch, (), ()
        self._take(first)

    def _take(self, answer):
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.told = tuple(i for t in answer.assignment.topic_partitions for i in t.partitions)

    def beat(self):
        owned = [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=self.topic_id, partitions=list(self.owned))]
        answer = beat(self.talk, self.group, self.member_id, self.epoch, topic_partitions=owned, **self.said)
        assert answer.error_code == 0, answer
        self._take(answer)


def settle(condition, *readers, comply=True):
    """Heartbeats until the condition holds; Apache Kafka computes assignments a little later than it is asked."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, [(r.epoch, r.owned, r.told) for r in readers]
        for reader in readers:
            reader.beat()
            if comply:
                reader.owned = reader.told
        time.sleep(0.05)


def test_a_kip848_group_step_by_step(talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic, 2)
    talk.ready(group)
    first = Reader(talk, group, topic, topic_id, "a" * 22)
    settle(lambda: sorted(first.owned) == [0, 1], first)
    second = Reader(talk, group, topic, topic_id, "b" * 22)
    settle(lambda: len(first.told) == 1, first, second, comply=False)
    epoch = first.epoch
    first.beat()
    assert (first.epoch, second.told) == (epoch, ()), "who has not given up yet keeps its epoch, and its partition"
    settle(lambda: len(second.owned) == 1, first, second)
    assert first.epoch == second.epoch > epoch
    assert sorted(first.owned + second.owned) == [0, 1]
    (shown,) = talk.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups
    assert (shown.group_state, shown.group_epoch, shown.assignment_epoch) == ("Stable", first.epoch, first.epoch)
    assert shown.assignor_name == "uniform"
    assert beat(talk, group, first.member_id, -1).error_code == 0
    assert beat(talk, group, first.member_id, first.epoch).error_code == 25
    settle(lambda: sorted(second.owned) == [0, 1], second)
    assert beat(talk, group, second.member_id, -1).error_code == 0


def test_kip848_heartbeats_that_are_refused(talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic)
    talk.ready(group)
    names = {"subscribed_topic_names": [topic]}
    assert beat(talk, unique("nope"), "m" * 22, 1).error_code == 69
    assert beat(talk, group, "m" * 22, rebalance_timeout_ms=-1, **names).error_code == 42
    assert beat(talk, group, "m" * 22, topic_partitions=None, **names).error_code == 42
    assert beat(talk, group, "m" * 22).error_code == 42
    assert beat(talk, group, "m" * 22, server_assignor="best", **names).error_code == 112
    assert beat(talk, group, "m" * 22, -3, **names).error_code == 42
    assert beat(talk, group, "m" * 22, subscribed_topic_regex="(", **names).error_code == 128
    reader = Reader(talk, group, topic, topic_id, "m" * 22)
    settle(lambda: reader.owned == (0,), reader)
    member, epoch = reader.member_id, reader.epoch
    assert beat(talk, group, member, 99).error_code == 110
    assert beat(talk, group, "x" * 22, 1).error_code == 25
    assert commit(talk, group, topic, member_id=member, generation=epoch) == 0
    assert commit(talk, group, topic, member_id=member, generation=epoch + 1) == 113
    assert commit(talk, group, topic, member_id="x" * 22, generation=epoch) == 25
    assert commit(talk, group, topic) == 25
    assert commit(talk, group, topic, member_id=member, generation=epoch, version=8) == 35
    assert fetch_offsets(talk, group, topic, member_id=member, member_epoch=epoch) == (0, [(0, 5, "note", 0)])
    assert fetch_offsets(talk, group, topic, member_id=member, member_epoch=epoch + 1)[0] == 113
    assert fetch_offsets(talk, group, topic, member_id="x" * 22, member_epoch=epoch)[0] == 25


def test_a_static_kip848_member(talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic, 2)
    talk.ready(group)
    first = Reader(talk, group, topic, topic_id, "a" * 22, instance_id="i")
    settle(lambda: sorted(first.owned) == [0, 1], first)
    names = {"subscribed_topic_names": [topic], "instance_id": "i"}
    assert beat(talk, group, "b" * 22, **names).error_code == 111
    away = beat(talk, group, first.member_id, -2, instance_id="i")
    assert (away.error_code, away.member_epoch) == (0, -2)
    again = Reader(talk, group, topic, topic_id, "b" * 22, instance_id="i")
    assert (again.epoch, sorted(again.told)) == (first.epoch, [0, 1]), "at once and without a new epoch"
    assert beat(talk, group, first.member_id, 1, instance_id="i").error_code == 82
    assert beat(talk, group, "c" * 22, 1, instance_id="j").error_code == 25


def test_a_fenced_kip848_member_comes_back_under_its_id(talk, unique):
    group, topic = unique("g"), unique("t")
    topic_id = talk.create(topic, 2)
    talk.ready(group)
    first = Reader(talk, group, topic, topic_id, "a" * 22)
    settle(lambda: sorted(first.owned) == [0, 1], first)
    again = Reader(talk, group, topic, topic_id, "a" * 22)
    settle(lambda: sorted(again.owned) == [0, 1], again)
