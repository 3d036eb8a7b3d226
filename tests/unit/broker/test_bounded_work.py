"""No request costs more than it should: work grows with what changed, not with all there is."""

import random
import sys
import time
from uuid import UUID, uuid4

import pytest

from kclient_quota.broker import internal_topics
from kclient_quota.broker.groups import assignors
from kclient_quota.broker.groups import in_steps as groups_in_steps
from kclient_quota.broker.groups.assignors import by_range, by_topic_in_steps, uniform
from kclient_quota.broker.groups.consumer.coordinator import ConsumerGroupCoordinator
from kclient_quota.broker.groups.consumer.group import NOTHING
from kclient_quota.broker.groups.consumer.requests import Beat
from kclient_quota.broker.groups.in_steps import at_once
from kclient_quota.broker.handlers.records import fetch
from kclient_quota.broker.request.context import AT_ONCE
from kclient_quota.broker.security.sasl_mechanisms import SaslAuthenticator, SaslConfig
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    FetchRequest,
    ListOffsetsRequest,
)
from kclient_quota.wire.records import Record, build_batch
from tests.unit.broker.core_cluster import Cluster
from tests.unit.broker.enforced_cluster import ManualScheduler
from tests.unit.broker.handler_node import Node


def test_a_batch_that_inflates_enormously_is_not_inflated_to_answer_for_a_time():
    cluster = Cluster()
    record = Record(b"", timestamp_ms=5)
    batch = build_batch([record] * 400_000, compression=1)
    assert len(batch) < 1_000_000
    log = cluster.topic.partitions[0].log
    log.append(batch, leader_epoch=0, now_ms=0)
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-3)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked])
    started = time.thread_time()
    (answer,) = cluster.send(ListOffsetsRequest(topics=[topic]), 7).topics
    assert time.thread_time() - started < 0.05
    assert (answer.partitions[0].timestamp, answer.partitions[0].offset) == (5, 0)


def test_a_stranger_s_attempts_to_authenticate_cost_the_work_of_one():
    config = SaslConfig({"alice": "secret"}, salt=b"of this test alone")

    def attempt():
        started = time.thread_time()
        authenticator = SaslAuthenticator(config)
        authenticator.handshake("SCRAM-SHA-512", "nonce")
        authenticator.authenticate(b"n,,n=alice,r=abcdef", 0)
        return time.thread_time() - started

    first = attempt()
    assert min(attempt() for _ in range(5)) < first / 3


def test_a_waiting_fetch_looks_at_the_partition_that_changed_only():
    node = Node()
    node.cluster.create_topic("many", 0)
    topic = node.cluster.topics["many"]
    node.cluster.add_partitions(topic, 800)
    looks = []
    for partition in topic.partitions:
        available = partition.log.available_bytes
        partition.log.available_bytes = lambda offset, index=partition.index, real=available: (
            looks.append(index),
            real(offset),
        )[1]
    parts = [FetchRequest.FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(800)]
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1 << 20, topics=[FetchRequest.FetchTopic(topic="many", partitions=parts)]
    )
    answers = node.start(request, 12)
    node.scheduler.pass_ms(0)
    assert not answers
    looks.clear()
    for index in (3, 700, 3):
        batch = build_batch([Record(b"x", timestamp_ms=0)])
        topic.partitions[index].log.append(batch, leader_epoch=0, now_ms=0)
    assert looks == [3, 700, 3]
    node.scheduler.pass_ms(500)
    read = {part.partition_index: len(part.records) for part in answers[0].responses[0].partitions if part.records}
    assert set(read) == {3, 700}


def test_no_turn_of_a_fetch_that_waits_looks_at_all_it_asks_for():
    node, most = Node(), 10_000
    parts = [FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)] * most
    request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchRequest.FetchTopic(topic="t", partitions=parts)])
    node.scheduler = ManualScheduler()
    calls, answers = [], []

    def count(_frame, event, _given):
        calls[-1] += event == "call"

    def turn(work):
        calls.append(0)
        sys.setprofile(count)
        try:
            return work()
        finally:
            sys.setprofile(None)

    answers = turn(lambda: node.start(request, 12))
    while not answers:
        turn(lambda: node.scheduler.pass_ms(10))
    assert len(answers[0].responses[0].partitions) == most
    # it is all read twice and watched; a generator's next step is a call
    assert max(calls[1:]) < most * 3 // 4


def test_no_turn_of_a_fetch_lets_go_of_all_it_asked_for(monkeypatch):
    node, freed = Node(), [0]

    class Counted(fetch._Wanted):
        def __del__(self):
            freed[-1] += 1

    monkeypatch.setattr(fetch, "_Wanted", Counted)
    parts = [FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)] * 5_000
    request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchRequest.FetchTopic(topic="t", partitions=parts)])
    node.scheduler = ManualScheduler()
    answers = node.start(request, 12)
    while not answers:
        freed.append(0)
        node.scheduler.pass_ms(10)
    assert sum(freed) == 2 * 5_000, "it is looked up before it waits and after"
    assert max(freed) <= AT_ONCE


