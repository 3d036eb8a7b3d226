"""What happens to a KIP-848 group while an assignment that is worked out in steps is under way."""

from uuid import uuid4

import pytest

from kclient_quota.broker.groups import assignors, in_steps
from kclient_quota.broker.groups.consumer import subscriptions
from kclient_quota.broker.groups.one_at_a_time import OneAtATime
from kclient_quota.broker.request.context import Services
from kclient_quota.broker.request.promise import Drive
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import ConsumerGroupHeartbeatRequest
from tests.unit.broker.enforced_cluster import ManualScheduler
from tests.unit.broker.handler_node import Node

PARTITIONS = 40


class Group:
    """A broker where four partitions or topics are a step, and `turn` is one turn of its loop."""

    def __init__(self):
        self.node = Node()
        self.scheduler = self.node.scheduler = ManualScheduler()
        self.node.services = Services(self.node.cluster, self.scheduler)
        self.node.cluster.new_topic_id = uuid4
        self.node.cluster.create_topic("many", PARTITIONS)

    def beat(self, member, epoch=0, **said):
        joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["many"], "topic_partitions": []}
        said = {**(joins if epoch == 0 else {}), **said}
        return self.node.start(
            ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=epoch, **said), 1
        )

    def turn(self):
        self.scheduler.pass_ms(0)

    def begun(self, *given, **said):
        """The answers to a heartbeat that is in the midst of its steps."""
        answers = self.beat(*given, **said)
        self.turn()
        assert not answers
        return answers

    def ended(self, answers):
        for _ in range(1_000):
            if answers:
                break
            self.turn()
        assert not isinstance(answers[0], Exception), answers[0]
        return answers[0]

    @property
    def state(self):
        return self.node.service.consumer_group("g").state


@pytest.fixture
def group(monkeypatch):
    for module in (assignors, in_steps, subscriptions):
        monkeypatch.setattr(module, "AT_ONCE", 4)
    return Group()


def read(answer):
    return {index for topic in answer.assignment.topic_partitions for index in topic.partitions}


ALL = set(range(PARTITIONS))


def test_a_heartbeat_meanwhile_is_answered_after_the_assignment_as_if_it_had_come_then(group):
    first = group.ended(group.beat("a"))
    assert read(first) == ALL
    joining = group.begun("b")
    assert group.state == "Assigning"
    meanwhile = group.beat("a", first.member_epoch)
    group.turn()
    assert not meanwhile
    joined, told = group.ended(joining), group.ended(meanwhile)
    assert read(joined) == set(), "what another has yet"
    assert len(read(told)) == PARTITIONS // 2
    topic_id = group.node.cluster.topics["many"].topic_id
    owned = [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=sorted(read(told)))]
    group.ended(group.beat("a", told.member_epoch, topic_partitions=owned))
    assert read(group.ended(group.beat("b", joined.member_epoch))) == ALL - read(told)


def test_who_loses_its_session_meanwhile_gets_nothing_of_the_assignment(group):
    group.ended(group.beat("a"))
    group.scheduler.pass_ms(44_000)
    joining = group.begun("b")
    group.scheduler.pass_ms(2_000)
    assert list(group.node.service.consumer_group("g").members) == ["b"]
    joined = group.ended(joining)
    assert read(joined) == ALL
    assert group.state == "Stable"


def test_who_is_lost_itself_meanwhile_is_told_so(group):
    group.ended(group.beat("a"))
    joining = group.begun("b")
    group.scheduler.pass_ms(60_000)
    assert group.ended(joining).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert not group.node.service.consumer_group("g").members
    assert read(group.ended(group.beat("c"))) == ALL


def test_who_is_lost_while_its_topics_are_compared_is_told_so(group):
    """They are another object with every heartbeat that names them."""
    topics = ["many", *(f"t{number}" for number in range(40))]
    joined = group.ended(group.beat("a", subscribed_topic_names=topics))
    said = {"subscribed_topic_names": topics, "topic_partitions": [], "rebalance_timeout_ms": 60_000}
    errors = []
    for turns in range(1, 12):
        answers = group.beat("a", joined.member_epoch, **said)
        for _ in range(turns):
            group.turn()
        members = group.node.service.consumer_group("g").members
        group.node.service.consumer_groups.remove(group.node.service.consumer_group("g"), "a")
        errors.append(group.ended(answers).error_code)
        assert "a" not in members
        joined = group.ended(group.beat("a", subscribed_topic_names=topics))
    assert errors.count(ErrorCode.UNKNOWN_MEMBER_ID) >= 9


def test_a_topic_that_is_deleted_meanwhile_is_taken_away_with_the_next_heartbeat(group):
    joining = group.begun("a", subscribed_topic_names=["many", "t"])
    group.node.cluster.delete_topic("many")
    joined = group.ended(joining)
    group.node.cluster.create_topic("many", 3)
    after = group.ended(group.beat("a", joined.member_epoch))
    assert not after.error_code
    target = group.node.service.consumer_group("g").target["a"]
    assert len(target) == 2 + 3


def test_members_that_join_at_the_same_time_have_one_turn_after_the_other(group):
    joins = [group.beat(f"m{number}") for number in range(5)]
    joined = [group.ended(answers) for answers in joins]
    assert [answer.member_epoch for answer in joined] == [1, 2, 3, 4, 5]
    sizes = [len(tps) for tps in group.node.service.consumer_group("g").target.values()]
    assert sizes == [PARTITIONS // 5] * 5


def test_a_leaver_s_turn_comes_after_the_assignment(group):
    group.ended(group.beat("a"))
    joining, leaving = group.begun("b"), group.beat("a", -1)
    group.ended(joining)
    assert not group.ended(leaving).error_code
    epoch = group.node.service.consumer_group("g").members["b"].member_epoch
    assert read(group.ended(group.beat("b", epoch))) == ALL


def test_who_hangs_up_while_it_waits_keeps_nobody_waiting():
    scheduler = ManualScheduler()
    turns, ended = OneAtATime(scheduler), []

    def steps(name):
        yield
        ended.append(name)
        return name

    def failing():
        yield
        raise ValueError("of a defect")

    answers = []
    drives = [
        Drive(turns.done("g", one), answers.append, answers.append)
        for one in (failing(), steps("second"), steps("third"))
    ]
    assert Drive(turns.done("other", steps("elsewhere")), answers.append, answers.append)
    assert drives[1].cancel(), "it goes on: it is short"
    for _ in range(10):
        scheduler.pass_ms(0)
    assert ended == ["elsewhere", "second", "third"]
    assert [str(answer) for answer in answers] == ["of a defect", "elsewhere", "second", "third"]
    Drive(turns.done("g", steps("last")), answers.append, answers.append)
    for _ in range(2):
        scheduler.pass_ms(0)
    assert answers[-1] == "last"