def test_one_topic_more_is_listed_without_a_look_at_the_others():
    node, asked = Node(), []

    class Counted(list):
        def __len__(self):
            asked.append(1)
            return super().__len__()

    cluster = node.cluster
    for number in range(20):
        topic = cluster.create_topic(f"c{number}", 1)
        topic.partitions = Counted(topic.partitions)
    before = cluster.directory
    assert cluster.directory is before
    asked.clear()
    cluster.create_topic("one", 3)
    assert cluster.directory["one"] == (cluster.topics["one"].topic_id, 3)
    assert not asked
    cluster.add_partitions(cluster.topics["one"], 4)
    cluster.add_ahead(cluster.topics["one"], [cluster.partition_ahead(cluster.topics["one"].topic_id, 4, None, 1)])
    cluster.delete_topic("c3")
    assert "one" not in before, "who has it keeps what was"
    assert "c3" in before
    assert cluster.directory == {
        name: (topic.topic_id, len(topic.partitions)) for name, topic in cluster.topics.items()
    }


def test_what_members_of_unlike_subscriptions_have_is_copied_member_by_member(monkeypatch):
    monkeypatch.setattr(assignors, "AT_ONCE", 100)
    topics = [UUID(int=number) for number in range(20)]
    held = {f"m{number}": frozenset((topic, number) for topic in topics) for number in range(50)}
    copied = []
    steps = assignors._copied(lambda tps: copied.append(len(tps)) or set(tps), held)
    for _ in steps:
        assert sum(copied) <= 100
        copied.clear()
    assert list(at_once(assignors._copied(set, held))) == list(held)


def test_topics_of_an_assignment_are_put_in_order_some_at_a_time(monkeypatch):
    sorts = []
    for module in (assignors, groups_in_steps):
        monkeypatch.setattr(module, "AT_ONCE", 100)
        monkeypatch.setattr(
            module, "sorted", lambda items, **by: sorts.append(len(items)) or sorted(items, **by), raising=False
        )
    chance = random.Random(1)
    ids = [UUID(int=chance.getrandbits(128)) for _ in range(2_000)]
    found = at_once(assignors.by_topic_in_steps((topic, index) for topic in ids for index in (1, 0)))
    assert found == [(topic, [0, 1]) for topic in sorted(ids)]
    assert max(sorts) <= 100


def test_what_a_member_says_it_owns_is_looked_at_some_at_a_time(monkeypatch):
    node, hashed = Node(), []
    monkeypatch.setattr(groups_in_steps, "AT_ONCE", 100)
    plain = UUID.__hash__
    monkeypatch.setattr(UUID, "__hash__", lambda topic_id: hashed.append(1) or plain(topic_id))
    owned = [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=UUID(int=9), partitions=list(range(5_000)))]
    beat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3, topic_partitions=owned)
    node.scheduler = ManualScheduler()
    answers, most = node.start(beat, 1), 0
    while not answers:
        most = max(most, len(hashed))
        hashed.clear()
        node.scheduler.pass_ms(0)
    assert answers[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert 100 <= most <= 300


def test_thousands_of_partitions_are_spread_in_no_time_and_few_move():
    topic = UUID(int=1)
    members = {f"m{number:03d}": frozenset([topic]) for number in range(100)}
    started = time.thread_time()
    first = at_once(uniform(members, {topic: 20_000}, {}))
    assert time.thread_time() - started < 1
    assert {len(tps) for tps in first.values()} == {200}
    more = {**members, "new": frozenset([topic])}
    second = at_once(uniform(more, {topic: 20_000}, first))
    assert sorted({len(tps) for tps in second.values()}) == [198, 199]
    moved = sum(len(second[member] - first.get(member, frozenset())) for member in more)
    assert moved == len(second["new"])
    assert sum(map(len, second.values())) == 20_000


@pytest.mark.parametrize("members", [2, 7])
def test_members_that_read_not_the_same_share_thousands_of_partitions_in_few_steps(monkeypatch, members):
    large, small = UUID(int=1), UUID(int=2)
    partitions = {large: 5_000, small: 3}
    first = at_once(uniform({"m0": frozenset([large])}, partitions, {}))
    names = {f"m{number}": frozenset([large, small]) if number else frozenset([large]) for number in range(members)}
    steps, improvement = [], assignors._improvement
    monkeypatch.setattr(assignors, "_improvement", lambda *given: steps.append(1) or improvement(*given))
    second = at_once(uniform(names, partitions, first))
    assert len(steps) < 10 * members
    sizes = sorted(map(len, second.values()))
    assert sizes[-1] - sizes[0] <= 1
    assert sum(sizes) == 5_003
    kept = len(second["m0"] & first["m0"])
    assert kept == len(second["m0"])
    assert all(topic == large for topic, _ in second["m0"])


class Counted(UUID):
    """An id that counts how often it is hashed and compared, which functions in Python do."""

    asked = 0

    def __hash__(self):
        Counted.asked += 1
        return super().__hash__()

    def __eq__(self, other):
        Counted.asked += 1
        return super().__eq__(other)

    def __lt__(self, other):
        Counted.asked += 1
        return super().__lt__(other)


@pytest.mark.parametrize("assign", [uniform, by_range])
@pytest.mark.parametrize(("is_alike", "most"), [(True, 1.2), (False, 4)])
def test_a_partition_s_topic_is_hashed_a_few_times_for_an_assignment(assign, is_alike, most):
    topics = [Counted(int=number) for number in range(50)]
    partitions = dict.fromkeys(topics, 200)
    members = {f"m{number}": frozenset(topics if is_alike else topics[: 48 + number]) for number in range(3)}
    Counted.asked = 0
    first = at_once(assign(members, partitions, {}))
    assert Counted.asked < most * 10_000
    Counted.asked = 0
    assert at_once(assign({**members, "m9": frozenset(topics)}, partitions, first))
    assert Counted.asked < most * 10_000
    found = at_once(by_topic_in_steps(first["m0"]))
    assert found == sorted(found)


def test_a_next_step_towards_a_large_target_hashes_none_of_it():
    topics = {"t": (Counted(int=1), 5_000)}
    coordinator = ConsumerGroupCoordinator()
    joins = [
        Beat("g", f"m{number}", 0, rebalance_timeout_ms=1, topics=frozenset("t"), owned=NOTHING) for number in (0, 1)
    ]
    results = [at_once(coordinator.heartbeat(join, "", topics, 0)) for join in joins]
    Counted.asked = 0
    group = coordinator.groups["g"]
    member = group.reconcile(group.members["m0"], group.target["m0"])
    assert len(member.assigned) == 2_500
    second = Beat("g", "m1", results[1].member_epoch)
    assert not at_once(coordinator.heartbeat(second, "", topics, 0)).error
    assert Counted.asked < 100


def test_a_group_of_many_topics_is_described_in_a_time_that_grows_as_they_do():
    node = Node()
    node.cluster.new_topic_id = uuid4
    for number in range(400):
        node.cluster.create_topic(f"t{number}", 10)
    join = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=1, subscribed_topic_regex="t.*", topic_partitions=[]
    )
    assert not node.start(join, 1)
    node.scheduler.pass_ms(0)
    started = time.thread_time()
    (group,) = in_turns(node, ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    assert time.thread_time() - started < 0.3
    (member,) = group.members
    names = [topic.topic_name for topic in member.assignment.topic_partitions]
    assert names == sorted(node.cluster.topics)
    assert member.target_assignment == member.assignment
    assert sum(len(topic.partitions) for topic in member.assignment.topic_partitions) == 4_002


def in_turns(node, request):
    answers = node.start(request, 1)
    while not answers:
        node.scheduler.pass_ms(0)
    return node.through_codec(answers[0], 1)


@pytest.mark.parametrize("assign", [uniform, by_range])
@pytest.mark.parametrize("topics", [1, 50, 5_000])
@pytest.mark.parametrize("is_alike", [True, False])
def test_no_step_of_an_assignment_grows_with_what_there_is(monkeypatch, assign, topics, is_alike):
    for module in (assignors, groups_in_steps):
        monkeypatch.setattr(module, "AT_ONCE", 100)
    ids = [Counted(int=number) for number in range(topics)]
    partitions = dict.fromkeys(ids, 5_000 // topics)
    current, names = {}, []
    for number in range(4):
        names.append(f"m{number}")
        read = {name: frozenset(ids if is_alike else ids[index // 2 :]) for index, name in enumerate(names)}
        steps, asked = assign(read, partitions, current), []
        while True:
            Counted.asked = 0
            try:
                next(steps)
            except StopIteration as end:
                current = end.value
                break
            finally:
                asked.append(Counted.asked)
        assert len(asked) >= 50
        assert max(asked) <= 400, "each of a hundred a few times, and no more"
        assert sum(map(len, current.values())) == 5_000


def test_others_have_their_turn_before_a_large_assignment_is_told():
    node = Node()
    node.cluster.create_topic("many", 2_000)
    join = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=1, subscribed_topic_names=["many"], topic_partitions=[]
    )
    answers = node.start(join, 1)
    assert not answers
    node.scheduler.pass_ms(0)
    (topic,) = answers[0].assignment.topic_partitions
    assert topic.partitions == list(range(2_000))


def test_no_batch_is_made_of_what_an_internal_topic_would_refuse(monkeypatch):
    node, made = Node(), []
    build = internal_topics.build_batch
    monkeypatch.setattr(internal_topics, "build_batch", lambda records: made.append(1) or build(records))
    topic = node.service.topic.records
    with pytest.raises(OSError, match="too large"):
        topic.append_all("g", [(b"key", b"v" * 1_100_000)])
    assert not made
    assert topic.append_all("g", [(b"key", b"v" * 1_000_000)])[1] == 0
    assert len(made) == 1
